package store

import (
	"context"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// IDKey names an event id: it is the session's own.
type IDKey struct {
	Key     bus.Key
	EventID string
}

// KnownID is what is known of an event id.
type KnownID struct {
	Hash        projection.Hash
	AppliedTime int64 // as [ID].AppliedTime, ns since 1970
}

// KnownIDs is [Reader.KnownID] for many at once, in one snapshot and one statement:
// it returns those of the given ids that are known.
func (r *Reader) KnownIDs(ctx context.Context, ids []IDKey, notBefore int64) (map[IDKey]KnownID, error) {
	asked := make(map[IDKey]bool, len(ids))
	list := make([]byte, 0, 48*len(ids))
	for _, id := range ids {
		if asked[id] {
			continue
		}
		if asked[id] = true; len(list) > 0 {
			list = append(list, ',')
		}
		list = bus.AppendQuoted(list, id.EventID)
	}
	return view(ctx, r, "look up event ids", func(ctx context.Context, t *tx) (map[IDKey]KnownID, error) {
		rows, err := t.query(ctx, sqlKnownIDs, "["+string(list)+"]", notBefore)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		known := map[IDKey]KnownID{}
		for rows.Next() {
			var id IDKey
			var k KnownID
			var hash []byte
			if err := rows.Scan(&id.Key.Workspace, &id.Key.Session, &id.EventID, &hash, &k.AppliedTime); err != nil {
				return nil, err
			}
			// Another session may have used the same id.
			if asked[id] {
				copy(k.Hash[:], hash)
				known[id] = k
			}
		}
		return known, rows.Err()
	})
}
