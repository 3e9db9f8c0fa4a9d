package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// Within a bound every answer is what it would be if the store held nothing else: pages
// of any filter, lists of sessions, one session and the candidates for it.
func TestWithin(t *testing.T) {
	r := skaldtest.Rand(t)
	s := open(t)
	workspaces := []string{"a", "b", "c", `d"d`, "e"}
	var rows []store.Row
	sessions := map[bus.Key]bool{}
	for seq := range uint64(600) {
		k := bus.Key{Workspace: workspaces[r.IntN(5)], Session: fmt.Sprint("s", r.IntN(12))}
		rows = append(rows, row(seq+1, k, []string{"error", "turn_started"}[r.IntN(2)]))
		sessions[k] = true
	}
	put(t, s, rows...)
	for k := range sessions {
		commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: k, Exists: true}}})
	}
	for range 60 {
		bound := pick(r, workspaces)
		q := store.PageQuery{Within: bound, Limit: 1 + r.IntN(50)}
		if r.IntN(2) == 0 {
			q.Session = fmt.Sprint("s", r.IntN(14))
		}
		if r.IntN(3) == 0 {
			q.Workspace = workspaces[r.IntN(5)]
		}
		if r.IntN(2) == 0 {
			q.Type = "error"
		}
		var want []uint64
		for i := range rows {
			k := rows[i].Key
			if slices.Contains(bound, k.Workspace) && (q.Session == "" || q.Session == k.Session) &&
				(q.Workspace == "" || q.Workspace == k.Workspace) && (q.Type == "" || q.Type == rows[i].Type) {
				want = append(want, rows[i].Seq)
			}
		}
		require.ElementsMatch(t, want, seqs(walk(t, s.Reader(), q)), "%+v", q)
		require.True(t, slices.IsSorted(seqs(walk(t, s.Reader(), q))))

		listed := map[string]bool{}
		sq := store.SessionsQuery{Within: bound, Session: q.Session, Workspace: q.Workspace, Limit: 1 + r.IntN(9)}
		for {
			p, err := s.Reader().Sessions(t.Context(), sq)
			require.NoError(t, err)
			for _, one := range p.Sessions {
				require.False(t, listed[string(one)], "listed once")
				listed[string(one)] = true
			}
			if sq.After = p.Next; p.Next == 0 {
				break
			}
		}
		n, with := 0, []string{}
		for k := range sessions {
			if slices.Contains(bound, k.Workspace) && (sq.Session == "" || sq.Session == k.Session) {
				with = append(with, k.Workspace)
				if sq.Workspace == "" || sq.Workspace == k.Workspace {
					n++
				}
			}
		}
		require.Len(t, listed, n, "%+v", sq)
		if sq.Session == "" {
			continue
		}
		slices.Sort(with)
		_, err := s.Reader().SessionWithin(t.Context(), sq.Session, "", bound)
		var several *store.AmbiguousError
		switch len(with) {
		case 0:
			require.ErrorIs(t, err, bus.ErrNotFound)
		case 1:
			require.NoError(t, err)
		default:
			require.ErrorAs(t, err, &several)
			require.Equal(t, with, several.Workspaces)
		}
		for _, w := range workspaces {
			_, err := s.Reader().SessionWithin(t.Context(), sq.Session, w, bound)
			require.Equal(t, slices.Contains(with, w), err == nil, "%s in %s: %v", sq.Session, w, err)
		}
	}
}

// pick returns some of the workspaces, perhaps none.
func pick(r *rand.Rand, from []string) []string {
	out := []string{}
	for _, w := range from {
		if r.IntN(2) == 0 {
			out = append(out, w)
		}
	}
	return out
}

// A page of a bound of several workspaces costs the same whatever lies outside it.
func BenchmarkPageWithin(b *testing.B) {
	s := open(b)
	for n := range uint64(50) {
		c := store.Commit{Position: at(n+1, (n+1)*1000)}
		for i := range uint64(1000) {
			seq := n*1000 + i + 1
			c.Rows = append(c.Rows, row(seq, bus.Key{Workspace: fmt.Sprint("w", seq%100), Session: fmt.Sprint("s", seq%700)}, "error"))
		}
		commit(b, s, &c)
	}
	for _, n := range []int{1, 3, 10} {
		b.Run(fmt.Sprint("workspaces=", n), func(b *testing.B) {
			q := store.PageQuery{After: after(1000), Limit: 100, Within: []string{}}
			for i := range n {
				q.Within = append(q.Within, fmt.Sprint("w", i))
			}
			for b.Loop() {
				require.Len(b, page(b, s.Reader(), q).Events, 100)
			}
		})
	}
}
