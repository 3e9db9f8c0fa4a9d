package projection_test

import (
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// The session of which nothing is known, and one of which all is: every member, in
// its order, byte for byte.
func TestAppendSession(t *testing.T) {
	s := newSession(t)
	key := bus.Key{Workspace: "w \"1\"", Session: "s<2>"}
	require.Equal(t, `{"session_id":"s<2>","workspace_id":"w \"1\"","title":null,"state":null,"last_error":null,"execution":null,`+
		`"active_turn":null,"last_turn_outcome":null,"pending_elicitations":[],"queued_prompts":[],"activity":null,`+
		`"frontier":{"ordinal":0,"digest":"0000000000000000000000000000000000000000000000000000000000000000"},"runtime":null,`+
		`"last_activity_at_ms":null,"held":{"pages":0,"waiting_for":null},"events":{"count":0,"first_seq":null,"last_seq":null}}`,
		string(s.state.AppendSession(nil, key, projection.SessionEvents{})))

	j := &journal{}
	for _, o := range []string{
		`{"type":"agent_initialized","data":{"runtime":{"id":"r"}}}`, queued("p"), started("p"), ended("p", "end_turn"),
		queued("q"), started("q"), asked("a", "?"), asked("b", "<"), queued("r"), setConfig("k"), closed, closed,
	} {
		j.add(o)
	}
	s.mustApply(bus.ClassProjection, j.page(1, 10))
	s.hold(j.page(12, 12))
	s.mustApply(bus.ClassSession, `{"op":"save","recorded_at_ms":1,"title":"t","state":"\u0072unning","last_error":"e"}`)
	s.mustApply(bus.ClassActivity, `{"recorded_at_ms":1,"activity":{"n":1e0}}`)
	require.Equal(t, fmt.Sprintf(`prefix{"session_id":"s<2>","workspace_id":"w \"1\"","title":"t","state":"\u0072unning","last_error":"e","execution":{"kind":"running","started_at_ms":2},`+
		`"active_turn":{"command_id":"q","accepted_ordinal":5,"turn_start_position":6,"started_at_ms":2},`+
		`"last_turn_outcome":{"command_id":"p","accepted_ordinal":2,"turn_start_position":3,"completed_ordinal":4,"completed_at_ms":40,"outcome":{"kind":"completed","stop_reason":"end_turn"}},`+
		`"pending_elicitations":[{"id":"a","message":"?","fields":[]},{"id":"b","message":"<","fields":[]}],`+
		`"queued_prompts":[{"command_id":"r","kind":"prompt","accepted_ordinal":9,"queued_at_ms":1},{"command_id":"k","kind":"set_config","accepted_ordinal":10,"queued_at_ms":1}],`+
		`"activity":{"n":1e0},"frontier":{"ordinal":10,"digest":"%s"},"runtime":{"id":"r","event_ordinal":1,"observed_at_ms":10},`+
		`"last_activity_at_ms":100,"held":{"pages":1,"waiting_for":11},"events":{"count":7,"first_seq":3,"last_seq":18446744073709551615}}`, j.events[9].Digest),
		string(s.state.AppendSession([]byte("prefix"), key, projection.SessionEvents{Count: 7, FirstSeq: 3, LastSeq: 18446744073709551615})))
}

// The position: where a publisher goes on, those seen last first.
func TestAppendPosition(t *testing.T) {
	s := newSession(t)
	key := bus.Key{Workspace: "w", Session: "s"}
	require.Equal(t, `{"workspace_id":"w","session_id":"s","frontier":{"ordinal":0,"digest":"0000000000000000000000000000000000000000000000000000000000000000"},`+
		`"publishers":[],"held":{"pages":0,"waiting_for":null},"ingest_position":0,"epoch":""}`,
		string(s.state.AppendPosition(nil, key, 0, "")))

	s.send("p", 1)
	for _, n := range []uint64{2, 5, 9, 8} {
		s.send(`"q"`, n)
	}
	j := notices(3)
	s.mustApply(bus.ClassProjection, j.page(1, 1))
	s.hold(j.page(3, 3))
	require.Equal(t, fmt.Sprintf(`{"workspace_id":"w","session_id":"s","frontier":{"ordinal":1,"digest":"%s"},`+
		`"publishers":[{"publisher":"\"q\"","count":9,"missing":[[1,1],[3,4],[6,7]]},{"publisher":"p","count":1,"missing":[]}],`+
		`"held":{"pages":1,"waiting_for":2},"ingest_position":77,"epoch":"e"}`, j.events[0].Digest),
		string(s.state.AppendPosition(nil, key, 77, "e")))
}

// Outcomes have the names that status and hints use.
func TestOutcome_String(t *testing.T) {
	require.Equal(t, "none applied duplicate held rejected dropped", fmt.Sprint(
		projection.Outcome(0), projection.Applied, projection.Duplicate, projection.Held, projection.Rejected, projection.Dropped))
}
