package store_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// An id is known in its session, within the horizon; applied again after it, it counts
// from then, with its new hash.
func TestKnownID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	remember := func(key bus.Key, id string, hash byte, applied int64) {
		t.Helper()
		commit(t, s, &store.Commit{Position: position(t, s), IDs: []store.ID{{Key: key, EventID: id, Hash: projection.Hash{hash}, AppliedTime: applied, IngestSeq: 1}}})
	}
	known := func(key bus.Key, id string, notBefore int64) byte {
		t.Helper()
		h, ok, err := s.Reader().KnownID(t.Context(), key, id, notBefore)
		require.NoError(t, err)
		require.Equal(t, ok, h != projection.Hash{})
		// Asked for among others, it is the same.
		asked := store.IDKey{Key: key, EventID: id}
		many, err := s.Reader().KnownIDs(t.Context(), []store.IDKey{{Key: beta, EventID: "none"}, asked, asked}, notBefore)
		require.NoError(t, err)
		require.Equal(t, h, many[asked].Hash)
		require.Equal(t, ok, len(many) == 1)
		return h[0]
	}
	require.Zero(t, known(alpha, "a", 0))
	remember(alpha, "a", 1, 100)
	remember(gamma, "a", 2, 200)
	require.EqualValues(t, 1, known(alpha, "a", 100))
	require.Zero(t, known(alpha, "a", 101))
	require.EqualValues(t, 2, known(gamma, "a", 101))
	require.Zero(t, known(beta, "a", 0))
	require.Zero(t, known(alpha, "A", 0))
	remember(alpha, "a", 3, 300)
	require.EqualValues(t, 3, known(alpha, "a", 300))
	forget(t, s, alpha)
	require.Zero(t, known(alpha, "a", 0), "a forgotten session knows none")
	remember(alpha, "b", 4, 400)
	require.Zero(t, known(alpha, "b", 0))
	require.Zero(t, number(t, raw(t, path), "SELECT count(*) FROM ids WHERE event_id = 'b'"), "and is taught none")
	require.EqualValues(t, 2, known(gamma, "a", 0))
}

// A sweep goes through all ids in steps, deletes the expired and those of forgotten
// sessions, and no other.
func TestSweepIDs(t *testing.T) {
	s := open(t)
	keys := []bus.Key{alpha, beta, gamma}
	const ids = 300
	c := store.Commit{Position: at(1, 1)}
	for i := range ids {
		c.IDs = append(c.IDs, store.ID{Key: keys[i%3], EventID: fmt.Sprint(i / 3), Hash: projection.Hash{1}, AppliedTime: int64(i)})
	}
	commit(t, s, &c)
	forget(t, s, beta)
	sweep := func(limit int, notBefore int64) (steps, deleted int) {
		var cur store.SweepCursor
		for {
			next, n, err := s.SweepIDs(t.Context(), cur, limit, notBefore)
			require.NoError(t, err)
			require.LessOrEqual(t, n, limit)
			steps, deleted = steps+1, deleted+n
			if next == (store.SweepCursor{}) {
				return steps, deleted
			}
			require.NotEqual(t, cur, next)
			cur = next
		}
	}
	steps, deleted := sweep(7, 0)
	require.Equal(t, ids/3, deleted)
	require.Equal(t, (ids+6)/7, steps)
	_, deleted = sweep(7, 0)
	require.Zero(t, deleted)
	_, deleted = sweep(10, 150)
	require.Equal(t, 100, deleted)
	for i := range ids {
		_, ok, err := s.Reader().KnownID(t.Context(), keys[i%3], fmt.Sprint(i/3), 0)
		require.NoError(t, err)
		require.Equal(t, i >= 150 && i%3 != 1, ok, "id %d", i)
	}
	_, deleted = sweep(1000, 1e9)
	require.Equal(t, 100, deleted)
}
