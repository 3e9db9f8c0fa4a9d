package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// A fact moves what it was deduplicated by, upwards only, and nothing else.
func TestTakeOver(t *testing.T) {
	var s projection.State
	s.TakeOver(bus.Source{Publisher: "p", Count: 7}, 5)
	require.True(t, s.Exists)
	require.EqualValues(t, 5, *s.LastActivityAt)
	known, missing := s.Publishers.Status("p", 3)
	require.True(t, known, "what lies between counts as passed")
	require.False(t, missing)
	s.TakeOver(bus.Source{Publisher: "p", Count: 6}, 4)
	require.EqualValues(t, 7, s.Publishers.Seen[0].Count)
	require.EqualValues(t, 5, *s.LastActivityAt)

	digest := bus.Digest{1}
	s.TakeOver(bus.Source{Chain: bus.ChainPosition{Ordinal: 9, Digest: digest}}, 6)
	s.TakeOver(bus.Source{Chain: bus.ChainPosition{Ordinal: 8}}, 6)
	require.Equal(t, bus.ChainPosition{Ordinal: 9, Digest: digest}, s.Chain.Position)
	require.Zero(t, s.View)

	// A range that was missing is taken apart, as far as there is room.
	s.Publishers.Seen[0].Missing = []projection.Range{{From: 1, To: 5}}
	s.TakeOver(bus.Source{Publisher: "p", Count: 3}, 6)
	require.Equal(t, []projection.Range{{From: 1, To: 2}, {From: 4, To: 5}}, s.Publishers.Seen[0].Missing)

	forgotten := projection.State{Forgotten: true}
	forgotten.TakeOver(bus.Source{Publisher: "p", Count: 1}, 1)
	require.Equal(t, projection.State{Forgotten: true}, forgotten)
}

// An id whose message is not known is that of any message.
func TestApply_IDWithoutHash(t *testing.T) {
	var s projection.State
	m := projection.Message{Class: bus.ClassError, Body: []byte(`{"message":"m"}`), Identity: bus.Identity{EventID: "e"}}
	require.Equal(t, projection.Duplicate, s.Apply(m, &projection.KnownID{}).Outcome)
	require.Equal(t, projection.Rejected, s.Apply(m, &projection.KnownID{Hash: projection.Hash{1}}).Outcome)
}
