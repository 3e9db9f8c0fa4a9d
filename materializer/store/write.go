package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"unsafe"

	"github.com/skaldbus/skald/bus"
)

// Row is one fact with its origin, as EVENTS carries it.
type Row struct {
	Seq        uint64 // its number: the sequence in EVENTS
	Key        bus.Key
	Type       string
	RecordedAt int64 // ms, the worker's clock
	Origin     bus.Origin
	Source     bus.Source
	Trace      string // W3C trace context, "" if none
	Data       []byte // one compact JSON object
}

// Commit is what changes together: everything that a run of INGEST messages and of
// EVENTS numbers led to. The store keeps no slice of it.
type Commit struct {
	// Position is how far the store has read with this commit. IngestSeq may go
	// down, when INGEST was rolled back; EventsSeq may not.
	Position Position

	// Rows are new facts, numbered upwards, above the position's EventsSeq before
	// this commit and up to its new one. A row of an unknown session makes that
	// session; a row of a forgotten one is kept from readers and waits for removal.
	Rows []Row

	Sessions []SessionWrite // one a session at most
	IDs      []ID           // event ids to remember; an id that is known is taken anew
	Rejects  []RejectWrite  // what the operator has to look at
	Discards []bus.EntryRef // entries that an operator has dealt with
	Held     []HeldWrite    // in this order
	Counters Counters       // added to those so far

	// PruneBefore raises oldest_seq to it, at most to the number after EventsSeq.
	// 0 leaves it, and it never goes down.
	PruneBefore uint64
}

// commit is a Commit while it runs: what it makes of the store stands here until
// the transaction is durable.
type commit struct {
	*Commit
	store    *Store
	head     head
	mark     Mark
	changes  []*sessionChange
	ofRow    []*sessionChange // those of the rows, in their order
	byKey    map[bus.Key]*sessionChange
	sessions map[bus.Key]session // rows of sessions as this commit leaves them
}

// Commit writes c in one transaction, which is durable when it returns without an
// error. With an error nothing of it is there, and the same commit may be tried
// again: [ErrBusy] and [ErrFull] pass by themselves, [ErrCorrupt], [ErrReadOnly] and
// [ErrBadCommit] do not.
func (s *Store) Commit(ctx context.Context, c *Commit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := commit{Commit: c, store: s, head: s.head, mark: s.mark, sessions: map[bus.Key]session{}}
	if err := errors.Join(w.checkOrder(), w.group()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := s.write(ctx, "commit", w.run); err != nil {
		return err
	}
	s.head, s.mark = w.head, w.mark
	for key, row := range w.sessions {
		s.cache.put(key, row)
	}
	return nil
}

// write runs fn in one immediate transaction. The caller holds s.mu.
func (s *Store) write(ctx context.Context, doing string, fn func(context.Context, *tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	// A context that ends in the middle makes SQLite roll the transaction back, and
	// the statements after it would run and be durable each on its own.
	ctx = context.WithoutCancel(ctx)
	t, err := s.writer.begin(ctx, false)
	if err != nil {
		return wrap(doing, err)
	}
	// After a full disk SQLite has rolled back already, and says so here; after
	// Commit there is nothing to roll back.
	defer t.Rollback()
	if err := fn(ctx, t); err != nil {
		return wrap(doing, err)
	}
	if err := t.Commit(); err != nil {
		return wrap(doing, err)
	}
	return nil
}

// exec runs one statement as a transaction of its own. The caller holds s.mu.
func (s *Store) exec(ctx context.Context, doing, text string, args ...any) error {
	return s.write(ctx, doing, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, text, args...)
		return err
	})
}

// checkOrder refuses numbers by which a row could appear behind a reader's cursor.
func (w *commit) checkOrder() error {
	last, end := w.head.EventsSeq, w.Position.EventsSeq
	if end < last || end > bus.MaxSeq {
		return fmt.Errorf("%w: EVENTS' number is %d, and would become %d", ErrBadCommit, last, end)
	}
	for i := range w.Rows {
		if seq := w.Rows[i].Seq; seq <= last || seq > end {
			return fmt.Errorf("%w: row %d follows number %d in a commit up to %d", ErrBadCommit, seq, last, end)
		}
		last = w.Rows[i].Seq
	}
	return nil
}

func (w *commit) run(ctx context.Context, t *tx) error {
	for _, part := range []func(context.Context, *tx) error{
		w.saveSessions, w.insertRows, w.rememberIDs, w.leaveRejects, w.discardRejects, w.holdPages, w.markPosition, w.movePosition,
	} {
		if err := part(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (w *commit) insertRows(ctx context.Context, t *tx) error {
	err := t.execEach(ctx, sqlInsertEvent, 10, len(w.Rows), func(i int, v []driver.NamedValue) {
		r := &w.Rows[i]
		v[0].Value = int64(r.Seq)
		v[1].Value = w.ofRow[i].row.pk
		if last, _ := v[2].Value.(string); last != r.Type || i == 0 {
			v[2].Value = r.Type
		}
		v[3].Value = r.RecordedAt
		v[4].Value = int64(r.Origin.Seq)
		v[5].Value = r.Origin.Time
		v[6].Value = int64(r.Origin.Index)
		v[7].Value = r.Source.String()
		v[8].Value = nil
		if r.Trace != "" {
			v[8].Value = r.Trace
		}
		// The driver copies it, so that a copy in a string would be a second one.
		v[9].Value = unsafe.String(unsafe.SliceData(r.Data), len(r.Data))
	})
	if err != nil {
		return fmt.Errorf("insert rows after %d: %w", w.head.EventsSeq, err)
	}
	return nil
}

func (w *commit) movePosition(ctx context.Context, t *tx) error {
	w.head.Position = w.Position
	w.head.Counters.add(w.Counters)
	w.head.oldest = max(w.head.oldest, min(w.PruneBefore, w.Position.EventsSeq+1))
	return w.head.write(ctx, t)
}
