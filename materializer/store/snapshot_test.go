package store_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// snapshot takes one into a new directory.
func snapshot(t testing.TB, r *store.Reader, idsAfter uint64) (store.Snapshot, store.SnapshotOptions) {
	t.Helper()
	dir := t.TempDir()
	o := store.SnapshotOptions{Path: filepath.Join(dir, "state"), IDs: filepath.Join(dir, "ids"), IDsAfter: idsAfter}
	s, err := r.Snapshot(t.Context(), o)
	require.NoError(t, err)
	return s, o
}

// busy makes a store with something of everything.
func busy(t testing.TB) *store.Store {
	t.Helper()
	s := open(t)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	for seq := uint64(1); seq <= 20; seq++ {
		key := []bus.Key{alpha, beta, gamma}[seq%3]
		st := &projection.State{Exists: true}
		st.Chain.Position = bus.ChainPosition{Ordinal: seq}
		chain, publishers, view := state(t, st)
		at := int64(seq)
		commit(t, s, &store.Commit{
			Position: at20(seq), Rows: []store.Row{row(seq, key, "error")},
			Sessions: []store.SessionWrite{{Key: key, Exists: true, LastActivityAt: &at, HeldPages: 1, Chain: chain, Publishers: publishers, View: view}},
			IDs:      []store.ID{{Key: key, EventID: fmt.Sprint("id", seq), AppliedTime: int64(seq) * 1e9, IngestSeq: seq * 60}},
			Rejects:  []store.RejectWrite{reject(seq*60, &key, []byte("payload"), bus.Identity{EventID: fmt.Sprint("r", seq)})},
			Held:     []store.HeldWrite{{Key: key, Page: &projection.HeldPage{HeldKey: projection.HeldKey{First: seq}, Body: []byte("{}")}}},
			Counters: store.Counters{Applied: 1, Holes: 2},
		})
	}
	return s
}

// at20 is a position whose messages are a minute apart, so that each leaves a mark.
func at20(seq uint64) store.Position { return at(seq*60, seq) }

// rowsOf are the whole rows of a store.
func rowsOf(t testing.TB, s *store.Store) []store.Row {
	t.Helper()
	rows, err := s.Reader().Rows(t.Context(), 0, 1000, 1<<30)
	require.NoError(t, err)
	return rows
}

// everything is what readers see beside the rows.
func everything(t testing.TB, s *store.Store) map[string]any {
	t.Helper()
	r := s.Reader()
	all := map[string]any{"status": status(t, r)}
	sessions, err := r.Sessions(t.Context(), store.SessionsQuery{Limit: 100})
	require.NoError(t, err)
	var texts []string
	for i := range sessions.Sessions {
		texts = append(texts, string(sessions.Sessions[i]))
	}
	slices.Sort(texts) // they are listed as they appeared in each store
	all["sessions"] = texts
	for _, k := range []bus.Key{alpha, beta, gamma} {
		st, err := r.LoadState(t.Context(), k)
		require.NoError(t, err)
		all["state "+k.Workspace+k.Session] = st
		for i := range 21 {
			hash, known, err := r.KnownID(t.Context(), k, fmt.Sprint("id", i), 0)
			require.NoError(t, err)
			if known {
				all[fmt.Sprint("id ", i, k)] = hash
			}
		}
	}
	rejects, err := r.Rejects(t.Context(), store.RejectsQuery{Limit: 1000})
	require.NoError(t, err)
	all["rejects"] = rejects
	marks, err := r.Marks(t.Context(), bus.MaxSeq, 1000)
	require.NoError(t, err)
	all["marks"] = marks
	return all
}

