//go:build unix

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every fact has its sentence, and data of whatever shape has one too.
func TestPage_Sentences(t *testing.T) {
	t.Parallel()
	p := browse(t, shared(t).http, 800, 600)
	for _, c := range []struct{ kind, data, says string }{
		{"turn_started", `{"turn":{"command_id":"p1","started_at_ms":5}}`, "Turn started: p1"},
		{"turn_ended", `{"turn":{"command_id":"p0","completed_at_ms":65000,"outcome":{"kind":"completed","stop_reason":"EndTurn"},"usage":{"total_tokens":1234}}}`, "Turn finished after 1 min 4 s, 1,234 tokens"},
		{"turn_ended", `{"turn":{"outcome":{"kind":"completed","stop_reason":"awaiting_input"}}}`, "Turn ended; waits for the next prompt"},
		{"turn_ended", `{"turn":{"outcome":{"kind":"completed","stop_reason":"canceled"}}}`, "Turn was cancelled"},
		{"turn_ended", `{"turn":{"outcome":{"kind":"completed","stop_reason":"ModelCapacity"},"diagnostic":{"message":"try later"}}}`, "Turn stopped at a limit of quota or capacity: try later"},
		{"turn_ended", `{"turn":{"outcome":{"kind":"completed","stop_reason":"max_tokens"}}}`, "Turn stopped: max_tokens"},
		{"turn_ended", `{"turn":{"outcome":{"kind":"rejected","message":"no"}}}`, "Prompt was rejected: no"},
		{"error", `{"message":"disk\n full","command_id":null}`, "disk full"},
		{"input_required", `{"request":{"id":"q","message":"Which?","fields":[{"id":"a","title":"A"},{"id":"b"}]},"turn_id":1}`, "Asks: Which? (A, b)"},
		{"input_required", `{"turn_id":null}`, "Waits for the next prompt"},
		{"input_resolved", `{"elicitation_id":"q","turn_id":1,"action":"accept"}`, "Answered: Which?"},
		{"input_resolved", `{"elicitation_id":"other","action":"cleared"}`, "No longer asked: other"},
		{"activity_changed", busy, "Running: go test"},
		{"activity_changed", `{"activity":{"n":1}}`, `{"n":1}`},
		{"runtime_resolved", `{"receipt":{"harness":"codex","platform":"linux","components":[{"name":"cli","version":"1"}],"unavailable_reason":null}}`, "Runs codex on linux (cli 1)"},
		{"new_type", `{"a":1}`, `{"a":1}`},
	} {
		var says string
		p.evaluate(fmt.Sprintf(`import("/page/facts.js").then((m) => m.sentence({type: %s, data: %s},
			{began: (id) => id === "p0" ? 1000 : undefined, asked: (id) => id === "q" ? "Which?" : undefined}))`, quoted(c.kind), c.data), &says)
		require.Equal(t, c.says, says, "%s %s", c.kind, c.data)
	}
	shapes := `[null, {}, [], 1, "x", true, [null], {x: null}]`
	var n int
	p.evaluate(`import("/page/facts.js").then((m) => {
		let n = 0;
		for (const type of ["turn_started", "turn_ended", "error", "input_required", "input_resolved", "activity_changed", "runtime_resolved", "constructor", ""])
			for (const name of ["turn", "message", "request", "elicitation_id", "action", "activity", "receipt"])
				for (const v of `+shapes+`)
					for (const data of [v, {[name]: v}, {[name]: {outcome: v, fields: v, details: v, components: v, usage: v, diagnostic: v}}]) {
						if (typeof m.sentence({type, data}) !== "string" || typeof m.kind({type}).label !== "string") throw new Error(type + JSON.stringify(data));
						n++;
					}
		return n;
	})`, &n)
	require.Equal(t, 9*7*8*3, n)
}

