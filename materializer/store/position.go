package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// Bus says which bus a store belongs to. The zero value is none yet.
type Bus struct {
	Epoch    string // of the numbers: EVENTS' metadata
	IngestID string // of the INGEST stream that the position counts in
}

// Position is how far a store has read. The zero value is the beginning. If IngestTime is
// 0 it is not known which message stands at IngestSeq: everything up to it was passed.
type Position struct {
	IngestSeq   uint64          // the last message of INGEST that was read; 0 if none
	IngestTime  int64           // its stored time, ns since 1970
	IngestHash  projection.Hash // its hash
	EventsSeq   uint64          // the last number of EVENTS that was passed: readers' latest_seq
	HighestTime int64           // the highest stored time of INGEST applied so far, ns since 1970
	// Since is the stored time of the first message that was new since reading began, or
	// since the store went back last, ns since 1970; 0 if none was. It begins the stretch
	// that is left when the store goes back again.
	Since int64
}

// Counters count messages by what became of them, since the store was made.
type Counters struct {
	Applied     int64
	Duplicates  int64
	Dropped     int64 // of forgotten sessions
	Unprojected int64 // observations that moved a chain on but could not be used
	Foreign     int64 // messages in EVENTS that are not ours
	Holes       int64 // sequences that INGEST lost
}

// head is the row of position.
type head struct {
	Bus
	Position
	Counters
	oldest      uint64
	sessions    int64
	held        int64
	rejects     int64
	rejectBytes int64
}

func readHead(ctx context.Context, t *tx) (head, error) { return scanHead(t.row(ctx, sqlHead)) }

func scanHead(row scanner) (h head, err error) {
	var hash []byte
	var ingest, events, oldest int64
	err = row.Scan(&h.Epoch, &h.IngestID, &ingest, &h.IngestTime, &hash, &h.HighestTime, &events, &oldest,
		&h.Applied, &h.Duplicates, &h.Dropped, &h.Unprojected, &h.Foreign, &h.Holes,
		&h.sessions, &h.held, &h.rejects, &h.rejectBytes, &h.Since)
	h.IngestSeq, h.EventsSeq, h.oldest = uint64(ingest), uint64(events), uint64(oldest)
	copy(h.IngestHash[:], hash)
	return h, err
}

func (h *head) write(ctx context.Context, t *tx) error {
	_, err := t.exec(ctx, sqlSaveHead, h.Epoch, h.IngestID, int64(h.IngestSeq), h.IngestTime, h.IngestHash[:], h.HighestTime, int64(h.EventsSeq), int64(h.oldest),
		h.Applied, h.Duplicates, h.Dropped, h.Unprojected, h.Foreign, h.Holes,
		h.sessions, h.held, h.rejects, h.rejectBytes, h.Since)
	return err
}

func (c *Counters) add(d Counters) {
	c.Applied += d.Applied
	c.Duplicates += d.Duplicates
	c.Dropped += d.Dropped
	c.Unprojected += d.Unprojected
	c.Foreign += d.Foreign
	c.Holes += d.Holes
}

// Bus returns the bus that the store belongs to, zero if it belongs to none yet.
func (s *Store) Bus(ctx context.Context) (Bus, error) {
	return view(ctx, s.reader, "read bus", func(ctx context.Context, t *tx) (Bus, error) {
		h, err := readHead(ctx, t)
		return h.Bus, err
	})
}

// Adopt makes the store one of the bus, durably. It is called once for a new store;
// later calls with the same epoch do nothing. Another INGEST id is taken on by
// [Store.GoBack] alone, together with the position in that INGEST. Returns [bus.ErrOtherBus] if the store belongs to a
// bus with another epoch.
func (s *Store) Adopt(ctx context.Context, b Bus) error {
	if b.Epoch == "" || b.IngestID == "" {
		return fmt.Errorf("adopt bus: %w", &bus.InvalidError{Field: "bus", Rule: "must have an epoch and an INGEST id"})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.head.Epoch == b.Epoch:
		return nil
	case s.head.Epoch != "" && s.head.Epoch != b.Epoch:
		return fmt.Errorf("adopt bus: %w: the store's epoch is %s, not %s", bus.ErrOtherBus, s.head.Epoch, b.Epoch)
	}
	h := s.head
	h.Bus = b
	if err := s.write(ctx, "adopt bus", h.write); err != nil {
		return err
	}
	s.head = h
	return nil
}

// Position returns how far the store has read, zero for a new one.
func (r *Reader) Position(ctx context.Context) (Position, error) {
	return view(ctx, r, "read position", func(ctx context.Context, t *tx) (Position, error) {
		h, err := readHead(ctx, t)
		return h.Position, err
	})
}

// Bounds of the marks.
const (
	// markEvery is the time of INGEST, ns, between two marks.
	markEvery = 60e9
	// markKeep is the time of INGEST, ns, for which marks are kept: 30 days, beyond
	// any keep window that the trim of INGEST may have.
	markKeep = 30 * 24 * 3600e9
)

// Mark is a message of INGEST that ended a commit. A stream that does not hold it
// any more was rolled back or made anew.
type Mark struct {
	Seq  uint64 // in INGEST
	Time int64  // its stored time, ns since 1970
	Hash projection.Hash
}

// Marks returns at most limit marks below the INGEST sequence, newest first: the last
// messages of commits, one a minute of INGEST's time where there was one, for 30 days.
// The newest commit's own message is [Position].
func (r *Reader) Marks(ctx context.Context, below uint64, limit int) ([]Mark, error) {
	return view(ctx, r, "read marks", func(ctx context.Context, t *tx) ([]Mark, error) {
		rows, err := t.query(ctx, sqlMarks, int64(min(below, bus.MaxSeq)), max(limit, 0))
		return collect(rows, err, scanMark)
	})
}

func scanMark(row scanner) (m Mark, err error) {
	var seq int64
	var hash []byte
	err = row.Scan(&seq, &m.Time, &hash)
	m.Seq = uint64(seq)
	copy(m.Hash[:], hash)
	return m, err
}

func newestMark(ctx context.Context, t *tx) (Mark, error) {
	m, err := scanMark(t.row(ctx, sqlMarks, int64(bus.MaxSeq), 1))
	if errors.Is(err, sql.ErrNoRows) {
		return Mark{}, nil
	}
	return m, err
}

// markPosition keeps the marks as the commit's position demands: none beyond it, and a new
// one if the newest is a minute old.
func (w *commit) markPosition(ctx context.Context, t *tx) error {
	p := &w.Position
	if p.IngestSeq < w.mark.Seq {
		// INGEST was rolled back, and is read again from here.
		if _, err := t.exec(ctx, sqlCutMarks, int64(p.IngestSeq)); err != nil {
			return err
		}
		var err error
		if w.mark, err = newestMark(ctx, t); err != nil {
			return err
		}
	}
	if p.IngestTime == 0 || p.IngestSeq == w.mark.Seq || w.mark.Seq != 0 && p.IngestTime-w.mark.Time < markEvery {
		return nil
	}
	w.mark = Mark{Seq: p.IngestSeq, Time: p.IngestTime, Hash: p.IngestHash}
	if _, err := t.exec(ctx, sqlAddMark, int64(p.IngestSeq), p.IngestTime, p.IngestHash[:]); err != nil {
		return err
	}
	_, err := t.exec(ctx, sqlDropMarks, p.IngestTime-markKeep)
	return err
}
