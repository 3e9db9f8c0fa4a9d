package store_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// naive is the table as a list.
type naive struct {
	rows      []store.Row
	forgotten map[bus.Key]bool
	present   map[bus.Key]bool
	end       uint64
	oldest    uint64
}

// visible returns what a reader must see with the filters, ascending.
func (n *naive) visible(q *store.PageQuery) []uint64 {
	out := []uint64{}
	for i := range n.rows {
		r := &n.rows[i]
		if r.Seq < n.oldest || n.forgotten[r.Key] || q.Session != "" && q.Session != r.Key.Session ||
			q.Workspace != "" && q.Workspace != r.Key.Workspace || q.Type != "" && q.Type != r.Type {
			continue
		}
		out = append(out, r.Seq)
	}
	return out
}

// follower is a reader that keeps its cursor while the table changes.
type follower struct {
	q    store.PageQuery
	seen []uint64
}

// Whatever is written, forgotten, removed and pruned, in any order, with restarts: a walk
// with any filters and limits gives the list of what is visible, and a reader that kept
// its cursor all the time has missed nothing that is still there.
func TestPages_EqualList(t *testing.T) {
	dir := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		path := filepath.Join(dir, fmt.Sprint(round, ".db"))
		s, err := store.Open(path, store.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		examine := rapid.IntRange(1, 12).Draw(t, "examine")
		s.Reader().SetExamine(examine)

		ids := rapid.SampledFrom([]string{"a", "b", "c", "%"})
		keys := rapid.Custom(func(t *rapid.T) bus.Key {
			return bus.Key{Workspace: ids.Draw(t, "workspace"), Session: ids.Draw(t, "session")}
		})
		types := rapid.SampledFrom([]string{"error", "turn_started", "rare"})
		filters := rapid.Custom(func(t *rapid.T) store.PageQuery {
			optional := func(g *rapid.Generator[string], name string) string {
				if rapid.Bool().Draw(t, "has "+name) {
					return g.Draw(t, name)
				}
				return ""
			}
			return store.PageQuery{
				Session: optional(ids, "session"), Workspace: optional(ids, "workspace"), Type: optional(types, "type"),
				Limit: rapid.IntRange(1, 30).Draw(t, "limit"), MaxBytes: rapid.SampledFrom([]int{0, 1, 700, 1500}).Draw(t, "bytes"),
			}
		})

		list := naive{forgotten: map[bus.Key]bool{}, present: map[bus.Key]bool{}, oldest: 1}
		followers := []*follower{{q: store.PageQuery{Limit: 3, After: after(0)}}}
		for range 4 {
			f := follower{q: filters.Draw(t, "follower")}
			f.q.After = after(0)
			followers = append(followers, &f)
		}
		// next reads one page for the follower and tells whether it was the end.
		next := func(f *follower) bool {
			p, err := s.Reader().Page(t.Context(), f.q)
			if f.q.After.Seq > 0 && f.q.After.Seq < list.oldest-1 {
				require.ErrorIs(t, err, bus.ErrCursorGone)
				f.q.After, f.seen = after(0), nil
				return false
			}
			require.NoError(t, err)
			require.LessOrEqual(t, len(p.Events), f.q.Limit)
			require.Equal(t, list.end, p.Latest)
			require.Equal(t, list.oldest, p.Oldest)
			for _, e := range p.Events {
				require.Greater(t, e.Seq, f.q.After.Seq)
				require.Equal(t, fmt.Sprintf(`{"n":%d}`, e.Seq), string(e.Data))
				f.seen = append(f.seen, e.Seq)
			}
			if n := len(p.Events); n > 0 {
				require.Equal(t, p.Events[n-1].Seq, p.NextAfter)
			} else if p.NextAfter != p.Latest {
				require.Greater(t, p.NextAfter, f.q.After.Seq)
			}
			f.q.After = after(p.NextAfter)
			return len(p.Events) == 0 && p.NextAfter == p.Latest
		}
		write := func(c store.Commit) {
			c.Position = store.Position{IngestSeq: list.end + 1, IngestTime: int64(list.end), EventsSeq: list.end}
			require.NoError(t, s.Commit(t.Context(), &c))
		}

		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				var c store.Commit
				for range rapid.IntRange(1, 25).Draw(t, "rows") {
					list.end += rapid.SampledFrom([]uint64{1, 1, 1, 2, 9}).Draw(t, "step")
					c.Rows = append(c.Rows, row(list.end, keys.Draw(t, "key"), types.Draw(t, "type")))
					list.present[c.Rows[len(c.Rows)-1].Key] = true
				}
				list.rows = append(list.rows, c.Rows...)
				list.end += uint64(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "beyond"))
				written := map[bus.Key]bool{}
				for _, r := range c.Rows {
					if !written[r.Key] && rapid.Bool().Draw(t, "state") {
						c.Sessions = append(c.Sessions, store.SessionWrite{Key: r.Key, Exists: true, View: []byte{}})
						written[r.Key] = true
					}
				}
				if key := keys.Draw(t, "also forgotten"); !written[key] && rapid.IntRange(0, 3).Draw(t, "forget too") == 0 {
					c.Sessions = append(c.Sessions, store.SessionWrite{Key: key, Forget: true})
					list.forgotten[key] = true
				}
				write(c)
			},
			"forget": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				list.forgotten[key] = true
				write(store.Commit{Sessions: []store.SessionWrite{{Key: key, Forget: true}}})
			},
			"prune": func(t *rapid.T) {
				before := rapid.Uint64Range(1, list.end+3).Draw(t, "before")
				list.oldest = max(list.oldest, min(before, list.end+1))
				write(store.Commit{PruneBefore: before})
			},
			"prune step": func(t *rapid.T) {
				_, err := s.PruneStep(t.Context(), rapid.IntRange(1, 10).Draw(t, "limit"))
				require.NoError(t, err)
			},
			"removal step": func(t *rapid.T) {
				items, err := s.NextRemovals(t.Context(), rapid.IntRange(1, 10).Draw(t, "limit"))
				require.NoError(t, err)
				var gone []uint64
				for _, it := range items {
					require.True(t, list.forgotten[it.Key])
					if rapid.IntRange(0, 4).Draw(t, "done") > 0 {
						gone = append(gone, it.Seq)
					}
				}
				require.NoError(t, s.Removed(t.Context(), gone))
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, s.Close())
				var err error
				s, err = store.Open(path, store.Options{})
				require.NoError(t, err)
				s.Reader().SetExamine(examine)
			},
			"follow": func(t *rapid.T) {
				next(rapid.SampledFrom(followers).Draw(t, "follower"))
			},
			"walk": func(t *rapid.T) {
				f := follower{q: filters.Draw(t, "query")}
				f.q.After, f.seen = after(0), []uint64{}
				for !next(&f) {
				}
				require.Equal(t, list.visible(&f.q), f.seen)
			},
			"": func(t *rapid.T) {
				st, err := s.Reader().Status(t.Context())
				require.NoError(t, err)
				shown := 0
				for key := range list.present {
					if !list.forgotten[key] {
						shown++
					}
				}
				require.EqualValues(t, shown, st.Sessions)
			},
		})

		// Steps that were left come to their end, and change nothing that is seen.
		for n := 1; n > 0; {
			n, err = s.PruneStep(t.Context(), 1000)
			require.NoError(t, err)
		}
		items, err := s.NextRemovals(t.Context(), 10_000)
		require.NoError(t, err)
		var gone []uint64
		for _, it := range items {
			gone = append(gone, it.Seq)
		}
		require.NoError(t, s.Removed(t.Context(), gone))
		endRemovals(t, s)
		st, err := s.Reader().Status(t.Context())
		require.NoError(t, err)
		require.Zero(t, st.Removals)
		for _, f := range followers {
			for !next(f) {
			}
			require.True(t, slices.IsSorted(f.seen))
			for _, seq := range list.visible(&f.q) {
				require.Contains(t, f.seen, seq, "the reader with %+v has passed it", f.q)
			}
		}
		checkCounts(t, s, &list)
	})
}

// checkCounts compares each session's counts with its rows in the list.
func checkCounts(t *rapid.T, s *store.Store, list *naive) {
	rows, err := s.Reader().Rows(t.Context(), 0, 1_000_000, 1<<30)
	require.NoError(t, err)
	require.Len(t, rows, len(list.visible(&store.PageQuery{})))
	for key := range list.present {
		if list.forgotten[key] {
			continue
		}
		want := list.visible(&store.PageQuery{Session: key.Session, Workspace: key.Workspace})
		b, err := s.Reader().Session(t.Context(), key.Session, key.Workspace)
		require.NoError(t, err)
		events := `"events":{"count":0,"first_seq":null,"last_seq":null}`
		if n := len(want); n > 0 {
			events = fmt.Sprintf(`"events":{"count":%d,"first_seq":%d,"last_seq":%d}`, n, want[0], want[n-1])
		}
		require.Contains(t, string(b), events)
	}
}