// Who is silent, and what comes in pieces.
func TestPage_Modules(t *testing.T) {
	t.Parallel()
	p := browse(t, shared(t).http, 800, 600)
	record := `{workspace_id: "w", session_id: "s", title: null, state: null, last_error: null, execution: null, active_turn: null, last_turn_outcome: null,
		pending_elicitations: [], queued_prompts: [], activity: null, runtime: null, last_activity_at_ms: 1e12, events: {count: 1, first_seq: 1, last_seq: 1}, ...%s}`
	for with, want := range map[string]string{
		`{}`: "idle idle", `{active_turn: {}}`: "working silent", `{execution: {kind: "running"}}`: "working silent",
		`{activity: {is_idle: false}}`: "working silent", `{activity: {state: "running"}}`: "working silent", `{activity: {state: "running", is_idle: true}}`: "idle idle",
		`{pending_elicitations: [{}], active_turn: {}}`: "waiting waiting", `{execution: {kind: "closed"}, pending_elicitations: [{}]}`: "idle idle",
		`{last_error: "x", active_turn: {}}`: "failed failed", `{state: "lost"}`: "failed failed", `{state: "stopped", activity: {is_idle: false}}`: "idle idle",
		`{last_turn_outcome: {outcome: {kind: "rejected"}}}`:                                    "failed failed",
		`{last_turn_outcome: {outcome: {kind: "rejected"}}, active_turn: {}}`:                   "working silent",
		`{last_turn_outcome: {outcome: {kind: "completed", stop_reason: "AwaitingInput"}}}`:     "waiting waiting",
		`{last_turn_outcome: {outcome: {kind: "completed", stop_reason: "EndTurn"}}}`:           "idle idle",
		`{last_turn_outcome: {outcome: {kind: "completed", stop_reason: "max_turn_requests"}}}`: "failed failed",
	} {
		var got string
		p.evaluate(fmt.Sprintf(`import("/page/fleet.js").then((m) => {
			const s = new m.Fleet(() => {}).at("w", "s");
			s.adopt(`+record+`);
			return s.status(1e12 + m.silentAfter) + " " + s.status(1e12 + m.silentAfter + 1);
		})`, with), &got)
		require.Equal(t, want, got, with)
	}

	// A fact that the record holds is not counted again; one behind it is folded in, and
	// an older record does not undo it.
	var folded []any
	p.evaluate(fmt.Sprintf(`import("/page/fleet.js").then((m) => {
		const s = new m.Fleet(() => {}).at("w", "s");
		s.adopt(`+record+`);
		const ask = (seq) => ({seq, type: "input_required", stored_at_ms: 1, data: {request: {id: "q"}, turn_id: null}});
		s.fold(ask(1));
		const before = s.pending.length;
		s.fold(ask(2)); s.fold(ask(2)); s.fold(ask(3));
		return [before, s.pending.length, s.count, s.adopt(`+record+`), s.pending.length];
	})`, `{}`, `{}`), &folded)
	require.Equal(t, []any{0.0, 1.0, 3.0, false, 1.0}, folded)

	frames := "retry: 1\n: connected\n\nid: 7\nevent: error\ndata: {\"a\":\ndata: 1}\n\n: \n\nevent: stream_error\ndata: {}\n\n"
	for cut := range len(frames) {
		var got string
		p.evaluate(fmt.Sprintf(`import("/page/stream.js").then((m) => { const f = new m.Frames(); return JSON.stringify([...f.push(%s), ...f.push(%s)]); })`,
			quoted(frames[:cut]), quoted(frames[cut:])), &got)
		require.Equal(t, `[{"id":"7","event":"error","data":"{\"a\":\n1}"},{"id":"","event":"stream_error","data":"{}"}]`, got)
	}

	for _, raw := range []string{`{}`, `[]`, `{"a":[1,{"b":"],}\"\\"}],"c":1.50}`, `"x"`, `{"a":{},"b":[[]]}`} {
		var got struct{ Same, Array bool }
		p.evaluate(fmt.Sprintf(`Promise.all([import("/page/facts.js"), import("/page/api.js")]).then(([f, a]) => ({
			same: JSON.stringify(JSON.parse(f.pretty(%[1]s))) === JSON.stringify(JSON.parse(%[1]s)),
			array: JSON.stringify(a.splitArray("[" + %[1]s + "," + %[1]s + "],", 1).items) === JSON.stringify([%[1]s, %[1]s]),
		}))`, quoted(raw)), &got)
		require.True(t, got.Same && got.Array, raw)
	}
}
