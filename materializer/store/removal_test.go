package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// drain takes all pending removals in steps and returns their numbers.
func drain(t *testing.T, s *store.Store, limit int) (removed []uint64) {
	t.Helper()
	for {
		items, err := s.NextRemovals(t.Context(), limit)
		require.NoError(t, err)
		if len(items) == 0 {
			endRemovals(t, s)
			return removed
		}
		require.LessOrEqual(t, len(items), limit)
		var step []uint64
		for _, it := range items {
			step = append(step, it.Seq)
		}
		require.NoError(t, s.Removed(t.Context(), step))
		removed = append(removed, step...)
	}
}

// endRemovals says of all forgotten sessions that EVENTS holds nothing of them.
func endRemovals(t require.TestingT, s *store.Store) {
	for {
		f, ok, err := s.NextForgotten(context.Background())
		require.NoError(t, err)
		if !ok {
			return
		}
		require.NoError(t, s.EndRemoval(context.Background(), f.Key))
	}
}

// A forgotten session is pending until its messages in EVENTS are gone too, though all
// its rows were pruned before; rows that come meanwhile keep it so.
func TestForget_PrunedBefore(t *testing.T) {
	s := open(t)
	put(t, s, row(1, alpha, "error"))
	commit(t, s, &store.Commit{Position: at(2, 1), PruneBefore: 2})
	_, err := s.PruneStep(t.Context(), 10)
	require.NoError(t, err)
	_, ok, err := s.NextForgotten(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	forget(t, s, alpha)
	items, err := s.NextRemovals(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, items)
	f, ok, err := s.NextForgotten(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, alpha, f.Key)
	require.EqualValues(t, 1, status(t, s.Reader()).Removals)

	commit(t, s, &store.Commit{Position: at(3, 3), Rows: []store.Row{row(3, alpha, "error")}})
	require.NoError(t, s.EndRemoval(t.Context(), alpha))
	require.NoError(t, s.EndRemoval(t.Context(), beta), "it is none")
	require.Empty(t, walk(t, s.Reader(), store.PageQuery{}))
	require.Equal(t, []uint64{3}, drain(t, s, 10))
	require.Zero(t, status(t, s.Reader()).Removals)
}

// With the commit that forgets it, a session is gone from every reader, in every form,
// while others of the same id or workspace stay; its rows leave in steps.
func TestForget_Visibility(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	for seq := uint64(1); seq <= 30; seq++ {
		put(t, s, row(seq, []bus.Key{alpha, beta, gamma}[seq%3], "error"))
	}
	held := projection.HeldPage{HeldKey: projection.HeldKey{First: 5}, Body: []byte("{}")}
	commit(t, s, &store.Commit{
		Position: at(31, 31),
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true, HeldPages: 1}},
		Held:     []store.HeldWrite{{Key: alpha, Page: &held}},
		Rejects:  []store.RejectWrite{reject(31, &alpha, []byte("abc"), bus.Identity{EventID: "e"}), reject(31, &beta, []byte("d"), bus.Identity{})},
		IDs:      []store.ID{{Key: alpha, EventID: "i"}},
	})
	other, err := store.OpenReader(path)
	require.NoError(t, err)
	defer other.Close()
	require.Len(t, walk(t, other, store.PageQuery{}), 30)

	// The commit that forgets has rows, rejects and pages of the session from before.
	commit(t, s, &store.Commit{
		Position: at(33, 33), Rows: []store.Row{row(32, alpha, "error"), row(33, beta, "error")},
		Sessions: []store.SessionWrite{{Key: alpha, Forget: true, Exists: true, HeldPages: 3, View: []byte("not read")}},
		Held:     []store.HeldWrite{{Key: alpha, Page: &held}},
		Rejects:  []store.RejectWrite{reject(32, &alpha, []byte("x"), bus.Identity{})},
		IDs:      []store.ID{{Key: alpha, EventID: "j"}},
	})
	check := func(pending int64) {
		t.Helper()
		for _, r := range []*store.Reader{s.Reader(), other} {
			require.Len(t, walk(t, r, store.PageQuery{}), 21)
			require.Len(t, walk(t, r, store.PageQuery{Type: "error", Limit: 2}), 21)
			require.Len(t, walk(t, r, store.PageQuery{Workspace: "acme"}), 11)
			require.Len(t, walk(t, r, store.PageQuery{Session: "alpha"}), 10)
			require.Empty(t, walk(t, r, store.PageQuery{Session: "alpha", Workspace: "acme"}))
			require.Empty(t, walk(t, r, store.PageQuery{Session: "alpha", Workspace: "acme", Type: "error"}))
			rows, err := r.Rows(t.Context(), 0, 100, 1<<20)
			require.NoError(t, err)
			require.Len(t, rows, 21)
			_, err = r.Session(t.Context(), "alpha", "acme")
			require.ErrorIs(t, err, bus.ErrNotFound)
			list, err := r.Sessions(t.Context(), store.SessionsQuery{Limit: 10})
			require.NoError(t, err)
			require.Len(t, list.Sessions, 2)
			st, err := r.LoadState(t.Context(), alpha)
			require.NoError(t, err)
			require.Equal(t, &projection.State{Forgotten: true}, st)
			_, err = r.RejectOf(t.Context(), alpha, bus.Identity{EventID: "e"})
			require.ErrorIs(t, err, bus.ErrNotFound)
			for _, id := range []string{"i", "j"} {
				_, ok, err := r.KnownID(t.Context(), alpha, id, 0)
				require.NoError(t, err)
				require.False(t, ok)
			}
			stat := status(t, r)
			require.EqualValues(t, 2, stat.Sessions)
			require.EqualValues(t, 0, stat.Held)
			require.EqualValues(t, 1, stat.Rejects)
			require.EqualValues(t, 1, stat.RejectBytes)
			require.EqualValues(t, pending, stat.Removals)
			require.EqualValues(t, 33, stat.EventsSeq)
		}
	}
	check(11)

	items, err := s.NextRemovals(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, []store.RemovalItem{
		{Seq: 3, Key: alpha, Origin: row(3, alpha, "").Origin}, {Seq: 6, Key: alpha, Origin: row(6, alpha, "").Origin},
		{Seq: 9, Key: alpha, Origin: row(9, alpha, "").Origin}, {Seq: 12, Key: alpha, Origin: row(12, alpha, "").Origin},
	}, items)
	require.NoError(t, s.Removed(t.Context(), []uint64{3, 6, 3, 7, 8, 999}), "rows of others and unknown numbers are passed")
	check(9)
	require.NoError(t, s.Close())
	s = openAt(t, path)
	check(9)
	require.Equal(t, []uint64{9, 12, 15, 18, 21, 24, 27, 30, 32}, drain(t, s, 4))
	check(0)

	// Late rows, copied from EVENTS, are never shown, and make the session pending again.
	commit(t, s, &store.Commit{Position: at(35, 33), Rejects: []store.RejectWrite{reject(35, &alpha, nil, bus.Identity{})},
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true, View: []byte("not read")}}})
	check(0)
	commit(t, s, &store.Commit{Position: at(35, 35), Rows: []store.Row{row(34, alpha, "error"), row(35, alpha, "error")}})
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 21)
	require.EqualValues(t, 2, status(t, s.Reader()).Removals)
	require.Equal(t, []uint64{34, 35}, drain(t, s, 100))
	require.Zero(t, status(t, s.Reader()).Removals)
}

