package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// rejectedAs requires that the page is rejected for its chain, that nothing but
// an entry comes of it, and that the detail names what differs.
func (s *session) rejectedAs(reason bus.Reason, page, detail string) {
	s.t.Helper()
	before := s.state.AppendChain(nil)
	r := s.apply(bus.ClassProjection, bus.Identity{}, page)
	require.Equal(s.t, projection.Rejected, r.Outcome)
	require.Equal(s.t, reason, r.Reason, r.Detail)
	require.Contains(s.t, r.Detail, detail)
	require.Empty(s.t, r.Facts)
	require.Len(s.t, r.Rejects, 1)
	require.Equal(s.t, page, string(r.Rejects[0].Payload))
	require.Equal(s.t, before, s.state.AppendChain(nil))
}

// fork returns the journal cut after n events, to be continued otherwise.
func (j *journal) fork(n uint64) *journal {
	f := &journal{format: j.format, events: append([]relay(nil), j.events[:n]...)}
	if n > 0 {
		f.at = f.events[n-1].ChainPosition
	}
	return f
}

// A page is applied whole; its facts follow the events' order and name each
// event's place in the chain.
func TestPage_Applied(t *testing.T) {
	j := failing(3)
	s := newSession(t)
	r := s.mustApply(bus.ClassProjection, j.pageAfter(1, 3))
	require.Len(t, r.Facts, 3)
	for i, f := range r.Facts {
		require.Equal(t, fmt.Sprintf(`{"message":"%d","command_id":"c"}`, i+1), string(f.Data))
		require.Equal(t, bus.Source{Chain: j.events[i].ChainPosition}, f.Source)
	}
	require.Equal(t, j.at, s.state.Chain.Position)
	require.True(t, s.state.Exists)
	require.Equal(t, projection.PartExists|projection.PartChain, s.state.Changed)
	require.Equal(t, recordedAt(3), *s.state.LastActivityAt)
}

// White space between tokens changes no digest.
func TestPage_WhiteSpace(t *testing.T) {
	j := failing(2)
	spaced := strings.NewReplacer(`,"`, " ,\n\t\"", `":`, `" : `, `[{`, `[ {`).Replace(j.pageAfter(1, 2))
	s := newSession(t)
	require.Len(t, s.mustApply(bus.ClassProjection, spaced).Facts, 2)
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassProjection, bus.Identity{}, j.page(1, 2)).Outcome)
}

// One wrong event, and nothing of the page is applied.
func TestPage_AllOrNothing(t *testing.T) {
	for _, format := range []int{bus.FormatChained, bus.FormatStandalone} {
		j := &journal{format: format}
		for range 3 {
			j.add(failed("rejected", "c", "x", "m"))
		}
		s := newSession(t)
		s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(1, 3), j.at.Digest.String(), strings.Repeat("f", 64), 1), "event 3")
		s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(1, 3), `"recorded_at_ms":20`, `"recorded_at_ms":21`, 1), "event 2")
		s.rejectedAs(bus.ReasonChain, strings.Replace(j.page(1, 3), j.events[0].Digest.String(), "no hex", 1), "event 1")
		require.False(t, s.state.Exists)
		require.Len(t, s.mustApply(bus.ClassProjection, j.page(1, 3)).Facts, 3)
	}
}

// What lies at or below the position is skipped, digests compared where they are
// known; only the new is applied.
func TestPage_Overlap(t *testing.T) {
	j := failing(6)
	s := newSession(t)
	s.mustApply(bus.ClassProjection, j.page(1, 3))
	for _, p := range []string{j.page(1, 3), j.page(2, 2), j.pageAfter(2, 3), j.pageAfter(1, 1)} {
		s.state.Changed = 0
		r := s.apply(bus.ClassProjection, bus.Identity{}, p)
		require.Equal(t, projection.Duplicate, r.Outcome)
		require.Zero(t, r.Facts)
		require.Zero(t, s.state.Changed)
	}
	r := s.mustApply(bus.ClassProjection, j.pageAfter(2, 5))
	require.Equal(t, facts(newSession(t).mustApply(bus.ClassProjection, j.page(1, 5)))[3:], facts(r))
	require.Equal(t, j.events[4].ChainPosition, s.state.Chain.Position)

	// Not validated where nothing is known to compare with.
	odd := strings.Replace(j.page(2, 6), j.events[1].Digest.String(), "no hex", 1)
	require.Len(t, s.mustApply(bus.ClassProjection, odd).Facts, 1)
}

