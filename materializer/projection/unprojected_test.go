package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// A known observation that can not be used moves the chain on, is counted, and
// changes nothing else.
func TestObserve_Unprojected(t *testing.T) {
	long := strings.Repeat("x", projection.MaxObservationID-1) // with quotes one byte too long
	rows := map[string]string{
		"no type":                    `{}`,
		"type is no string":          `{"type":7}`,
		"type twice":                 `{"type":"closed","type":"closed"}`,
		"type three times":           `{"type":"closed","type":"closed","type":"closed"}`,
		"data twice where read":      `{"type":"command_started","data":{"command_id":"p","started_at_ms":2},"data":{"command_id":"p","started_at_ms":2}}`,
		"queued: empty":              `{"type":"command_queued","data":{}}`,
		"queued: no data":            `{"type":"command_queued"}`,
		"queued: id no string":       `{"type":"command_queued","data":{"command_id":7,"command":{"type":"prompt"},"created_at_ms":1}}`,
		"queued: id too long":        queued(long),
		"queued: id twice":           `{"type":"command_queued","data":{"command_id":"a","command_id":"a","command":{"type":"prompt"},"created_at_ms":1}}`,
		"queued: time no integer":    `{"type":"command_queued","data":{"command_id":"a","command":{"type":"prompt"},"created_at_ms":1.0}}`,
		"queued: time beyond int64":  `{"type":"command_queued","data":{"command_id":"a","command":{"type":"prompt"},"created_at_ms":9223372036854775808}}`,
		"queued: command no object":  `{"type":"command_queued","data":{"command_id":"a","command":"prompt","created_at_ms":1}}`,
		"queued: command type twice": `{"type":"command_queued","data":{"command_id":"a","command":{"type":"prompt","type":"prompt"},"created_at_ms":1}}`,
		"started: time missing":      `{"type":"command_started","data":{"command_id":"p"}}`,
		"started: time exponent":     `{"type":"command_started","data":{"command_id":"p","started_at_ms":2e0}}`,
		"completed: no outcome":      `{"type":"command_completed","data":{"command_id":"p"}}`,
		"completed: no id":           `{"type":"command_completed","data":{"outcome":{"type":"prompt","data":{"stop_reason":"x"}}}}`,
		"completed: no stop reason":  completed("p", "prompt", `{}`),
		"completed: reason null":     completed("p", "prompt", `{"stop_reason":null}`),
		"completed: reason twice":    completed("p", "prompt", `{"stop_reason":"a","stop_reason":"a"}`),
		"completed: diagnostic text": completed("p", "prompt", `{"stop_reason":"a","diagnostic":"d"}`),
		"completed: usage array":     completed("p", "prompt", `{"stop_reason":"a","usage":[]}`),
		"steered: to nothing":        completed("s", "steered", `{"queued_command_id":"nobody"}`),
		"steered: to a setting":      completed("s", "steered", `{"queued_command_id":"k"}`),
		"steered: no id":             completed("s", "steered", `{}`),
		"queue changed: no array":    completed("s", "queue_changed", `{"removed_command_ids":"p"}`),
		"queue changed: a number":    completed("s", "queue_changed", `{"removed_command_ids":["p",1]}`),
		"rejected: no message":       `{"type":"command_rejected","data":{"command_id":"p","command":"prompt"}}`,
		"rejected: command object":   `{"type":"command_rejected","data":{"command_id":"p","command":{"type":"prompt"},"message":"m"}}`,
		"interrupted: id too long":   failed("interrupted", long, "prompt", "m"),
		"requested: no object":       `{"type":"elicitation_requested","data":{"request":"no object"}}`,
		"requested: no message":      `{"type":"elicitation_requested","data":{"request":{"id":"a","fields":[]}}}`,
		"requested: fields object":   `{"type":"elicitation_requested","data":{"request":{"id":"a","message":"m","fields":{}}}}`,
		"requested: id too long":     asked(long, "m"),
		"requested: id twice":        `{"type":"elicitation_requested","data":{"request":{"id":"a","id":"b","message":"m","fields":[]}}}`,
		"resolved: no action":        `{"type":"elicitation_resolved","data":{"elicitation_id":"q"}}`,
		"resolved: id too long":      answered(long),
		"harness: no time":           `{"type":"harness_turn_started","data":{}}`,
		"settled: no data":           `{"type":"harness_turn_settled"}`,
		"settled: null":              `{"type":"harness_turn_settled","data":{"prompt_in_flight":null}}`,
		"runtime: text":              `{"type":"agent_initialized","data":{"runtime":"x"}}`,
		"runtime: has the receipt's": `{"type":"agent_initialized","data":{"runtime":{"event_ordinal":1}}}`,
		"agent initialized: no data": `{"type":"agent_initialized"}`,
		"update: no object":          `{"type":"session_update","data":{"update":7}}`,
		"update: no kind":            `{"type":"session_update","data":{"update":{"title":"t"}}}`,
		"update: title number":       `{"type":"session_update","data":{"update":{"sessionUpdate":"session_info_update","title":7}}}`,
		"update: title twice":        `{"type":"session_update","data":{"update":{"sessionUpdate":"session_info_update","title":"a","title":"b"}}}`,
	}
	for name, observation := range rows {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			for _, o := range []string{queued("p"), setConfig("k"), queued("o"), started("o"), asked("q", "?")} {
				j.add(o)
			}
			s := newSession(t)
			s.mustApply(bus.ClassProjection, j.page(1, 5))
			before, err := s.state.AppendView(nil)
			require.NoError(t, err)

			e := j.add(observation)
			r := s.mustApply(bus.ClassProjection, j.page(6, 6))
			require.Equal(t, 1, r.Unprojected)
			require.Empty(t, r.Facts)
			require.Empty(t, r.Rejects)
			require.Equal(t, e.ChainPosition, s.state.Chain.Position)
			require.Equal(t, recordedAt(6), *s.state.LastActivityAt)
			after, err := s.state.AppendView(nil)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after))
		})
	}
}

