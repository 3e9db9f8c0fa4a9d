package store

import "context"

// Status is a store's own part of what status shows; what the streams hold beyond it
// is asked from them.
type Status struct {
	Bus
	Position
	Counters
	Oldest      uint64 // the lowest number that was not pruned
	Sessions    int64  // that readers see
	Held        int64  // pages held now
	Rejects     int64  // entries not discarded
	RejectBytes int64  // of their payloads
	Removals    int64  // rows of forgotten sessions that are still to be removed
	Erasures    int64  // forgotten sessions whose bytes are still to be overwritten
}

// Status returns all numbers in one snapshot.
func (r *Reader) Status(ctx context.Context) (Status, error) {
	return view(ctx, r, "read status", func(ctx context.Context, t *tx) (Status, error) {
		h, err := readHead(ctx, t)
		if err != nil {
			return Status{}, err
		}
		s := Status{
			Bus: h.Bus, Position: h.Position, Counters: h.Counters,
			Oldest: h.oldest, Sessions: h.sessions, Held: h.held, Rejects: h.rejects, RejectBytes: h.rejectBytes,
		}
		if err := t.row(ctx, sqlPendingRemovals).Scan(&s.Removals); err != nil {
			return s, err
		}
		var uncut int64
		return s, t.row(ctx, sqlCountErasures).Scan(&s.Erasures, &uncut)
	})
}
