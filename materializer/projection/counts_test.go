package projection_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func errorBody(n uint64) string { return fmt.Sprintf(`{"message":"%d"}`, n) }

// send sends an error under the publisher's count, the same body for the same count.
func (s *session) send(publisher string, n uint64) projection.Result {
	return s.apply(bus.ClassError, counted(publisher, n), errorBody(n))
}

// A count goes up by one; at or below the last it is a duplicate for good, a
// conflict with another body as long as its hash is kept.
func TestCounts_InOrder(t *testing.T) {
	s := newSession(t)
	for n := uint64(1); n <= projection.MaxCountHashes+1; n++ {
		r := s.send("p", n)
		require.Equal(t, projection.Applied, r.Outcome)
		require.Equal(t, bus.Source{Publisher: "p", Count: n}, r.Facts[0].Source)
		require.Equal(t, projection.Duplicate, s.send("p", n).Outcome)
	}
	r := s.apply(bus.ClassError, counted("p", 2), `{"message":"other"}`)
	require.Equal(t, bus.ReasonConflict, r.Reason)
	require.Equal(t, counted("p", 2), r.Rejects[0].Identity)
	require.Equal(t, projection.Duplicate, s.send("p", 2).Outcome, "the first stands")

	// Count 1 is one message too old to be told from another.
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassError, counted("p", 1), `{"message":"other"}`).Outcome)

	// Counts are a publisher's own.
	require.Equal(t, projection.Applied, s.send("q", 1).Outcome)
}

// What is missing is accepted when it comes, once.
func TestCounts_Gaps(t *testing.T) {
	s := newSession(t)
	missing := func() []projection.Range { return slices.Clone(s.state.Publishers.Seen[0].Missing) }
	accept := func(n uint64) { s.t.Helper(); require.Equal(t, projection.Applied, s.send("p", n).Outcome) }
	status := func(n uint64) string {
		known, missing := s.state.Publishers.Status("p", n)
		return fmt.Sprint(known, missing)
	}

	require.Equal(t, "false false", status(1), "nobody knows it")
	accept(3) // an unknown publisher's last is 0
	require.Equal(t, []projection.Range{{From: 1, To: 2}}, missing())
	accept(10)
	require.Equal(t, []projection.Range{{From: 1, To: 2}, {From: 4, To: 9}}, missing())
	require.Equal(t, "false true", status(4))
	require.Equal(t, "true false", status(10))
	require.Equal(t, "false false", status(11))
	require.Equal(t, "false false", status(0))
	accept(6) // splits
	require.Equal(t, []projection.Range{{From: 1, To: 2}, {From: 4, To: 5}, {From: 7, To: 9}}, missing())
	accept(7)
	accept(9)
	accept(8)
	require.Equal(t, []projection.Range{{From: 1, To: 2}, {From: 4, To: 5}}, missing())
	for _, n := range []uint64{3, 10, 6, 7, 8, 9} {
		require.Equal(t, projection.Duplicate, s.send("p", n).Outcome, n)
		require.Equal(t, bus.ReasonConflict, s.apply(bus.ClassError, counted("p", n), `{"message":"other"}`).Reason, n)
	}
	require.Equal(t, projection.Applied, s.apply(bus.ClassError, counted("p", 1), `{"message":"any"}`).Outcome)
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassError, counted("p", 1), `{"message":"any"}`).Outcome)
}

// A message that would leave more than 64 ranges missing is ahead: no payload is
// kept, nothing changes, and the detail names the count to send from.
func TestCounts_Ahead(t *testing.T) {
	s := newSession(t)
	for i := range uint64(projection.MaxMissingRanges) {
		require.Equal(t, projection.Applied, s.send("p", 10*(i+1)).Outcome)
	}
	last := uint64(10 * projection.MaxMissingRanges)
	require.Equal(t, projection.Applied, s.send("p", last+1).Outcome, "no new range")
	before := s.state.AppendPublishers(nil)

	for n, expected := range map[uint64]uint64{last + 3: last + 2, 15: 11, 5: 1} {
		r := s.send("p", n)
		require.Equal(t, bus.ReasonAhead, r.Reason)
		require.Contains(t, r.Detail, fmt.Sprintf("expected count %d", expected))
		require.Len(t, r.Rejects, 1)
		require.Nil(t, r.Rejects[0].Payload)
		require.Equal(t, len(errorBody(n)), r.Rejects[0].Size)
		require.Empty(t, r.Facts)
		require.Equal(t, before, s.state.AppendPublishers(nil))
	}

	require.Equal(t, projection.Applied, s.send("p", 11).Outcome, "an end of a range needs no new one")
	require.Equal(t, projection.Applied, s.send("p", last+2).Outcome)
	for n := uint64(12); n < 20; n++ {
		require.Equal(t, projection.Applied, s.send("p", n).Outcome)
	}
	require.Equal(t, projection.Applied, s.send("p", last+4).Outcome, "a range has gone")
	require.Equal(t, bus.ReasonAhead, s.send("p", 5).Reason)
}

