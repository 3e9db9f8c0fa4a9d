package projection_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// Observations that the tables below are made of.
func queued(id string) string {
	return fmt.Sprintf(`{"type":"command_queued","data":{"command_id":%q,"command":{"type":"prompt","data":{"prompt":[]}},"created_at_ms":1}}`, id)
}
func setConfig(id string) string {
	return fmt.Sprintf(`{"type":"command_queued","data":{"command_id":%q,"command":{"type":"set_config","data":{"key":"k","value":"v"}},"created_at_ms":1}}`, id)
}
func command(id, typ string) string {
	return fmt.Sprintf(`{"type":"command_queued","data":{"command_id":%q,"command":{"type":%q},"created_at_ms":1}}`, id, typ)
}
func started(id string) string {
	return fmt.Sprintf(`{"type":"command_started","data":{"command_id":%q,"started_at_ms":2}}`, id)
}
func completed(id, outcome, data string) string {
	return fmt.Sprintf(`{"type":"command_completed","data":{"command_id":%q,"outcome":{"type":%q,"data":%s}}}`, id, outcome, data)
}
func ended(id, stop string) string { return completed(id, "prompt", `{"stop_reason":"`+stop+`"}`) }
func failed(kind, id, command, message string) string {
	return fmt.Sprintf(`{"type":"command_%s","data":{"command_id":%q,"command":%q,"message":%q}}`, kind, id, command, message)
}
func asked(id, message string) string {
	return fmt.Sprintf(`{"type":"elicitation_requested","data":{"request":%s}}`, request(id, message))
}
func request(id, message string) string {
	return fmt.Sprintf(`{"id":%q,"message":%q,"fields":[]}`, id, message)
}
func answered(id string) string {
	return fmt.Sprintf(`{"type":"elicitation_resolved","data":{"elicitation_id":%q,"action":"accept"}}`, id)
}

const (
	opened    = `{"type":"session_opened","data":{"native_session_id":"n","resumed":true}}`
	cleared   = `{"type":"elicitations_cleared"}`
	restarted = `{"type":"session_restarted"}`
	closing   = `{"type":"closing"}`
	closed    = `{"type":"closed"}`
	harness   = `{"type":"harness_turn_started","data":{"started_at_ms":5}}`
	settled   = `{"type":"harness_turn_settled","data":{"origin":null,"prompt_in_flight":false}}`
)

// turn is the JSON of an active turn.
func turn(id string, accepted, start uint64, startedAt int64) string {
	return fmt.Sprintf(`{"command_id":%q,"accepted_ordinal":%d,"turn_start_position":%d,"started_at_ms":%d}`, id, accepted, start, startedAt)
}

