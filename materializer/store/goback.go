package store

import (
	"context"
	"fmt"
)

// maxStretches is how many stretches of INGEST are known as read before. Each stands
// for a time that somebody set INGEST back.
const maxStretches = 64

// Stretch is a part of INGEST that was read before the store went back from it. Its
// messages are those with a sequence up to LastSeq that were stored from FromTime to
// LastTime. Sequences alone do not tell: they are issued again after a rollback.
type Stretch struct {
	FromTime int64 // ns since 1970
	LastSeq  uint64
	LastTime int64 // ns since 1970
}

// Holds reports whether the message is one of the stretch: it was read before.
func (s *Stretch) Holds(seq uint64, time int64) bool {
	return seq <= s.LastSeq && s.FromTime <= time && time <= s.LastTime
}

// Move sets the store to another place in INGEST, since that is no longer the stream
// that was read.
type Move struct {
	// IngestID is the id of INGEST as it is now.
	IngestID string
	// To is the message behind which reading goes on. If its Time is 0, nothing is
	// known of what stands there, and no mark is kept.
	To Mark
	// Holes is how many sequences are passed without having been read.
	Holes int64
	// Entry tells the operator.
	Entry RejectWrite
}

// GoBack commits the move, in one transaction: the position in INGEST, the stretch that
// is left, so that messages without an identity are known when they are read again, and
// the entry. Rows and states stay as they are. Errors are those of [Store.Commit].
func (s *Store) GoBack(ctx context.Context, m *Move) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.head.Position
	stays := m.To.Time != 0 && m.To.Seq == left.IngestSeq && m.To.Time == left.IngestTime
	p := left
	p.IngestSeq, p.IngestTime, p.IngestHash = m.To.Seq, m.To.Time, m.To.Hash
	if !stays {
		p.Since = 0
	}
	w := commit{
		Commit: &Commit{Position: p, Rejects: []RejectWrite{m.Entry}, Counters: Counters{Holes: m.Holes}},
		store:  s, head: s.head, mark: s.mark,
	}
	w.head.IngestID = m.IngestID
	err := s.write(ctx, "go back in INGEST", func(ctx context.Context, t *tx) (err error) {
		if !stays && left.Since != 0 {
			if _, err := t.exec(ctx, sqlAddStretch, left.Since, int64(left.IngestSeq), left.IngestTime, int64(m.To.Seq)); err != nil {
				return fmt.Errorf("keep the stretch that is left: %w", err)
			}
			if _, err := t.exec(ctx, sqlDropStretches, maxStretches); err != nil {
				return fmt.Errorf("drop old stretches: %w", err)
			}
		}
		keep := int64(m.To.Seq)
		if m.To.Time == 0 {
			keep = 0
		}
		if _, err = t.exec(ctx, sqlCutMarks, keep); err != nil {
			return fmt.Errorf("cut marks: %w", err)
		}
		if w.mark, err = newestMark(ctx, t); err != nil {
			return fmt.Errorf("read the newest mark: %w", err)
		}
		if err := w.leaveRejects(ctx, t); err != nil {
			return err
		}
		return w.movePosition(ctx, t)
	})
	if err == nil {
		s.head, s.mark = w.head, w.mark
	}
	return err
}

// Stretches returns what was read of INGEST before the store went back, oldest first.
func (r *Reader) Stretches(ctx context.Context) ([]Stretch, error) {
	return view(ctx, r, "read stretches", func(ctx context.Context, t *tx) ([]Stretch, error) {
		rows, err := t.query(ctx, sqlStretches)
		return collect(rows, err, func(row scanner) (s Stretch, err error) {
			var last int64
			err = row.Scan(&s.FromTime, &last, &s.LastTime)
			s.LastSeq = uint64(last)
			return s, err
		})
	})
}

// Message is one of INGEST's, told from others that stood under its sequence.
type Message struct {
	Seq  uint64
	Time int64 // its stored time, ns since 1970
}

// RejectedMessages returns the messages from and to, and between, that left an entry,
// be it discarded; those whose subject names no class are left out.
func (r *Reader) RejectedMessages(ctx context.Context, from, to uint64) (map[Message]bool, error) {
	return view(ctx, r, "read rejected messages", func(ctx context.Context, t *tx) (map[Message]bool, error) {
		rows, err := t.query(ctx, sqlRejectedMessages, int64(from), int64(to))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		all := map[Message]bool{}
		for rows.Next() {
			var m Message
			var seq int64
			if err := rows.Scan(&seq, &m.Time); err != nil {
				return nil, err
			}
			m.Seq = uint64(seq)
			all[m] = true
		}
		return all, rows.Err()
	})
}

// Irregular says which irregularities of INGEST no operator has acknowledged yet, by
// discarding their entries.
type Irregular struct {
	Entries int64
	Newest  int64  // the id of the newest entry; 0 if there is none
	Detail  string // of the newest entry
}

// Irregular returns what is to be acknowledged: holes, rollbacks and recreations of
// INGEST.
func (r *Reader) Irregular(ctx context.Context) (Irregular, error) {
	return view(ctx, r, "read irregularities", func(ctx context.Context, t *tx) (i Irregular, err error) {
		err = t.row(ctx, sqlIrregular).Scan(&i.Entries, &i.Newest, &i.Detail)
		return i, err
	})
}