// A new store that has the rows becomes what the other one is, in all that readers and
// the projection see.
func TestTake_NewStore(t *testing.T) {
	t.Parallel()
	from := busy(t)
	forget(t, from, beta)
	got, o := snapshot(t, from.Reader(), 0)
	id, err := from.Reader().ID(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, got.StoreID)
	require.Equal(t, at20(20), got.Position)
	require.Equal(t, store.Bus{Epoch: "e", IngestID: "i"}, got.Bus)
	require.EqualValues(t, 13, got.IDs, "those of the forgotten session are left out")
	require.EqualValues(t, int64(20e9), got.NewestID)
	again, err := store.AddIDs(t.Context(), o.Path, 0, o.IDs)
	require.NoError(t, err)
	require.Equal(t, got.Position, again.Position)

	to := open(t)
	require.NoError(t, to.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	commit(t, to, &store.Commit{Position: store.Position{EventsSeq: 20}, Rows: rowsOf(t, from)})
	require.NoError(t, to.Take(t.Context(), o.Path))
	want, have := everything(t, from), everything(t, to)
	// What is still to be removed is each store's own.
	ws, hs := want["status"].(store.Status), have["status"].(store.Status)
	require.EqualValues(t, 7, ws.Removals)
	ws.Removals, hs.Removals = 0, 0
	want["status"], have["status"] = ws, hs
	require.Equal(t, want, have)
	require.Equal(t, rowsOf(t, from), rowsOf(t, to))

	other, err := to.Reader().ID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, id, other, "each store has an id of its own")
	// It goes on like any other.
	put2 := row(21, gamma, "error")
	for _, s := range []*store.Store{from, to} {
		commit(t, s, &store.Commit{Position: at20(21), Rows: []store.Row{put2}, Rejects: []store.RejectWrite{reject(21, &gamma, nil, bus.Identity{})}})
	}
	require.Equal(t, everything(t, from)["rejects"], everything(t, to)["rejects"])
	require.Equal(t, everything(t, from)["sessions"], everything(t, to)["sessions"])
}