// A session keeps the counts of the 64 publishers seen last. A repeated message
// is a sign of life, a conflict is not.
func TestCounts_Eviction(t *testing.T) {
	s := newSession(t)
	name := func(i int) string { return fmt.Sprint("p", i) }
	for i := range projection.MaxPublishers {
		s.send(name(i), 1)
	}
	require.Equal(t, projection.Duplicate, s.send(name(0), 1).Outcome)
	require.Equal(t, bus.ReasonConflict, s.apply(bus.ClassError, counted(name(1), 1), `{"message":"other"}`).Reason)
	require.Equal(t, bus.ReasonBody, s.apply(bus.ClassError, counted(name(2), 2), `{}`).Reason)
	s.state.Changed = 0
	require.Equal(t, bus.ReasonAhead, func() bus.Reason {
		// Being ahead is none either, and needs no entry.
		for i := range uint64(projection.MaxMissingRanges) {
			s.send(name(3), 10*(i+1))
		}
		return s.send(name(3), 10*projection.MaxMissingRanges+7).Reason
	}())
	s.send("new", 1)
	require.Len(t, s.state.Publishers.Seen, projection.MaxPublishers)
	require.Equal(t, "new", s.state.Publishers.Seen[0].ID)
	for i, kept := range []bool{true, false, true, true, true} {
		known, _ := s.state.Publishers.Status(name(i), 1)
		_, missing := s.state.Publishers.Status(name(i), 2)
		require.Equal(t, kept, known || missing, name(i))
	}
	require.Equal(t, projection.Applied, s.send(name(1), 1).Outcome, "who is not known begins anew")
}

// A rejected message has used its count: the same again is a duplicate without a
// second entry, another body a conflict. It creates no session.
func TestCounts_RejectedUses(t *testing.T) {
	for _, m := range []struct {
		class bus.Class
		body  string
	}{{bus.ClassError, `{}`}, {bus.ClassError, `no JSON`}, {"nonsense", `{}`}, {"nonsense", `no JSON`}} {
		t.Run(string(m.class)+m.body, func(t *testing.T) {
			s := newSession(t)
			require.Equal(t, projection.Rejected, s.apply(m.class, counted("p", 1), m.body).Outcome)
			require.False(t, s.state.Exists)
			require.Equal(t, projection.PartPublishers, s.state.Changed)
			r := s.apply(m.class, counted("p", 1), m.body)
			require.Equal(t, projection.Duplicate, r.Outcome)
			require.Empty(t, r.Rejects)
			require.Equal(t, bus.ReasonConflict, s.send("p", 1).Reason)
			require.Equal(t, projection.Applied, s.send("p", 2).Outcome)
			require.True(t, s.state.Exists)
		})
	}
}

