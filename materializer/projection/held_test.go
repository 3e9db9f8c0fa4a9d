package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// hold applies a page that has to be held, and returns what is to be stored.
func (s *session) hold(page string) projection.HeldPage {
	s.t.Helper()
	r := s.apply(bus.ClassProjection, bus.Identity{}, page)
	require.Equal(s.t, projection.Held, r.Outcome, r.Detail)
	require.NotNil(s.t, r.Hold)
	require.Empty(s.t, r.Facts)
	return *r.Hold
}

// A page ahead waits, is stored once, and is applied with the page that fills the
// gap: its facts follow, its key is released.
func TestHeld_FillsTheGap(t *testing.T) {
	j := failing(4)
	s := newSession(t)
	page := strings.Replace(j.pageAfter(3, 4), `"events":`, "\"events\" : ", 1)
	h := s.hold(page)
	require.Equal(t, projection.HeldPage{
		HeldKey:     projection.HeldKey{First: 3, Last: j.at.Digest},
		LastOrdinal: 4, Seq: 1, Time: ingestTime(1), Body: []byte(j.pageAfter(3, 4)),
	}, h)
	require.True(t, s.state.Exists)
	require.Nil(t, s.state.LastActivityAt)
	require.Equal(t, projection.PartExists|projection.PartHeld, s.state.Changed)
	require.JSONEq(t, `{"pages":1,"waiting_for":1}`, string(s.view()["held"]))

	s.state.Changed = 0
	r := s.apply(bus.ClassProjection, bus.Identity{}, page)
	require.Equal(t, projection.Held, r.Outcome)
	require.Nil(t, r.Hold)
	require.Zero(t, s.state.Changed)

	r = s.mustApply(bus.ClassProjection, j.page(1, 2))
	require.Equal(t, facts(newSession(t).mustApply(bus.ClassProjection, j.page(1, 4))), facts(r))
	require.Equal(t, []projection.HeldKey{h.HeldKey}, r.Release)
	require.Empty(t, r.Rejects)
	require.Equal(t, j.at, s.state.Chain.Position)
	require.Equal(t, recordedAt(4), *s.state.LastActivityAt)
	require.JSONEq(t, `{"pages":0,"waiting_for":null}`, string(s.view()["held"]))
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassProjection, bus.Identity{}, page).Outcome)
}

// The held body is the state's own: the message's memory may be used again.
func TestHeld_OwnsItsBody(t *testing.T) {
	j := failing(2)
	s := &projection.State{}
	body := []byte(j.page(2, 2))
	s.Apply(projection.Message{Class: bus.ClassProjection, Seq: 1, Body: body}, nil)
	for i := range body {
		body[i] = 'x'
	}
	r := s.Apply(projection.Message{Class: bus.ClassProjection, Seq: 2, Body: []byte(j.page(1, 1))}, nil)
	require.Len(t, r.Facts, 2)
}

// A page ahead is checked by itself before it is held.
func TestHeld_CheckedByItself(t *testing.T) {
	j := failing(4)
	s := newSession(t)
	s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(3, 4), j.at.Digest.String(), strings.Repeat("f", 64), 1), "event 4")
	s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(3, 4), j.events[1].Digest.String(), strings.Repeat("f", 64), 1), "event 3")
	s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(3, 4), j.events[1].Digest.String(), "", 1), "previous_digest")
	after := fmt.Sprintf(`{"after":{"ordinal":2,"digest":"%s"},%s`, strings.Repeat("f", 64), j.page(3, 4)[1:])
	s.rejectedAs(bus.ReasonChain, after, "after.digest")
	require.False(t, s.state.Exists)

	// Format 2 says nothing of what lies before; after waits for the gap to fill.
	j2 := &journal{format: bus.FormatStandalone}
	for range 4 {
		j2.add(closed)
	}
	s.hold(fmt.Sprintf(`{"after":{"ordinal":2,"digest":"%s"},%s`, strings.Repeat("f", 64), j2.page(3, 4)[1:]))
	r := s.mustApply(bus.ClassProjection, j2.page(1, 2))
	require.Len(t, r.Rejects, 1)
	require.Contains(t, r.Rejects[0].Detail, "after.digest")
	require.Equal(t, j2.events[1].ChainPosition, s.state.Chain.Position)
}

// A held page that turns out wrong leaves an entry with its own numbers and
// payload, does not stop the others, and the page that filled the gap stands.
func TestHeld_TurnsOutWrong(t *testing.T) {
	j := failing(6)
	other := j.fork(1)
	for range 3 {
		other.add(closed)
	}
	s := newSession(t)
	wrong := s.hold(other.page(3, 4)) // its predecessor is another event 2
	below := s.hold(other.page(2, 4)) // overtaken, and not the event 2 that was applied
	alike := s.hold(j.page(2, 2))     // overtaken, and the same: nothing to tell
	right := s.hold(j.page(3, 6))
	r := s.mustApply(bus.ClassProjection, j.page(1, 2))
	require.Len(t, r.Facts, 6)
	require.Equal(t, j.at, s.state.Chain.Position)
	require.ElementsMatch(t, []projection.HeldKey{wrong.HeldKey, below.HeldKey, alike.HeldKey, right.HeldKey}, r.Release)
	require.Len(t, r.Rejects, 2)
	for i, h := range []projection.HeldPage{below, wrong} {
		e := r.Rejects[i]
		require.Equal(t, projection.Reject{
			Seq: h.Seq, Time: h.Time, Class: bus.ClassProjection, Reason: bus.ReasonChain, Detail: e.Detail,
			Payload: h.Body, Size: len(h.Body),
		}, e)
		require.NotEmpty(t, e.Detail)
	}
	require.Empty(t, s.state.Held)
	require.Equal(t, projection.Applied, r.Outcome)
}