// A store that lags keeps its own keys and entries, and rows of a session that is
// forgotten by now wait for removal.
func TestTake_BehindStore(t *testing.T) {
	t.Parallel()
	from := busy(t)
	forget(t, from, beta)
	_, o := snapshot(t, from.Reader(), 0)
	_, err := store.AddIDs(t.Context(), o.Path, 0, o.IDs)
	require.NoError(t, err)

	to := open(t)
	require.NoError(t, to.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	// Keys in another order, and an entry of its own.
	commit(t, to, &store.Commit{Position: at(60, 1), Rows: []store.Row{row(1, beta, "error")}, Sessions: []store.SessionWrite{{Key: gamma, Exists: true}},
		Rejects: []store.RejectWrite{reject(60, &gamma, []byte("own"), bus.Identity{})}})
	rows := rowsOf(t, from)
	require.NoError(t, to.Commit(t.Context(), &store.Commit{Position: at(60, 20), Rows: rows}))
	require.NoError(t, to.Take(t.Context(), o.Path))

	st := status(t, to.Reader())
	require.Equal(t, at20(20), st.Position)
	require.EqualValues(t, 2, st.Sessions)
	require.EqualValues(t, 1, st.Removals, "the row of the forgotten session that this store had")
	items, err := to.NextRemovals(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, items, 1)
	for _, k := range []bus.Key{alpha, beta, gamma} {
		want, err := from.Reader().LoadState(t.Context(), k)
		require.NoError(t, err)
		have, err := to.Reader().LoadState(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	list := everything(t, to)["rejects"].([]store.Reject)
	require.Len(t, list, 1+13, "its own up to its position, the snapshot's after it, none of the forgotten session")
}

// A session that has other rows than it counts is named, and nothing is changed.
func TestTake_RowsMissing(t *testing.T) {
	t.Parallel()
	from := busy(t)
	_, o := snapshot(t, from.Reader(), 0)
	for name, leave := range map[string]func([]store.Row) []store.Row{
		"one is missing": func(r []store.Row) []store.Row { return append(r[:4:4], r[5:]...) },
		"one too many":   func(r []store.Row) []store.Row { r[4].Key = bus.Key{Workspace: "w", Session: "unknown"}; return r },
	} {
		t.Run(name, func(t *testing.T) {
			to := open(t)
			require.NoError(t, to.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
			commit(t, to, &store.Commit{Position: store.Position{EventsSeq: 20}, Rows: leave(rowsOf(t, from))})
			before := everything(t, to)
			err := to.Take(t.Context(), o.Path)
			require.ErrorIs(t, err, store.ErrRowsMissing)
			require.ErrorContains(t, err, `session "`+gamma.Session+`" of workspace "`+gamma.Workspace+`" counts 7 rows and has 6`)
			require.Equal(t, before, everything(t, to))
			// It stays usable.
			commit(t, to, &store.Commit{Position: store.Position{EventsSeq: 21}, Rows: []store.Row{row(21, alpha, "error")}})
			require.ErrorIs(t, to.Take(t.Context(), o.Path), store.ErrBadCommit)
		})
	}
	other := open(t)
	require.NoError(t, other.Adopt(t.Context(), store.Bus{Epoch: "another", IngestID: "i"}))
	require.ErrorIs(t, other.Take(t.Context(), o.Path), bus.ErrOtherBus)
}

// Rows that a prune has still to delete are no part of what is counted.
func TestTake_Pruned(t *testing.T) {
	t.Parallel()
	from := busy(t)
	commit(t, from, &store.Commit{Position: at20(20), PruneBefore: 11})
	_, err := from.PruneStep(t.Context(), 4)
	require.NoError(t, err)
	_, o := snapshot(t, from.Reader(), 0)
	all := rowsOf(t, from)
	to := open(t)
	require.NoError(t, to.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	commit(t, to, &store.Commit{Position: store.Position{EventsSeq: 20}, Rows: all[3:]}) // from 8 on
	require.NoError(t, to.Take(t.Context(), o.Path))
	for _, s := range []*store.Store{from, to} {
		for {
			n, err := s.PruneStep(t.Context(), 100)
			require.NoError(t, err)
			if n == 0 {
				break
			}
		}
	}
	require.Equal(t, everything(t, from)["sessions"], everything(t, to)["sessions"])
	require.EqualValues(t, 11, status(t, to.Reader()).Oldest)
}

// Increments of event ids add up to what the store knows; expired ones stay out.
func TestAddIDs(t *testing.T) {
	t.Parallel()
	s := busy(t)
	first, one := snapshot(t, s.Reader(), 0)
	commit(t, s, &store.Commit{Position: at20(21), IDs: []store.ID{
		{Key: alpha, EventID: "id3", Hash: projection.Hash{9}, AppliedTime: 21e9, IngestSeq: 21 * 60},
		{Key: beta, EventID: "id3", AppliedTime: 21e9, IngestSeq: 21 * 60},
	}})
	second, two := snapshot(t, s.Reader(), first.IngestSeq)
	require.EqualValues(t, 20, first.IDs)
	require.EqualValues(t, 2, second.IDs)
	_, err := store.AddIDs(t.Context(), two.Path, 5e9, one.IDs, two.IDs)
	require.NoError(t, err)
	r, err := store.OpenReader(two.Path)
	require.NoError(t, err)
	defer r.Close()
	for i := 1; i <= 20; i++ {
		k := []bus.Key{alpha, beta, gamma}[i%3]
		hash, known, err := r.KnownID(t.Context(), k, fmt.Sprint("id", i), 0)
		require.NoError(t, err)
		require.Equal(t, i >= 5 || i == 3, known, i)
		if i == 3 {
			require.Equal(t, projection.Hash{9}, hash)
		}
	}
}

// A copy of a store can be told to be one of its own.
func TestNewID(t *testing.T) {
	t.Parallel()
	s := open(t)
	one, err := s.Reader().ID(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{16}$`, one)
	require.NoError(t, s.NewID(t.Context()))
	two, err := s.Reader().ID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, one, two)
}

// A file of the schema before stores had ids gets one, and keeps what it holds.
func TestOpen_GivesOlderFilesAnID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	require.NoError(t, s.Close())
	change(t, path, "DROP TABLE replica; DROP TABLE erasures; DROP INDEX sessions_forgotten; ALTER TABLE sessions DROP COLUMN erase_seq; PRAGMA user_version = 2")
	s = openAt(t, path)
	id, err := s.Reader().ID(t.Context())
	require.NoError(t, err)
	require.Len(t, id, 16)
	require.Len(t, rowsOf(t, s), 1)
	require.NoError(t, s.Close())
	again, err := openAt(t, path).Reader().ID(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, again)
}