// A late message gives its facts, but what a later count of the same publisher
// has set stands.
func TestCounts_Late(t *testing.T) {
	activity := func(state string) string {
		return fmt.Sprintf(`{"recorded_at_ms":1,"activity":{"state":%q}}`, state)
	}
	shown := func(s *session, member string) string { return string(s.view()[member]) }

	t.Run("activity", func(t *testing.T) {
		s := newSession(t)
		s.apply(bus.ClassActivity, counted("p", 3), activity("three"))
		r := s.apply(bus.ClassActivity, counted("p", 2), activity("two"))
		require.Equal(t, []string{`activity_changed {"activity":{"state":"two"}}`}, facts(r))
		require.Equal(t, `{"state":"three"}`, shown(s, "activity"))
		r = s.apply(bus.ClassActivity, counted("p", 1), activity("three"))
		require.Equal(t, projection.Applied, r.Outcome)
		require.Empty(t, r.Facts, "compared with the present one")
	})
	t.Run("said again counts as set again", func(t *testing.T) {
		s := newSession(t)
		s.apply(bus.ClassActivity, counted("p", 1), activity("a"))
		s.apply(bus.ClassActivity, counted("p", 3), activity("a"))
		s.apply(bus.ClassActivity, counted("p", 2), activity("b"))
		require.Equal(t, `{"state":"a"}`, shown(s, "activity"))
	})
	t.Run("a later count that did not set it", func(t *testing.T) {
		s := newSession(t)
		s.apply(bus.ClassActivity, counted("p", 1), activity("one"))
		s.send("p", 3)
		s.apply(bus.ClassActivity, counted("p", 2), activity("two"))
		require.Equal(t, `{"state":"two"}`, shown(s, "activity"))
	})
	t.Run("another publisher, or none, in between", func(t *testing.T) {
		for _, other := range []bus.Identity{counted("q", 9), {EventID: "e"}, {}} {
			s := newSession(t)
			s.apply(bus.ClassActivity, counted("p", 2), activity("two"))
			s.apply(bus.ClassActivity, other, activity("other"))
			s.apply(bus.ClassActivity, counted("p", 1), activity("one"))
			require.Equal(t, `{"state":"one"}`, shown(s, "activity"))
		}
	})
	t.Run("record, member by member", func(t *testing.T) {
		s := newSession(t)
		s.apply(bus.ClassSession, counted("p", 1), `{"op":"save","title":"t1","state":"s1","last_error":"e1"}`)
		s.apply(bus.ClassSession, counted("p", 3), `{"op":"save","title":"t3","last_error":null}`)
		r := s.apply(bus.ClassSession, counted("p", 2), `{"op":"save","title":"t2","state":"s2","last_error":"e2"}`)
		require.Equal(t, []string{`error {"message":"e2","command_id":null}`}, facts(r))
		require.Equal(t, `"t3"`, shown(s, "title"))
		require.Equal(t, `"s2"`, shown(s, "state"))
		require.Equal(t, `null`, shown(s, "last_error"))
	})
}

// Random counts against a naive model that remembers everything: every message is
// applied once, in whatever order it comes, unless it is ahead.
func TestCounts_Model(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSession(t)
		used := map[uint64]string{} // body by count
		last := uint64(0)
		ranges := func(extra uint64) int {
			n, inside := 0, false
			for c := uint64(1); c <= max(last, extra); c++ {
				_, have := used[c]
				have = have || c == extra
				if !have && !inside {
					n++
				}
				inside = !have
			}
			return n
		}
		kept := func(n uint64) bool {
			higher := 0
			for c := range used {
				if c > n {
					higher++
				}
			}
			return higher < projection.MaxCountHashes
		}
		for range rapid.IntRange(1, 400).Draw(rt, "messages") {
			n := rapid.Uint64Range(1, last+4).Draw(rt, "count")
			if rapid.Bool().Draw(rt, "low") {
				n = rapid.Uint64Range(1, 300).Draw(rt, "any")
			}
			body := fmt.Sprintf(`{"message":"%d %v"}`, n, rapid.IntRange(0, 9).Draw(rt, "body") == 0)
			r := s.apply(bus.ClassError, counted("p", n), body)
			first, have := used[n]
			switch {
			case have && first == body, have && !kept(n):
				require.Equal(rt, projection.Duplicate, r.Outcome)
			case have:
				require.Equal(rt, bus.ReasonConflict, r.Reason)
			case ranges(n) > projection.MaxMissingRanges:
				require.Equal(rt, bus.ReasonAhead, r.Reason)
			default:
				require.Equal(rt, projection.Applied, r.Outcome)
				used[n] = body
				last = max(last, n)
			}
			var wrong []uint64
			for c := uint64(1); c <= last+1; c++ {
				_, have := used[c]
				if known, missing := s.state.Publishers.Status("p", c); known != have || missing != (!have && c < last) {
					wrong = append(wrong, c)
				}
			}
			require.Empty(rt, wrong, "counts whose status differs")
			highest := slices.Sorted(maps.Keys(used))
			require.Equal(rt, highest[max(0, len(highest)-projection.MaxCountHashes):], keptCounts(s))
		}
	})
}

func keptCounts(s *session) (counts []uint64) {
	for _, h := range s.state.Publishers.Seen[0].Hashes {
		counts = append(counts, h.Count)
	}
	return counts
}