// Of two pages that both fit, the one that came first is applied, in whatever
// order a store has loaded them; the other one is then a fork.
func TestHeld_FirstComeFirst(t *testing.T) {
	a := &journal{format: bus.FormatStandalone}
	a.add(closed)
	b := a.fork(1)
	a.add(closing)
	b.add(restarted)
	for _, swap := range []bool{false, true} {
		s := newSession(t)
		first, second := s.hold(a.page(2, 2)), s.hold(b.page(2, 2))
		if swap {
			s.state.Held[0], s.state.Held[1] = s.state.Held[1], s.state.Held[0]
		}
		r := s.mustApply(bus.ClassProjection, a.page(1, 1))
		require.Equal(t, a.at, s.state.Chain.Position)
		require.Equal(t, []projection.HeldKey{first.HeldKey, second.HeldKey}, r.Release)
		require.Len(t, r.Rejects, 1)
		require.Equal(t, second.Seq, r.Rejects[0].Seq)
	}
}

// Beyond the bounds a page is ahead: the detail names the expected ordinal, no
// payload is kept, nothing is stored.
func TestHeld_Bounds(t *testing.T) {
	ahead := func(s *session, page string, expected uint64) {
		r := s.apply(bus.ClassProjection, bus.Identity{}, page)
		require.Equal(t, bus.ReasonAhead, r.Reason)
		require.Contains(t, r.Detail, fmt.Sprintf("expected ordinal %d", expected))
		require.Nil(t, r.Hold)
		require.Len(t, r.Rejects, 1)
		require.Nil(t, r.Rejects[0].Payload)
		require.Equal(t, len(page), r.Rejects[0].Size)
	}
	t.Run("pages", func(t *testing.T) {
		j := failing(projection.MaxHeldPages + 3)
		s := newSession(t)
		s.mustApply(bus.ClassProjection, j.page(1, 1))
		for i := range uint64(projection.MaxHeldPages) {
			s.hold(j.page(i+3, i+3))
		}
		ahead(s, j.page(projection.MaxHeldPages+3, projection.MaxHeldPages+3), 2)
		require.Equal(t, projection.Held, s.apply(bus.ClassProjection, bus.Identity{}, j.page(3, 3)).Outcome, "held already")
		require.Len(t, s.mustApply(bus.ClassProjection, j.page(2, 2)).Facts, projection.MaxHeldPages+1)
		s.mustApply(bus.ClassProjection, j.page(projection.MaxHeldPages+3, projection.MaxHeldPages+3))
	})
	t.Run("bytes", func(t *testing.T) {
		j := &journal{}
		j.add(closed)
		for range 3 {
			j.add(fmt.Sprintf(`{"type":"notice","data":{"message":"%s"}}`, strings.Repeat("x", projection.MaxHeldBytes/2-400)))
		}
		s := newSession(t)
		s.hold(j.page(2, 2))
		s.hold(j.page(3, 3))
		ahead(s, j.page(4, 4), 1)
		ahead(newSession(t), j.page(2, 4), 1)
	})
}

// A held body that was damaged on the way through a store is an entry, no panic.
func TestHeld_DamagedBody(t *testing.T) {
	j := failing(3)
	for _, body := range []string{"", "{", `{}`, `{"events":[]}`, `{"events":`, j.page(3, 3)} {
		s := newSession(t)
		s.hold(j.page(2, 2))
		s.state.Held[0].Body = []byte(body)
		r := s.mustApply(bus.ClassProjection, j.page(1, 1))
		require.Len(t, r.Facts, 1, body)
		require.Len(t, r.Rejects, 1)
	}
}

// However a journal is cut into pages, and in whatever order and how often they
// come: every event is applied once, in order, and nothing is rejected. A restart
// between any two messages changes nothing.
func TestHeld_AnyOrder(t *testing.T) {
	const n = 40
	j := failing(n)
	want := facts(newSession(t).mustApply(bus.ClassProjection, j.page(1, n)))
	rapid.Check(t, func(rt *rapid.T) {
		var pages []string
		for first := uint64(1); first <= n; {
			last := min(n, first+rapid.Uint64Range(0, 8).Draw(rt, "length"))
			page := j.page
			if rapid.Bool().Draw(rt, "after") {
				page = j.pageAfter
			}
			pages = append(pages, page(first, last))
			// The next one may begin before this one ends.
			first = max(first+1, last+1-min(last, rapid.Uint64Range(0, 3).Draw(rt, "overlap")))
		}
		twice := rapid.SliceOfN(rapid.SampledFrom(pages), 0, 10).Draw(rt, "again")
		s := newSession(t)
		got := []string{}
		for _, p := range rapid.Permutation(append(pages, twice...)).Draw(rt, "order") {
			r := s.apply(bus.ClassProjection, bus.Identity{}, p)
			require.Empty(rt, r.Rejects)
			require.NotEqual(rt, projection.Rejected, r.Outcome)
			got = append(got, facts(r)...)
			if rapid.Bool().Draw(rt, "restart") {
				s.state = reload(rt, s.state)
			}
		}
		require.Equal(rt, want, got)
		require.Equal(rt, j.at, s.state.Chain.Position)
		require.Empty(rt, s.state.Held)
	})
}