// Stop reasons: _ and - and case do not count, anything else does.
func TestObserve_StopReasons(t *testing.T) {
	rows := []struct {
		extra   string // the type of the fact before turn_ended
		reasons []string
	}{
		{"", []string{"end_turn", "EndTurn", "END-TURN", "e-n_d-turn", "cancelled", "Cancelled", "canceled", "QuotaLimit", "quota_limit", "ModelCapacity", "modelcapacity", "MODELCAPACITY", `end\u005fturn`}},
		{bus.TypeInputRequired, []string{"awaiting_input", "AwaitingInput", "AWAITING--INPUT"}},
		{bus.TypeError, []string{"", "provider_error", "MaxTokens", "max_turn_requests", "refusal", " end_turn", "end_turn ", "end turn", "model_capacity", "Model-Capacity", "quotalımit", "awaitinginputs", "error", strings.Repeat("_", 5000) + "x"}},
	}
	for _, row := range rows {
		for _, reason := range row.reasons {
			t.Run(fmt.Sprintf("%s/%.20s", row.extra, reason), func(t *testing.T) {
				j := &journal{}
				j.add(ended("p", reason))
				r := newSession(t).mustApply(bus.ClassProjection, j.page(1, 1))
				types := []string{}
				for _, f := range r.Facts {
					types = append(types, f.Type)
				}
				want := []string{bus.TypeTurnEnded}
				if row.extra != "" {
					want = []string{row.extra, bus.TypeTurnEnded}
				}
				require.Equal(t, want, types)
			})
		}
	}
}

// Bounds of the projected state: what goes beyond them is unprojected, what
// replaces an entry is not.
func TestObserve_Bounds(t *testing.T) {
	// fill applies n observations in pages and returns the last result.
	fill := func(s *session, j *journal, n int, observation func(i int) string) (r projection.Result) {
		for i := 0; i < n; {
			first := j.at.Ordinal + 1
			for k := 0; k < bus.MaxPageEvents && i < n; k++ {
				j.add(observation(i))
				i++
			}
			r = s.mustApply(bus.ClassProjection, j.page(first, j.at.Ordinal))
		}
		return r
	}
	one := func(s *session, j *journal, observation string) projection.Result {
		return fill(s, j, 1, func(int) string { return observation })
	}

	t.Run("queue", func(t *testing.T) {
		s, j := newSession(t), &journal{}
		require.Zero(t, fill(s, j, projection.MaxQueued, func(i int) string { return queued(fmt.Sprint("p", i)) }).Unprojected)
		require.Equal(t, 1, one(s, j, queued("more")).Unprojected)
		require.Zero(t, one(s, j, queued("p7")).Unprojected, "takes its own place")
		one(s, j, started("p9"))
		require.Zero(t, one(s, j, queued("more")).Unprojected, "one has left")
	})
	t.Run("questions", func(t *testing.T) {
		s, j := newSession(t), &journal{}
		require.Zero(t, fill(s, j, projection.MaxElicitations, func(i int) string { return asked(fmt.Sprint("q", i), "?") }).Unprojected)
		require.Equal(t, 1, one(s, j, asked("more", "?")).Unprojected)
		require.Zero(t, one(s, j, asked("q7", "changed")).Unprojected)
		require.Len(t, one(s, j, cleared).Facts, projection.MaxElicitations)
	})
	t.Run("bytes of questions", func(t *testing.T) {
		s, j := newSession(t), &journal{}
		big := strings.Repeat("x", projection.MaxElicitationBytes/16)
		require.Zero(t, fill(s, j, 15, func(i int) string { return asked(fmt.Sprint("q", i), big) }).Unprojected)
		require.Equal(t, 1, one(s, j, asked("more", big)).Unprojected, "names and quotes make it a little too much")
		require.Zero(t, one(s, j, asked("q7", big)).Unprojected, "what it replaces does not count")
		require.Zero(t, one(s, j, asked("more", "small")).Unprojected)
	})
	t.Run("started prompts never keep a turn from starting", func(t *testing.T) {
		s, j := newSession(t), &journal{}
		fill(s, j, 2*projection.MaxStarted+2, func(i int) string {
			if i%2 == 0 {
				return queued(fmt.Sprint("p", i/2))
			}
			return started(fmt.Sprint("p", i/2))
		})
		require.Len(t, s.state.View.Started, projection.MaxStarted)
		require.Contains(t, string(s.view()["active_turn"]), fmt.Sprintf(`"p%d"`, projection.MaxStarted))
	})
	t.Run("the longest id", func(t *testing.T) {
		s, j := newSession(t), &journal{}
		id := strings.Repeat("x", projection.MaxObservationID-2)
		require.Zero(t, one(s, j, queued(id)).Unprojected)
		require.Len(t, one(s, j, started(id)).Facts, 1)
	})
}
