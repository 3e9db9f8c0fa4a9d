package materializer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// modelView is what a session shows of its journal. Ids are tokens: the generator
// writes an id in one way only.
type modelView struct {
	title     string
	execution string // JSON
	active    *modelTurn
	outcome   string // JSON
	asked     []modelQuestion
	queue     []modelQueued
	started   map[string]bool
	runtime   string // JSON
}

type modelTurn struct {
	id              string
	accepted, start uint64
	startedAt       int64
}

type modelQuestion struct{ id, request string }

type modelQueued struct {
	id, kind string
	accepted uint64
	at       int64
}

func (u *modelTurn) json() string {
	return fmt.Sprintf(`{"command_id":%s,"accepted_ordinal":%d,"turn_start_position":%d,"started_at_ms":%d}`, u.id, u.accepted, u.start, u.startedAt)
}

func (v *modelView) turnID() string {
	if v.active == nil {
		return "null"
	}
	return fmt.Sprint(v.active.accepted)
}

func (v *modelView) queued(id string) (q modelQueued, at int) {
	at = slices.IndexFunc(v.queue, func(q modelQueued) bool { return q.id == id })
	if at >= 0 {
		q = v.queue[at]
	}
	return q, at
}

func (v *modelView) dequeue(id string) modelQueued {
	q, at := v.queued(id)
	if at >= 0 {
		v.queue = slices.Delete(v.queue, at, at+1)
	}
	return q
}

// observe projects one relay event. It returns false if it can not be used.
func (t *turn) observe(e *relayEvent) bool {
	var o struct {
		Type string
		Data struct {
			CommandID json.RawMessage `json:"command_id"`
			Command   json.RawMessage `json:"command"`
			CreatedAt int64           `json:"created_at_ms"`
			StartedAt int64           `json:"started_at_ms"`
			Message   json.RawMessage `json:"message"`
			Request   json.RawMessage `json:"request"`
			ElicitID  json.RawMessage `json:"elicitation_id"`
			Action    json.RawMessage `json:"action"`
			Runtime   json.RawMessage `json:"runtime"`
			InFlight  bool            `json:"prompt_in_flight"`
			Outcome   struct {
				Type string
				Data struct {
					StopReason string   `json:"stop_reason"`
					Queued     string   `json:"queued_command_id"`
					Removed    []string `json:"removed_command_ids"`
				}
			} `json:"outcome"`
		}
	}
	if json.Unmarshal(e.Observation, &o) != nil {
		return false
	}
	v, d := &t.view, &o.Data
	if v.started == nil {
		v.started = map[string]bool{}
	}
	source := fmt.Sprintf("c%d:%s", e.Ordinal, *e.Digest)
	fact := func(typ, data string) { t.fact(typ, *e.RecordedAt, source, data) }
	id := string(d.CommandID)
	begin := func(u modelTurn) {
		v.active, v.started[u.id] = &u, true
		fact("turn_started", fmt.Sprintf(`{"turn":%s}`, u.json()))
	}
	finish := func(accepted, start uint64, kind, text string) {
		var b strings.Builder
		fmt.Fprintf(&b, `{"command_id":%s`, id)
		if accepted != 0 {
			fmt.Fprintf(&b, `,"accepted_ordinal":%d`, accepted)
		}
		if start != 0 {
			fmt.Fprintf(&b, `,"turn_start_position":%d`, start)
		}
		fmt.Fprintf(&b, `,"completed_ordinal":%d,"completed_at_ms":%d,"outcome":{"kind":"%s",%s}}`, e.Ordinal, *e.RecordedAt, kind, text)
		v.outcome = b.String()
		fact("turn_ended", `{"turn":`+v.outcome+`}`)
	}
	resolve := func(q modelQuestion, action string) {
		fact("input_resolved", fmt.Sprintf(`{"elicitation_id":%s,"turn_id":%s,"action":%s}`, q.id, v.turnID(), action))
	}
	switch o.Type {
	case "command_queued":
		var c struct {
			Type string
			Data struct{ Prompt []struct{ Text string } }
		}
		if id == "" || json.Unmarshal(d.Command, &c) != nil {
			return false
		}
		switch c.Type {
		case "prompt", "set_config":
			v.dequeue(id)
			v.queue = append(v.queue, modelQueued{id, c.Type, e.Ordinal, d.CreatedAt})
			if c.Type == "prompt" && v.title == "" && len(c.Data.Prompt) > 0 {
				v.title = `"` + strings.Join(strings.Fields(c.Data.Prompt[0].Text), " ") + `"`
			}
		case "close":
			v.execution = `{"kind":"closing"}`
		}
	case "command_started":
		if q := v.dequeue(id); q.kind == "prompt" {
			v.execution = fmt.Sprintf(`{"kind":"running","started_at_ms":%d}`, d.StartedAt)
			begin(modelTurn{id, q.accepted, e.Ordinal, d.StartedAt})
		}
	case "command_completed":
		switch out := &o.Data.Outcome; out.Type {
		case "prompt":
			var accepted, start uint64
			if u := v.active; u != nil && u.id == id {
				accepted, start = u.accepted, u.start
			}
			v.active = nil
			v.dequeue(id)
			delete(v.started, id)
			v.execution = `{"kind":"idle"}`
			switch out.Data.StopReason {
			case "end_turn", "Cancelled", "ModelCapacity":
			case "awaiting_input":
				turnID := "null"
				if accepted != 0 {
					turnID = fmt.Sprint(accepted)
				}
				fact("input_required", `{"turn_id":`+turnID+`}`)
			default:
				fact("error", fmt.Sprintf(`{"message":"%s","command_id":%s}`, out.Data.StopReason, id))
			}
			finish(accepted, start, "completed", fmt.Sprintf(`"stop_reason":"%s"`, out.Data.StopReason))
		case "steered":
			to := `"` + out.Data.Queued + `"`
			q, _ := v.queued(to)
			if q.kind != "prompt" {
				return false
			}
			v.dequeue(to)
			begin(modelTurn{to, q.accepted, e.Ordinal, *e.RecordedAt})
		case "queue_changed":
			for _, r := range out.Data.Removed {
				v.dequeue(`"` + r + `"`)
			}
		}
	case "command_rejected", "command_interrupted":
		if id == "" {
			return false
		}
		fact("error", fmt.Sprintf(`{"message":%s,"command_id":%s}`, d.Message, id))
		q := v.dequeue(id)
		switch string(d.Command) {
		case `"prompt"`:
			accepted, start := q.accepted, uint64(0)
			if u := v.active; u != nil && u.id == id {
				accepted, start, v.active = u.accepted, u.start, nil
			}
			if v.started[id] {
				delete(v.started, id)
				v.execution = `{"kind":"idle"}`
			}
			finish(accepted, start, strings.TrimPrefix(o.Type, "command_"), fmt.Sprintf(`"message":%s`, d.Message))
		case `"close"`:
			if v.execution == `{"kind":"closing"}` {
				v.execution = `{"kind":"idle"}`
			}
		}
	case "elicitation_requested":
		var r struct{ ID json.RawMessage }
		if json.Unmarshal(d.Request, &r) != nil || !isString(r.ID) {
			return false
		}
		q := modelQuestion{string(r.ID), string(d.Request)}
		asked := slices.Contains(v.asked, q)
		v.asked = append(slices.DeleteFunc(v.asked, func(o modelQuestion) bool { return o.id == q.id }), q)
		if !asked {
			fact("input_required", fmt.Sprintf(`{"request":%s,"turn_id":%s}`, q.request, v.turnID()))
		}
	case "elicitation_resolved":
		for _, q := range v.asked {
			if q.id == string(d.ElicitID) {
				resolve(q, string(d.Action))
			}
		}
		v.asked = slices.DeleteFunc(v.asked, func(q modelQuestion) bool { return q.id == string(d.ElicitID) })
	case "elicitations_cleared", "session_opened":
		for _, q := range v.asked {
			resolve(q, `"cleared"`)
		}
		v.asked = nil
	case "session_restarted":
		if strings.HasPrefix(v.execution, `{"kind":"running"`) {
			v.execution = `{"kind":"idle"}`
		}
	case "harness_turn_settled":
		if !d.InFlight {
			v.execution = `{"kind":"idle"}`
		}
	case "agent_initialized":
		if d.Runtime == nil {
			return true
		}
		v.runtime = fmt.Sprintf(`%s,"event_ordinal":%d,"observed_at_ms":%d}`, d.Runtime[:len(d.Runtime)-1], e.Ordinal, *e.RecordedAt)
		fact("runtime_resolved", `{"receipt":`+v.runtime+`}`)
	}
	return true
}