// A forget of an unknown session leaves a tombstone; one of a tombstone changes nothing.
func TestForget_Unknown(t *testing.T) {
	s := open(t)
	commit(t, s, &store.Commit{Position: at(1, 1), Rows: []store.Row{row(1, alpha, "error")}, Sessions: []store.SessionWrite{{Key: alpha, Forget: true}, {Key: beta, Forget: true}}})
	for range 2 {
		for _, key := range []bus.Key{alpha, beta} {
			st, err := s.Reader().LoadState(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, &projection.State{Forgotten: true}, st)
			forget(t, s, key)
		}
		require.Empty(t, walk(t, s.Reader(), store.PageQuery{}))
		require.Zero(t, status(t, s.Reader()).Sessions)
	}
	require.Equal(t, []uint64{1}, drain(t, s, 10))
}

// Rows that are hidden do not make a page walk through all of them at once: it looks at a
// bounded number and hands out a cursor.
func TestForget_ManyHiddenRows(t *testing.T) {
	s := open(t)
	s.Reader().SetExamine(100)
	var rows []store.Row
	for seq := uint64(1); seq <= 450; seq++ {
		key := alpha
		if seq == 1 || seq == 450 {
			key = beta
		}
		rows = append(rows, row(seq, key, "error"))
	}
	put(t, s, rows...)
	forget(t, s, alpha)
	var cursors []uint64
	q := store.PageQuery{After: after(0), Limit: 10}
	for q.After.Seq < 450 {
		p := page(t, s.Reader(), q)
		cursors = append(cursors, p.NextAfter)
		q.After = after(p.NextAfter)
	}
	require.Equal(t, []uint64{1, 101, 201, 301, 401, 450}, cursors)
}

