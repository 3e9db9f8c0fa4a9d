package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// A message of EVENTS is ours only if its body says what its subject and sequence
// say: whatever else somebody stores there takes a number and nothing more.
func TestParseFact(t *testing.T) {
	s, err := bus.NewSubjects("")
	require.NoError(t, err)
	want := bus.Event{Seq: 7, Session: "a b", Workspace: "w", RecordedAt: 1, StoredAt: 2, Type: bus.TypeError, Data: []byte(`{"message":"x"}`)}
	body, subject := want.AppendJSON(nil), s.Event(want.Key(), want.Type)
	h := nats.Header{}
	origin := bus.Origin{Seq: 3, Time: 2_000_000, Index: 1}
	origin.SetHeaders(h)

	ev, o, ok := s.ParseFact(7, subject, h, body)
	require.True(t, ok)
	require.Equal(t, want, ev)
	require.Equal(t, origin, o)

	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h["traceparent"] = []string{trace}
	ev, _, ok = s.ParseFact(7, subject, h, body)
	require.True(t, ok)
	require.Equal(t, trace, ev.Traceparent)
	require.Equal(t, body, ev.AppendJSON(nil), "the wire form is the same")

	elsewhere := bus.Key{Workspace: "w", Session: "other"}
	for name, foreign := range map[string]func() bool{
		"no origin":     func() bool { _, _, ok := s.ParseFact(7, subject, nil, body); return ok },
		"other number":  func() bool { _, _, ok := s.ParseFact(8, subject, h, body); return ok },
		"other session": func() bool { _, _, ok := s.ParseFact(7, s.Event(elsewhere, want.Type), h, body); return ok },
		"other type":    func() bool { _, _, ok := s.ParseFact(7, s.Event(want.Key(), "turn_ended"), h, body); return ok },
		"no subject":    func() bool { _, _, ok := s.ParseFact(7, "skald.ev.=.=.void", h, body); return ok },
		"cut off":       func() bool { _, _, ok := s.ParseFact(7, subject, h, body[:20]); return ok },
		"empty":         func() bool { _, _, ok := s.ParseFact(7, subject, h, nil); return ok },
	} {
		require.False(t, foreign(), name)
	}
}
