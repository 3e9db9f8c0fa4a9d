package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// A session is rendered from its state, its held pages' number and the table's counts.
func TestSession_Rendered(t *testing.T) {
	s := open(t)
	activity := int64(123)
	st := projection.State{Exists: true, LastActivityAt: &activity}
	st.View.Title = `"t"`
	st.Chain.Position = bus.ChainPosition{Ordinal: 2, Digest: bus.Digest{0xAB}}
	chain, publishers, view := state(t, &st)
	commit(t, s, &store.Commit{
		Position: at(3, 3), Rows: []store.Row{row(1, alpha, "error"), row(3, alpha, "error")},
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true, HeldPages: 2, Chain: chain, Publishers: publishers, View: view}},
	})
	got, err := s.Reader().Session(t.Context(), "alpha", "acme")
	require.NoError(t, err)
	st.Held = make([]projection.HeldPage, 2)
	require.Equal(t, string(st.AppendSession(nil, alpha, projection.SessionEvents{Count: 2, FirstSeq: 1, LastSeq: 3})), string(got))
	var fields struct {
		Held   struct{ Pages int }
		Events struct {
			Count    int
			FirstSeq int `json:"first_seq"`
			LastSeq  int `json:"last_seq"`
		}
	}
	require.NoError(t, json.Unmarshal(got, &fields))
	require.Equal(t, 2, fields.Held.Pages)
	require.Equal(t, 3, fields.Events.LastSeq)

	// Copied rows alone make a session of which nothing else is known.
	put(t, s, row(4, beta, "error"))
	got, err = s.Reader().Session(t.Context(), "beta", "")
	require.NoError(t, err)
	require.Equal(t, string((&projection.State{}).AppendSession(nil, beta, projection.SessionEvents{Count: 1, FirstSeq: 4, LastSeq: 4})), string(got))
}

// A session id alone is enough where one workspace has it, else the candidates are named.
func TestSession_Ambiguous(t *testing.T) {
	s := open(t)
	r := s.Reader()
	_, err := r.Session(t.Context(), "alpha", "")
	require.ErrorIs(t, err, bus.ErrNotFound)
	put(t, s, row(1, gamma, "error"))
	one, err := r.Session(t.Context(), "alpha", "")
	require.NoError(t, err)
	require.Contains(t, string(one), `"workspace_id":"other"`)
	put(t, s, row(2, alpha, "error"))
	_, err = r.Session(t.Context(), "alpha", "")
	require.ErrorIs(t, err, bus.ErrAmbiguous)
	var ambiguous *store.AmbiguousError
	require.ErrorAs(t, err, &ambiguous)
	require.Equal(t, &store.AmbiguousError{Session: "alpha", Workspaces: []string{"acme", "other"}}, ambiguous)
	for _, w := range []string{"acme", "other"} {
		_, err = r.Session(t.Context(), "alpha", w)
		require.NoError(t, err)
	}
	_, err = r.Session(t.Context(), "alpha", "third")
	require.ErrorIs(t, err, bus.ErrNotFound)
	forget(t, s, alpha)
	again, err := r.Session(t.Context(), "alpha", "")
	require.NoError(t, err)
	require.Equal(t, one, again)
}

// Lists are in a fixed order, page by page, whatever the limit, and show what exists.
func TestSessions_Pages(t *testing.T) {
	s := open(t)
	var all, acme, seven []string
	seq := uint64(0)
	for i := range 60 {
		key := bus.Key{Workspace: []string{"acme", "other", "zeta"}[i%3], Session: fmt.Sprint("s", i/3)}
		if i%3 != 0 && i < 20 {
			// Only rejected messages, and a forgotten one: nobody sees them.
			commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: key, Forget: i%3 == 1, Publishers: []byte{}}}})
			continue
		}
		seq++
		put(t, s, row(seq, key, "error"))
		name := key.Workspace + "/" + key.Session
		all = append(all, name)
		if key.Workspace == "acme" {
			acme = append(acme, name)
		}
		if key.Session == "s7" {
			seven = append(seven, name)
		}
	}
	for _, c := range []struct {
		q    store.SessionsQuery
		want []string
	}{
		{store.SessionsQuery{}, all},
		{store.SessionsQuery{Workspace: "acme"}, acme},
		{store.SessionsQuery{Session: "s7"}, seven},
		{store.SessionsQuery{Session: "s7", Workspace: "zeta"}, []string{"zeta/s7"}},
		{store.SessionsQuery{Session: "s0", Workspace: "other"}, nil},
		{store.SessionsQuery{Workspace: "%"}, nil},
	} {
		for _, limit := range []int{1, 2, 3, 20, 1000} {
			c.q.Limit, c.q.After = limit, 0
			var got []string
			for {
				p, err := s.Reader().Sessions(t.Context(), c.q)
				require.NoError(t, err)
				require.LessOrEqual(t, len(p.Sessions), limit)
				got = append(got, names(t, &p)...)
				if p.Next == 0 {
					break
				}
				require.NotEmpty(t, p.Sessions)
				c.q.After = p.Next
			}
			require.Equal(t, c.want, got, "%+v", c.q)
		}
	}
	empty, err := s.Reader().Sessions(t.Context(), store.SessionsQuery{Workspace: "none", Limit: 1})
	require.NoError(t, err)
	require.Equal(t, `{"sessions":[],"next_after":null}`, string(empty.AppendJSON(nil)))
}

// A list of large sessions is bounded in bytes, but holds at least one.
func TestSessions_Bytes(t *testing.T) {
	s := open(t)
	var st projection.State
	st.View.Activity = `{"x":"` + strings.Repeat("x", 1_500_000) + `"}`
	_, _, view := state(t, &st)
	for i := range 5 {
		commit(t, s, &store.Commit{Position: at(1, 1), Sessions: []store.SessionWrite{{Key: bus.Key{Workspace: "w", Session: fmt.Sprint(i)}, Exists: true, View: view}}})
	}
	for maxBytes, want := range map[int][]int{0: {2, 2, 1}, 1: {1, 1, 1, 1, 1}} {
		var got []int
		q := store.SessionsQuery{Limit: 100, MaxBytes: maxBytes}
		for {
			p, err := s.Reader().Sessions(t.Context(), q)
			require.NoError(t, err)
			got = append(got, len(p.Sessions))
			if p.Next == 0 {
				break
			}
			q.After = p.Next
		}
		require.Equal(t, want, got)
	}
}

// names returns workspace/session of each rendered session, by the page's wire form.
func names(t *testing.T, p *store.SessionsPage) (out []string) {
	t.Helper()
	var wire struct {
		Sessions []struct {
			Workspace string `json:"workspace_id"`
			Session   string `json:"session_id"`
		}
		Next *int64 `json:"next_after"`
	}
	require.NoError(t, json.Unmarshal(p.AppendJSON(nil), &wire))
	require.Equal(t, p.Next != 0, wire.Next != nil)
	for _, s := range wire.Sessions {
		out = append(out, s.Workspace+"/"+s.Session)
	}
	return out
}
