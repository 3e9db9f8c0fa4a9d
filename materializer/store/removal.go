package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// freeKeep is how many free pages of 4 KiB stay in the file for rows to come: giving
// them back at once would shrink and grow a file from which old rows leave as new
// ones come.
const freeKeep = 4096

// RemovalItem is a row of a forgotten session that is still to be removed.
type RemovalItem struct {
	Seq    uint64
	Key    bus.Key
	Origin bus.Origin
}

// NextRemovals returns at most limit rows of forgotten sessions, one session after
// the other, the lowest number of each first; none if nothing is left to do. The
// caller deletes their messages from EVENTS, then calls [Store.Removed].
func (s *Store) NextRemovals(ctx context.Context, limit int) ([]RemovalItem, error) {
	return view(ctx, s.reader, "read removals", func(ctx context.Context, t *tx) ([]RemovalItem, error) {
		rows, err := t.query(ctx, sqlNextRemovals, max(limit, 0))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var items []RemovalItem
		for rows.Next() {
			var it RemovalItem
			var seq, origin int64
			if err := rows.Scan(&seq, &it.Key.Workspace, &it.Key.Session, &origin, &it.Origin.Time, &it.Origin.Index); err != nil {
				return nil, err
			}
			it.Seq, it.Origin.Seq = uint64(seq), uint64(origin)
			items = append(items, it)
		}
		return items, rows.Err()
	})
}

// Removed deletes the rows, whose messages are gone from EVENTS; a session with none
// left is done. Rows that are gone already are passed, and rows of sessions that are
// not forgotten stay. It gives space that has become free back to the file system,
// a little at each call.
func (s *Store) Removed(ctx context.Context, seqs []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(ctx, "remove rows", func(ctx context.Context, t *tx) error {
		removed := map[int64]int64{} // rows by session
		for _, seq := range seqs {
			var pk int64
			err := t.row(ctx, sqlRemovalSession, int64(seq)).Scan(&pk)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err == nil {
				_, err = t.exec(ctx, sqlDeleteEvent, int64(seq))
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", seq, err)
			}
			removed[pk]++
		}
		for pk, n := range removed {
			if _, err := t.exec(ctx, sqlCountRemovals, pk, -n); err != nil {
				return err
			}
			if _, err := t.exec(ctx, sqlEndRemoval, pk); err != nil {
				return err
			}
		}
		return giveBack(ctx, t)
	})
}

// giveBack returns free pages to the file system, as the file was made for.
func giveBack(ctx context.Context, t *tx) error {
	var free int64
	if err := t.row(ctx, sqlFreePages).Scan(&free); err != nil {
		return fmt.Errorf("count free pages: %w", err)
	}
	if free <= freeKeep {
		return nil
	}
	if _, err := t.exec(ctx, sqlGiveBack); err != nil {
		return fmt.Errorf("give back free pages: %w", err)
	}
	return nil
}
