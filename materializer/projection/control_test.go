package projection_test

import (
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

func resync(at bus.ChainPosition) string {
	return fmt.Sprintf(`{"op":"resync","ordinal":%d,"digest":"%s"}`, at.Ordinal, at.Digest)
}

// A resync sets the position ahead, keeps what was projected, applies what was
// held and now fits, and leaves an entry that names what it skipped.
func TestResync(t *testing.T) {
	j := failing(12)
	s := newSession(t)
	s.mustApply(bus.ClassProjection, j.page(1, 2))
	s.mustApply(bus.ClassSession, `{"op":"save","title":"t"}`)
	below := s.hold(j.page(5, 6))    // wholly skipped
	atEnd := s.hold(j.page(7, 8))    // ends where the resync goes: skipped as well
	overlap := s.hold(j.page(7, 10)) // agrees at the new position
	rest := s.hold(j.page(11, 12))
	s.state.Changed = 0

	body := resync(j.events[7].ChainPosition)
	r := s.apply(bus.ClassControl, bus.Identity{EventID: "op"}, body)
	require.Equal(t, projection.Applied, r.Outcome)
	require.True(t, r.Remember)
	require.Equal(t, j.at, s.state.Chain.Position)
	require.Equal(t, []string{
		`error {"message":"9","command_id":"c"}`, `error {"message":"10","command_id":"c"}`,
		`error {"message":"11","command_id":"c"}`, `error {"message":"12","command_id":"c"}`,
	}, facts(r))
	require.Equal(t, []projection.HeldKey{below.HeldKey, atEnd.HeldKey, overlap.HeldKey, rest.HeldKey}, r.Release)
	require.Empty(t, s.state.Held)
	require.Equal(t, projection.PartChain|projection.PartHeld, s.state.Changed)
	require.Equal(t, `"t"`, string(s.view()["title"]))

	require.Len(t, r.Rejects, 3)
	require.Equal(t, projection.Reject{
		Seq: s.seq, Time: ingestTime(s.seq), Class: bus.ClassControl, Reason: bus.ReasonResync,
		Detail: "skipped ordinals 3 to 8", Payload: []byte(body), Size: len(body), Identity: bus.Identity{EventID: "op"},
	}, r.Rejects[0])
	for i, h := range []projection.HeldPage{below, atEnd} {
		e := r.Rejects[i+1]
		require.Equal(t, bus.ReasonResync, e.Reason)
		require.Equal(t, []any{h.Seq, h.Time, string(h.Body)}, []any{e.Seq, e.Time, string(e.Payload)})
	}
}

// A held page that reaches over the new position is applied only if it agrees there.
func TestResync_OverlapDiffers(t *testing.T) {
	j := failing(6)
	s := newSession(t)
	h := s.hold(j.page(3, 6))
	to := bus.ChainPosition{Ordinal: 4, Digest: bus.Digest{1}}
	r := s.mustApply(bus.ClassControl, resync(to))
	require.Empty(t, r.Facts)
	require.Equal(t, to, s.state.Chain.Position)
	require.Equal(t, []projection.HeldKey{h.HeldKey}, r.Release)
	require.Len(t, r.Rejects, 2)
	require.Equal(t, bus.ReasonChain, r.Rejects[1].Reason)
}

// A resync that is not ahead is rejected; one of an unknown session makes it exist
// and adopts a journal that began elsewhere.
func TestResync_Ahead(t *testing.T) {
	j := failing(8)
	s := newSession(t)
	s.hold(j.page(6, 8))
	s.state.Exists = false // as if only rejects had come before
	require.Len(t, s.mustApply(bus.ClassControl, resync(j.events[4].ChainPosition)).Facts, 3)
	require.True(t, s.state.Exists)

	for _, n := range []int{7, 0} {
		r := s.apply(bus.ClassControl, bus.Identity{}, resync(j.events[n].ChainPosition))
		require.Equal(t, bus.ReasonChain, r.Reason)
		require.Equal(t, "not ahead of the position 8", r.Detail)
		require.Len(t, r.Rejects, 1)
		require.Equal(t, j.at, s.state.Chain.Position)
	}

	fresh := newSession(t)
	fresh.mustApply(bus.ClassControl, resync(j.events[4].ChainPosition))
	require.True(t, fresh.state.Exists)
	require.Len(t, fresh.mustApply(bus.ClassProjection, j.pageAfter(6, 8)).Facts, 3)
}

// That what goes is to be overwritten is said with the forget, and changes nothing else.
func TestForget_Secure(t *testing.T) {
	s := newSession(t)
	r := s.apply(bus.ClassControl, bus.Identity{}, `{"op":"forget","secure":true}`)
	require.Equal(t, projection.Result{Outcome: projection.Applied, Forget: true, Erase: true, Hash: r.Hash}, r)
	require.Equal(t, projection.State{Forgotten: true, Changed: projection.PartAll}, *s.state)
	require.Equal(t, projection.Result{Outcome: projection.Dropped}, s.apply(bus.ClassControl, bus.Identity{}, `{"op":"forget","secure":true}`))
}

// Forgetting leaves a tombstone that drops whatever comes, of an unknown session too.
func TestForget(t *testing.T) {
	j := failing(4)
	s := newSession(t)
	s.mustApply(bus.ClassProjection, j.page(1, 2))
	s.hold(j.page(4, 4))
	s.send("p", 1)
	s.mustApply(bus.ClassSession, `{"op":"save","title":"t"}`)
	for _, s := range []*session{s, newSession(t)} {
		r := s.apply(bus.ClassControl, bus.Identity{EventID: "op"}, `{"op":"forget"}`)
		require.Equal(t, projection.Result{Outcome: projection.Applied, Forget: true, Hash: r.Hash}, r)
		require.Equal(t, projection.State{Forgotten: true, Changed: projection.PartAll}, *s.state)

		s.state.Changed = 0
		for _, m := range []struct {
			class bus.Class
			body  string
		}{
			{bus.ClassProjection, j.page(3, 3)}, {bus.ClassError, `{"message":"late"}`}, {bus.ClassError, `no JSON`}, {"nonsense", `{}`},
			{bus.ClassControl, `{"op":"forget"}`}, {bus.ClassControl, resync(j.at)}, {bus.ClassSession, `{"op":"save","title":"t"}`},
		} {
			require.Equal(t, projection.Result{Outcome: projection.Dropped}, s.apply(m.class, counted("p", 9), m.body))
		}
		require.Equal(t, projection.State{Forgotten: true}, *s.state)
	}
}