// A fork is noticed wherever a digest is still known: at genesis, at the position,
// at the ends of the last pages, in events, in previous digests and in after.
func TestPage_Forks(t *testing.T) {
	for _, format := range []int{bus.FormatChained, bus.FormatStandalone} {
		t.Run(fmt.Sprint("format ", format), func(t *testing.T) {
			j := &journal{format: format}
			for i := range 6 {
				j.add(failed("rejected", "c", "x", fmt.Sprint(i)))
			}
			s := newSession(t)
			for first := uint64(1); first < 6; first += 2 {
				s.mustApply(bus.ClassProjection, j.page(first, first+1)) // ends at 2, 4, 6
			}
			other := j.fork(1)
			for range 6 {
				other.add(closed)
			}
			s.rejectedAs(bus.ReasonChain, other.page(2, 2), "event 2")
			s.rejectedAs(bus.ReasonChain, other.page(1, 4), "event 2")
			s.rejectedAs(bus.ReasonChain, other.page(5, 7), map[int]string{bus.FormatChained: "previous_digest", bus.FormatStandalone: "event 6"}[format])
			s.rejectedAs(bus.ReasonChain, other.pageAfter(5, 5), "after.digest")
			s.rejectedAs(bus.ReasonChain, other.pageAfter(7, 7), "after.digest")
			if format == bus.FormatChained {
				s.rejectedAs(bus.ReasonChain, other.page(7, 7), "event 7")
				s.rejectedAs(bus.ReasonChain, other.page(3, 3), "previous_digest: of event 3")
			}
			// Nothing is known of 3, so that this is taken for what was applied.
			require.Equal(t, projection.Duplicate, s.apply(bus.ClassProjection, bus.Identity{}, j.fork(1).page(1, 1)).Outcome)
			require.Empty(t, s.mustApply(bus.ClassProjection, `{"events":[`+j.fork(6).add(closed).json+`]}`).Facts, "the chain goes on")
		})
	}
}

// A redelivered event of format 1 may leave its previous digest empty.
func TestPage_EmptyPreviousDigestBelow(t *testing.T) {
	j := failing(2)
	s := newSession(t)
	s.mustApply(bus.ClassProjection, j.page(1, 2))
	empty := strings.Replace(j.page(2, 2), `"previous_digest":"`+j.events[0].Digest.String()+`"`, `"previous_digest":""`, 1)
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassProjection, bus.Identity{}, empty).Outcome)
}

// Digests stay known at the ends of the last 64 pages, no longer.
func TestPage_EndsAreForgotten(t *testing.T) {
	const n = projection.MaxChainEnds + 1
	j := &journal{format: bus.FormatStandalone}
	s := newSession(t)
	for i := uint64(1); i <= n; i++ {
		j.add(closed)
		s.mustApply(bus.ClassProjection, j.page(i, i))
	}
	require.Len(t, s.state.Chain.Ends, projection.MaxChainEnds)
	other := &journal{format: bus.FormatStandalone}
	for range n {
		other.add(closing)
	}
	s.rejectedAs(bus.ReasonChain, other.page(2, 2), "event 2")
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassProjection, bus.Identity{}, other.page(1, 1)).Outcome)
	s.rejectedAs(bus.ReasonChain, other.page(1, n), "event 2")
}

// The shape is checked first, of wholly known pages too.
func TestPage_Shape(t *testing.T) {
	j := failing(4)
	s := newSession(t)
	s.mustApply(bus.ClassProjection, j.page(1, 4))
	hole := `{"events":[` + j.events[0].json + `,` + j.events[2].json + `]}`
	twice := `{"events":[` + j.events[0].json + `,` + j.events[0].json + `]}`
	s.rejectedAs(bus.ReasonPage, hole, "ordinal")
	s.rejectedAs(bus.ReasonPage, twice, "ordinal")
	s.rejectedAs(bus.ReasonPage, strings.Replace(j.pageAfter(3, 4), `"after":{"ordinal":2`, `"after":{"ordinal":1`, 1), "after.ordinal")
}
