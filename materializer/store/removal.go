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
	Erase  bool // the message's bytes are to be overwritten
}

// Forgotten is a forgotten session.
type Forgotten struct {
	bus.Key
	Erase bool // its bytes are to be overwritten
}

// NextRemovals returns at most limit rows of forgotten sessions, one session after
// the other, the lowest number of each first; none if no such row is left. The caller
// deletes their messages from EVENTS, then calls [Store.Removed].
func (s *Store) NextRemovals(ctx context.Context, limit int) ([]RemovalItem, error) {
	return view(ctx, s.reader, "read removals", func(ctx context.Context, t *tx) ([]RemovalItem, error) {
		rows, err := t.query(ctx, sqlNextRemovals, max(limit, 0))
		return collect(rows, err, func(row scanner) (it RemovalItem, err error) {
			var seq, origin int64
			err = row.Scan(&seq, &it.Key.Workspace, &it.Key.Session, &it.Erase, &origin, &it.Origin.Time, &it.Origin.Index)
			it.Seq, it.Origin.Seq = uint64(seq), uint64(origin)
			return it, err
		})
	})
}

// NextForgotten returns a forgotten session of which EVENTS may hold messages although
// the table has no row of it: those whose rows were pruned before. It is asked when
// NextRemovals has none left; ok is false if nothing is left to do. The caller looks
// for the messages, deletes them, then calls [Store.EndRemoval].
func (s *Store) NextForgotten(ctx context.Context) (f Forgotten, ok bool, err error) {
	f, err = view(ctx, s.reader, "read forgotten sessions", func(ctx context.Context, t *tx) (f Forgotten, err error) {
		return f, t.row(ctx, sqlNextForgotten).Scan(&f.Workspace, &f.Session, &f.Erase)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Forgotten{}, false, nil
	}
	return f, err == nil, err
}

// Tombstones returns the keys of at most limit forgotten sessions after the one that next
// of the call before stands for, 0 for the first; next is 0 at the end.
func (r *Reader) Tombstones(ctx context.Context, after int64, limit int) (keys []bus.Key, next int64, err error) {
	keys, err = view(ctx, r, "read forgotten sessions", func(ctx context.Context, t *tx) ([]bus.Key, error) {
		rows, err := t.query(ctx, sqlTombstones, after, limit)
		return collect(rows, err, func(row scanner) (k bus.Key, err error) {
			err = row.Scan(&next, &k.Workspace, &k.Session)
			return k, err
		})
	})
	if len(keys) < limit {
		next = 0
	}
	return keys, next, err
}

// RemoveAgain has the messages of a forgotten session removed from EVENTS once more. It
// does nothing if the session was not forgotten.
func (s *Store) RemoveAgain(ctx context.Context, key bus.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(ctx, "remove again", sqlRemoveAgain, key.Session, key.Workspace)
}

// EndRemoval notes that nothing of the forgotten session is left in EVENTS. It does
// nothing if the table has rows of it again.
func (s *Store) EndRemoval(ctx context.Context, key bus.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(ctx, "end removal", sqlEndRemoval, key.Session, key.Workspace)
}

// Removed deletes the rows, whose messages are gone from EVENTS. Rows that are gone already are passed, and rows of sessions that are
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
