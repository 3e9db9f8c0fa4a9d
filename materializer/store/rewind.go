package store

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// Rewind takes the table back to a number and makes it one of a bus's, in one
// transaction that is durable when it returns: rows above the number go, the
// position's EventsSeq becomes it if it was higher, and everything that is counted
// (the sessions' first, last and number of rows and of held pages, status' numbers)
// is counted anew from what is there. The sessions' states and the INGEST position
// stay, so that the materializer takes from EVENTS what comes after, as it does after
// a crash. It is for repairs alone: what it does to numbers, readers only notice by a
// new epoch, and no one else may have the store open for writing.
func (s *Store) Rewind(ctx context.Context, to uint64, b Bus) error {
	if b.Epoch == "" {
		return fmt.Errorf("rewind: %w", &bus.InvalidError{Field: "bus", Rule: "must have an epoch"})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.head
	h.Bus = b
	h.EventsSeq = min(h.EventsSeq, to)
	h.oldest = min(h.oldest, h.EventsSeq+1)
	err := s.write(ctx, "rewind", func(ctx context.Context, t *tx) error {
		if _, err := t.ExecContext(ctx, rewindEvents, int64(min(to, bus.MaxSeq))); err != nil {
			return fmt.Errorf("delete rows above %d: %w", to, err)
		}
		for _, text := range []string{recountRows, recountPages, resetRemovals, queueRemovals, queueErasures} {
			if _, err := t.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("count anew: %w", err)
			}
		}
		if err := t.QueryRowContext(ctx, recountedHeads).Scan(&h.sessions, &h.held, &h.rejects, &h.rejectBytes); err != nil {
			return fmt.Errorf("count anew: %w", err)
		}
		return h.write(ctx, t)
	})
	if err != nil {
		return err
	}
	s.head, s.cache = h, sessionCache{}
	s.pruned = min(s.pruned, h.EventsSeq)
	return nil
}