// Every row of the projection rules: what an observation changes in the view and
// which facts it gives, in their order, byte for byte. The observation's ordinal
// is the number of observations before it plus one, its recorded time ten times that.
func TestObserve_Rules(t *testing.T) {
	runs := []string{queued("p"), started("p")}
	rows := []struct {
		name        string
		before      []string
		observation string
		facts       []string
		view        map[string]string // members of the session that the row is about
	}{
		{
			name: "queued prompt", observation: queued("p"),
			view: map[string]string{"queued_prompts": `[{"command_id":"p","kind":"prompt","accepted_ordinal":1,"queued_at_ms":1}]`, "active_turn": `null`, "execution": `null`},
		}, {
			name: "queued again gives up its place", before: []string{queued("p"), queued("q")}, observation: setConfig("p"),
			view: map[string]string{"queued_prompts": `[{"command_id":"q","kind":"prompt","accepted_ordinal":2,"queued_at_ms":1},{"command_id":"p","kind":"set_config","accepted_ordinal":3,"queued_at_ms":1}]`},
		}, {
			name: "queued close", before: runs, observation: command("c", "close"),
			view: map[string]string{"execution": `{"kind":"closing"}`, "queued_prompts": `[]`},
		}, {
			name: "other commands are not queued", observation: command("c", "run_user_shell"),
			view: map[string]string{"queued_prompts": `[]`, "execution": `null`},
		}, {
			name: "started prompt", before: []string{queued("p")}, observation: started("p"),
			facts: []string{`turn_started {"turn":` + turn("p", 1, 2, 2) + `}`},
			view:  map[string]string{"active_turn": turn("p", 1, 2, 2), "queued_prompts": `[]`, "execution": `{"kind":"running","started_at_ms":2}`},
		}, {
			name: "started setting is no turn", before: []string{setConfig("k")}, observation: started("k"),
			view: map[string]string{"active_turn": `null`, "queued_prompts": `[]`, "execution": `null`},
		}, {
			name: "started, not queued", before: []string{queued("p")}, observation: started("other"),
			view: map[string]string{"active_turn": `null`, "execution": `null`},
		}, {
			name: "a second start replaces the turn", before: []string{queued("p"), started("p"), queued("q")}, observation: started("q"),
			facts: []string{`turn_started {"turn":` + turn("q", 3, 4, 2) + `}`},
			view:  map[string]string{"active_turn": turn("q", 3, 4, 2)},
		}, {
			name: "completed", before: runs, observation: ended("p", "end_turn"),
			facts: []string{`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"end_turn"}}}`},
			view:  map[string]string{"active_turn": `null`, "execution": `{"kind":"idle"}`, "last_turn_outcome": `{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"end_turn"}}`},
		}, {
			name: "completed, diagnostic and usage as sent", before: runs,
			observation: completed("p", "prompt", `{"stop_reason":"EndTurn","diagnostic":{"message":"m","n":1.0},"usage":{"total_tokens":18446744073709551615}}`),
			facts:       []string{`turn_ended {"turn":{"diagnostic":{"message":"m","n":1.0},"usage":{"total_tokens":18446744073709551615},"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"EndTurn"}}}`},
		}, {
			name: "completed, null is absent", before: runs,
			observation: completed("p", "prompt", `{"stop_reason":"EndTurn","diagnostic":null,"usage":null}`),
			facts:       []string{`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"EndTurn"}}}`},
		}, {
			name: "completed under another id clears the turn, takes no ordinals", before: runs, observation: ended("other", "cancelled"),
			facts: []string{`turn_ended {"turn":{"command_id":"other","completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"cancelled"}}}`},
			view:  map[string]string{"active_turn": `null`, "execution": `{"kind":"idle"}`},
		}, {
			name: "completed from the queue, never started", before: []string{queued("p")}, observation: ended("p", "end_turn"),
			facts: []string{`turn_ended {"turn":{"command_id":"p","completed_ordinal":2,"completed_at_ms":20,"outcome":{"kind":"completed","stop_reason":"end_turn"}}}`},
			view:  map[string]string{"queued_prompts": `[]`},
		}, {
			name: "completed, input required", before: runs, observation: ended("p", "awaiting_input"),
			facts: []string{`input_required {"turn_id":1}`,
				`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"awaiting_input"}}}`},
		}, {
			name: "completed, input required without a turn", observation: ended("p", "AwaitingInput"),
			facts: []string{`input_required {"turn_id":null}`,
				`turn_ended {"turn":{"command_id":"p","completed_ordinal":1,"completed_at_ms":10,"outcome":{"kind":"completed","stop_reason":"AwaitingInput"}}}`},
		}, {
			name: "completed, error", before: runs, observation: ended("p", "refusal"),
			facts: []string{`error {"message":"refusal","command_id":"p"}`,
				`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"completed","stop_reason":"refusal"}}}`},
		}, {
			name: "steered", before: []string{queued("p"), started("p"), queued("q")}, observation: completed("s", "steered", `{"queued_command_id":"q"}`),
			facts: []string{`turn_started {"turn":` + turn("q", 3, 4, 40) + `}`},
			view:  map[string]string{"active_turn": turn("q", 3, 4, 40), "queued_prompts": `[]`, "execution": `{"kind":"running","started_at_ms":2}`},
		}, {
			name: "queue changed", before: []string{queued("p"), queued("q"), setConfig("k")}, observation: completed("r", "queue_changed", `{"removed_command_ids":["k","p","nobody"]}`),
			view: map[string]string{"queued_prompts": `[{"command_id":"q","kind":"prompt","accepted_ordinal":2,"queued_at_ms":1}]`},
		}, {
			name: "closed command", before: []string{queued("p")}, observation: completed("p", "closed", `{}`),
			view: map[string]string{"queued_prompts": `[]`, "execution": `{"kind":"closed"}`},
		}, {
			name: "configured", before: []string{setConfig("k")}, observation: completed("k", "configured", `{}`),
			view: map[string]string{"queued_prompts": `[]`, "execution": `null`},
		}, {
			name: "other outcomes", before: runs, observation: completed("p", "user_shell", `{"result":1}`),
			view: map[string]string{"active_turn": turn("p", 1, 2, 2)},
		}, {
			name: "rejected prompt in the queue", before: []string{queued("p")}, observation: failed("rejected", "p", "prompt", "no"),
			facts: []string{`error {"message":"no","command_id":"p"}`,
				`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"completed_ordinal":2,"completed_at_ms":20,"outcome":{"kind":"rejected","message":"no"}}}`},
			view: map[string]string{"queued_prompts": `[]`, "execution": `null`},
		}, {
			name: "interrupted prompt at work", before: runs, observation: failed("interrupted", "p", "prompt", "stop"),
			facts: []string{`error {"message":"stop","command_id":"p"}`,
				`turn_ended {"turn":{"command_id":"p","accepted_ordinal":1,"turn_start_position":2,"completed_ordinal":3,"completed_at_ms":30,"outcome":{"kind":"interrupted","message":"stop"}}}`},
			view: map[string]string{"active_turn": `null`, "execution": `{"kind":"idle"}`},
		}, {
			name: "interrupted prompt leaves another turn", before: append([]string{queued("q")}, queued("p"), started("p")), observation: failed("interrupted", "q", "prompt", "stop"),
			facts: []string{`error {"message":"stop","command_id":"q"}`,
				`turn_ended {"turn":{"command_id":"q","accepted_ordinal":1,"completed_ordinal":4,"completed_at_ms":40,"outcome":{"kind":"interrupted","message":"stop"}}}`},
			view: map[string]string{"active_turn": turn("p", 2, 3, 2), "execution": `{"kind":"running","started_at_ms":2}`},
		}, {
			name: "interrupted prompt that a steer replaced had started", before: []string{queued("p"), started("p"), queued("q"), completed("s", "steered", `{"queued_command_id":"q"}`)}, observation: failed("interrupted", "p", "prompt", "stop"),
			facts: []string{`error {"message":"stop","command_id":"p"}`,
				`turn_ended {"turn":{"command_id":"p","completed_ordinal":5,"completed_at_ms":50,"outcome":{"kind":"interrupted","message":"stop"}}}`},
			view: map[string]string{"active_turn": turn("q", 3, 4, 40), "execution": `{"kind":"idle"}`},
		}, {
			name: "rejected close while closing", before: []string{command("c", "close")}, observation: failed("rejected", "c", "close", "busy"),
			facts: []string{`error {"message":"busy","command_id":"c"}`},
			view:  map[string]string{"execution": `{"kind":"idle"}`},
		}, {
			name: "rejected close while not closing", before: runs, observation: failed("rejected", "c", "close", "busy"),
			facts: []string{`error {"message":"busy","command_id":"c"}`},
			view:  map[string]string{"execution": `{"kind":"running","started_at_ms":2}`},
		}, {
			name: "rejected setting", before: []string{setConfig("k")}, observation: failed("rejected", "k", "set_config", "no"),
			facts: []string{`error {"message":"no","command_id":"k"}`},
			view:  map[string]string{"queued_prompts": `[]`, "last_turn_outcome": `null`},
		}, {
			name: "question", observation: asked("q", "Which?"),
			facts: []string{`input_required {"request":` + request("q", "Which?") + `,"turn_id":null}`},
			view:  map[string]string{"pending_elicitations": `[` + request("q", "Which?") + `]`},
		}, {
			name: "question in a turn", before: runs, observation: asked("q", "Which?"),
			facts: []string{`input_required {"request":` + request("q", "Which?") + `,"turn_id":1}`},
		}, {
			name: "the same question again", before: []string{asked("q", "Which?"), asked("r", "")}, observation: asked("q", "Which?"),
			view: map[string]string{"pending_elicitations": `[` + request("r", "") + `,` + request("q", "Which?") + `]`},
		}, {
			name: "a changed question", before: []string{asked("q", "Which?")}, observation: asked("q", "Who?"),
			facts: []string{`input_required {"request":` + request("q", "Who?") + `,"turn_id":null}`},
			view:  map[string]string{"pending_elicitations": `[` + request("q", "Who?") + `]`},
		}, {
			name: "answer", before: append([]string{asked("q", "Which?")}, runs...), observation: answered("q"),
			facts: []string{`input_resolved {"elicitation_id":"q","turn_id":2,"action":"accept"}`},
			view:  map[string]string{"pending_elicitations": `[]`},
		}, {
			name: "answer to nobody's question", before: []string{asked("q", "Which?")}, observation: answered("r"),
			view: map[string]string{"pending_elicitations": `[` + request("q", "Which?") + `]`},
		}, {
			name: "cleared", before: []string{asked("q", "?"), asked("r", "?")}, observation: cleared,
			facts: []string{`input_resolved {"elicitation_id":"q","turn_id":null,"action":"cleared"}`, `input_resolved {"elicitation_id":"r","turn_id":null,"action":"cleared"}`},
			view:  map[string]string{"pending_elicitations": `[]`},
		}, {
			name: "opening clears", before: append([]string{asked("q", "?")}, runs...), observation: opened,
			facts: []string{`input_resolved {"elicitation_id":"q","turn_id":2,"action":"cleared"}`},
			view:  map[string]string{"pending_elicitations": `[]`, "active_turn": turn("p", 2, 3, 2)},
		}, {
			name: "the end of a turn leaves its questions", before: append([]string{asked("q", "?")}, runs...), observation: ended("p", "end_turn"),
			facts: []string{`turn_ended {"turn":{"command_id":"p","accepted_ordinal":2,"turn_start_position":3,"completed_ordinal":4,"completed_at_ms":40,"outcome":{"kind":"completed","stop_reason":"end_turn"}}}`},
			view:  map[string]string{"pending_elicitations": `[` + request("q", "?") + `]`},
		}, {
			name: "restarted while running", before: runs, observation: restarted,
			view: map[string]string{"active_turn": turn("p", 1, 2, 2), "execution": `{"kind":"idle"}`},
		}, {
			name: "restarted while closing", before: []string{closing}, observation: restarted,
			view: map[string]string{"execution": `{"kind":"closing"}`},
		}, {
			name: "harness turn", observation: harness,
			view: map[string]string{"active_turn": `null`, "execution": `{"kind":"running","started_at_ms":5}`},
		}, {
			name: "harness turn within a turn", before: runs, observation: harness,
			view: map[string]string{"execution": `{"kind":"running","started_at_ms":2}`},
		}, {
			name: "harness settled", before: []string{harness}, observation: settled,
			view: map[string]string{"execution": `{"kind":"idle"}`},
		}, {
			name: "harness settled, default", before: []string{harness}, observation: `{"type":"harness_turn_settled","data":{"origin":null}}`,
			view: map[string]string{"execution": `{"kind":"idle"}`},
		}, {
			name: "harness settled with a prompt in flight", before: []string{harness}, observation: `{"type":"harness_turn_settled","data":{"prompt_in_flight":true}}`,
			view: map[string]string{"execution": `{"kind":"running","started_at_ms":5}`},
		}, {
			name: "closing", before: runs, observation: closing,
			view: map[string]string{"execution": `{"kind":"closing"}`, "active_turn": turn("p", 1, 2, 2)},
		}, {
			name: "closed", observation: closed,
			view: map[string]string{"execution": `{"kind":"closed"}`},
		}, {
			name: "runtime", observation: `{"type":"agent_initialized","data":{"protocol_version":1,"runtime":{"id":null,"harness":"codex","components":[],"n":1e2}}}`,
			facts: []string{`runtime_resolved {"receipt":{"id":null,"harness":"codex","components":[],"n":1e2,"event_ordinal":1,"observed_at_ms":10}}`},
			view:  map[string]string{"runtime": `{"id":null,"harness":"codex","components":[],"n":1e2,"event_ordinal":1,"observed_at_ms":10}`},
		}, {
			name: "runtime without members", observation: `{"type":"agent_initialized","data":{"runtime":{}}}`,
			facts: []string{`runtime_resolved {"receipt":{"event_ordinal":1,"observed_at_ms":10}}`},
		}, {
			name: "no runtime", observation: `{"type":"agent_initialized","data":{"protocol_version":1}}`,
			view: map[string]string{"runtime": `null`},
		}, {
			name: "null runtime", observation: `{"type":"agent_initialized","data":{"runtime":null}}`,
			view: map[string]string{"runtime": `null`},
		}, {
			name: "what only a transcript needs", observation: `{"type":"terminal_output","data":{"terminal_id":"t","output":"o","truncated":false}}`,
		}, {
			name: "a type of the future", observation: `{"type":"from_the_future","data":7,"data":8}`,
		}, {
			name: "an outcome of the future", observation: completed("c", "from_the_future", `{}`),
		}, {
			name: "a command of the future", observation: command("c", "from_the_future"),
			view: map[string]string{"queued_prompts": `[]`},
		}, {
			name: "names and ids may be escaped, and come back as sent", before: []string{queued("p"), asked("q", "?")},
			observation: "{\"ty\\u0070e\":\"elicitation_r\\u0065solved\",\"data\":{\"elicitation_id\":\"\\u0071\",\"action\":\"\u2028<&>\\ud800\"}}",
			facts:       []string{"input_resolved {\"elicitation_id\":\"q\",\"turn_id\":null,\"action\":\"\u2028<&>\\ud800\"}"},
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := &journal{}
			for _, o := range row.before {
				j.add(o)
			}
			s := newSession(t)
			if n := uint64(len(row.before)); n > 0 {
				r := s.mustApply(bus.ClassProjection, j.page(1, n))
				require.Zero(t, r.Unprojected, "what stands before is usable")
			}
			e := j.add(row.observation)
			r := s.mustApply(bus.ClassProjection, j.page(e.Ordinal, e.Ordinal))
			require.Zero(t, r.Unprojected)
			require.Equal(t, append([]string{}, row.facts...), facts(r))
			for _, f := range r.Facts {
				require.True(t, json.Valid(f.Data))
				require.Equal(t, recordedAt(e.Ordinal), f.RecordedAt)
				require.Equal(t, bus.Source{Chain: e.ChainPosition}, f.Source)
			}
			view := s.view()
			for member, want := range row.view {
				require.Equal(t, want, string(view[member]), member)
			}
			require.Equal(t, fmt.Sprint(recordedAt(e.Ordinal)), string(view["last_activity_at_ms"]))
			require.Equal(t, fmt.Sprintf(`{"ordinal":%d,"digest":"%s"}`, e.Ordinal, e.Digest), string(view["frontier"]))
		})
	}
}

// view returns the members of the session's rendering.
func (s *session) view() map[string]json.RawMessage {
	s.t.Helper()
	var v map[string]json.RawMessage
	require.NoError(s.t, json.Unmarshal(s.state.AppendSession(nil, bus.Key{Workspace: "w", Session: "s"}, projection.SessionEvents{}), &v))
	return v
}