// Held pages come and go by their key; a page that is there already counts once.
func TestHeld(t *testing.T) {
	s := open(t)
	pageOf := func(first uint64, digest byte) *projection.HeldPage {
		return &projection.HeldPage{HeldKey: projection.HeldKey{First: first, Last: bus.Digest{digest}}, LastOrdinal: first + 1, Seq: first, Time: 5, Body: []byte(`{"x":1}`)}
	}
	write := func(pages int, held ...store.HeldWrite) []projection.HeldPage {
		t.Helper()
		commit(t, s, &store.Commit{Position: position(t, s), Held: held, Sessions: []store.SessionWrite{{Key: alpha, Exists: true, HeldPages: pages}}})
		require.EqualValues(t, pages, status(t, s.Reader()).Held)
		st, err := s.Reader().LoadState(t.Context(), alpha)
		require.NoError(t, err)
		return st.Held
	}
	a, b, c := pageOf(9, 2), pageOf(9, 1), pageOf(4, 3)
	require.Equal(t, []projection.HeldPage{*c, *b, *a}, write(3, store.HeldWrite{Key: alpha, Page: a}, store.HeldWrite{Key: alpha, Page: b},
		store.HeldWrite{Key: alpha, Page: a}, store.HeldWrite{Key: alpha, Page: c}))
	require.Equal(t, []projection.HeldPage{*c, *a}, write(2, store.HeldWrite{Key: alpha, Release: &b.HeldKey}, store.HeldWrite{Key: alpha, Release: &b.HeldKey}))
	require.Empty(t, write(0, store.HeldWrite{Key: alpha, Page: b}, store.HeldWrite{Key: alpha, Release: &b.HeldKey},
		store.HeldWrite{Key: alpha, Release: &a.HeldKey}, store.HeldWrite{Key: alpha, Release: &c.HeldKey}))
}

// Space of removed rows goes back to the file system, a part stays for new ones.
func TestRemoved_GivesSpaceBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	for seq := uint64(1); seq <= 60; seq++ {
		e := row(seq, alpha, "error")
		e.Data = []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		put(t, s, e)
	}
	size := func() int64 {
		t.Helper()
		require.NoError(t, s.Checkpoint(t.Context()))
		st, err := os.Stat(path)
		require.NoError(t, err)
		return st.Size()
	}
	full := size()
	require.Greater(t, full, int64(60<<20))
	forget(t, s, alpha)
	drain(t, s, 1)
	// Each step gives back at most 500 pages, 1.95 MiB; 16 MiB stay.
	require.Less(t, size(), int64(17<<20))
	require.Greater(t, size(), int64(15<<20))
	v, err := s.Pragma("integrity_check")
	require.NoError(t, err)
	require.Equal(t, "ok", v)
}