// json is the session as readers must see it, with numbers of its rows.
func (s *modelSession) json(k bus.Key, rows []uint64) string {
	or := func(v, none string) string {
		if v == "" {
			return none
		}
		return v
	}
	v, c := &s.view, &s.chain
	active, at, waiting, first, last := "null", "null", "null", "null", "null"
	if v.active != nil {
		active = v.active.json()
	}
	if s.activeAt != nil {
		at = fmt.Sprint(*s.activeAt)
	}
	if len(c.held) > 0 {
		waiting = fmt.Sprint(c.at + 1)
	}
	if n := len(rows); n > 0 {
		first, last = fmt.Sprint(rows[0]), fmt.Sprint(rows[n-1])
	}
	asked, queue := []string{}, []string{}
	for _, q := range v.asked {
		asked = append(asked, q.request)
	}
	for _, q := range v.queue {
		queue = append(queue, fmt.Sprintf(`{"command_id":%s,"kind":"%s","accepted_ordinal":%d,"queued_at_ms":%d}`, q.id, q.kind, q.accepted, q.at))
	}
	return fmt.Sprintf(`{"session_id":"%s","workspace_id":"%s","title":%s,"state":%s,"last_error":%s,"execution":%s,"active_turn":%s,`+
		`"last_turn_outcome":%s,"pending_elicitations":[%s],"queued_prompts":[%s],"activity":%s,"frontier":{"ordinal":%d,"digest":"%s"},`+
		`"runtime":%s,"last_activity_at_ms":%s,"held":{"pages":%d,"waiting_for":%s},"events":{"count":%d,"first_seq":%s,"last_seq":%s}}`,
		k.Session, k.Workspace, or(s.members["title"], or(v.title, "null")), or(s.members["state"], "null"), or(s.members["last_error"], "null"),
		or(v.execution, "null"), active, or(v.outcome, "null"), strings.Join(asked, ","), strings.Join(queue, ","),
		or(s.members["activity"], "null"), c.at, or(c.digest, genesis), or(v.runtime, "null"), at, len(c.held), waiting, len(rows), first, last)
}
