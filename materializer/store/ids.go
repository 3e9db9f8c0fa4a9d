package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// ID is an event id that was applied.
type ID struct {
	Key         bus.Key
	EventID     string
	Hash        projection.Hash // of the message
	AppliedTime int64           // the position's HighestTime then, ns since 1970
	IngestSeq   uint64          // of the message
}

func (w *commit) rememberIDs(ctx context.Context, t *tx) error {
	type kept struct {
		id      *ID
		session int64
	}
	keep := make([]kept, 0, len(w.IDs))
	for i := range w.IDs {
		row, err := w.anySession(ctx, t, w.IDs[i].Key)
		if err != nil {
			return fmt.Errorf("remember event id: %w", err)
		}
		if !row.forgotten {
			keep = append(keep, kept{&w.IDs[i], row.pk})
		}
	}
	err := t.execEach(ctx, sqlRememberID, 5, len(keep), func(i int, v []driver.NamedValue) {
		id := keep[i].id
		v[0].Value = id.EventID
		v[1].Value = keep[i].session
		v[2].Value = id.Hash[:]
		v[3].Value = id.AppliedTime
		v[4].Value = int64(id.IngestSeq)
	})
	if err != nil {
		return fmt.Errorf("remember event ids: %w", err)
	}
	return nil
}

// KnownID returns the hash of the message by which the event id was applied in the
// session, and false if it was not, or not at notBefore or later (ns since 1970, by
// [ID].AppliedTime). A forgotten session knows no ids.
func (r *Reader) KnownID(ctx context.Context, key bus.Key, eventID string, notBefore int64) (projection.Hash, bool, error) {
	type known struct {
		hash projection.Hash
		ok   bool
	}
	k, err := view(ctx, r, "look up event id", func(ctx context.Context, t *tx) (k known, err error) {
		var hash []byte
		err = t.row(ctx, sqlKnownID, eventID, key.Session, key.Workspace, notBefore).Scan(&hash)
		if errors.Is(err, sql.ErrNoRows) {
			return known{}, nil
		}
		copy(k.hash[:], hash)
		k.ok = err == nil
		return k, err
	})
	return k.hash, k.ok, err
}

// SweepCursor is how far a sweep of the event ids has come. The zero value is the
// beginning.
type SweepCursor struct {
	eventID string
	session int64
}

// SweepIDs looks at the next limit event ids after the cursor and deletes those that
// were applied before notBefore (ns since 1970) and those of forgotten sessions. It
// returns where to go on, the zero cursor once the end is reached, and how many it
// deleted.
func (s *Store) SweepIDs(ctx context.Context, after SweepCursor, limit int, notBefore int64) (SweepCursor, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next SweepCursor
	deleted := 0
	err := s.write(ctx, "sweep event ids", func(ctx context.Context, t *tx) error {
		gone, last, err := expired(ctx, t, after, max(limit, 1), notBefore)
		if err != nil {
			return err
		}
		for _, id := range gone {
			if _, err := t.exec(ctx, sqlDropID, id.eventID, id.session); err != nil {
				return err
			}
		}
		next, deleted = last, len(gone)
		return nil
	})
	if err != nil {
		return after, 0, err
	}
	return next, deleted, nil
}

// expired returns the ids to delete among the next limit ones, and the last one looked
// at, zero if there were fewer.
func expired(ctx context.Context, t *tx, after SweepCursor, limit int, notBefore int64) (gone []SweepCursor, last SweepCursor, err error) {
	rows, err := t.query(ctx, sqlSweepIDs, after.eventID, after.session, limit)
	if err != nil {
		return nil, last, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var applied int64
		var forgotten bool
		if err := rows.Scan(&last.eventID, &last.session, &applied, &forgotten); err != nil {
			return nil, last, err
		}
		n++
		if forgotten || applied < notBefore {
			gone = append(gone, last)
		}
	}
	if n < limit {
		last = SweepCursor{}
	}
	return gone, last, rows.Err()
}
