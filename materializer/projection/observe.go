package projection

import "github.com/skaldbus/skald/bus"

// step is one relay event on its way into a state: what it changes, and the facts
// that it gives in their order. A handler first reads all that it needs and
// changes nothing if that is not usable; it then returns false, and the event
// counts as unprojected.
type step struct {
	*State
	r      *Result
	event  *bus.RelayEvent
	source bus.Source
}

// observe projects one relay event whose digest is d. The chain is moved by the
// caller, whatever the observation holds.
func (s *State) observe(e *bus.RelayEvent, d bus.Digest, r *Result) {
	t := step{State: s, r: r, event: e, source: bus.Source{Chain: bus.ChainPosition{Ordinal: e.Ordinal, Digest: d}}}
	if !t.project() {
		r.Unprojected++
	}
}

// project reads the observation's type and hands its data to the type's handler.
// An unknown type is not unprojected: it derives nothing.
func (t *step) project() bool {
	var typ, data []byte
	types, datas := 0, 0
	bus.Members(t.event.Observation, func(name string, v []byte) error {
		switch name {
		case "type":
			typ = v
			types++
		case "data":
			data = v
			datas++
		}
		return nil
	})
	if types != 1 || !bus.IsString(typ) {
		return false
	}
	if datas > 1 {
		// Only where data is read are two of them unusable: no handler takes this
		// for an object, and an unknown type may mean what it likes.
		data = nil
	}
	switch string(decoded(typ)) {
	case "session_update":
		return t.sessionUpdate(data)
	case "command_queued":
		return t.commandQueued(data)
	case "command_started":
		return t.commandStarted(data)
	case "command_completed":
		return t.commandCompleted(data)
	case "command_rejected":
		return t.commandFailed(data, "rejected")
	case "command_interrupted":
		return t.commandFailed(data, "interrupted")
	case "elicitation_requested":
		return t.elicitationRequested(data)
	case "elicitation_resolved":
		return t.elicitationResolved(data)
	case "elicitations_cleared", "session_opened":
		t.clearElicitations()
	case "session_restarted":
		if t.View.Execution.Kind == ExecutionRunning {
			t.execute(ExecutionIdle, 0)
		}
	case "harness_turn_started":
		return t.harnessTurnStarted(data)
	case "harness_turn_settled":
		return t.harnessTurnSettled(data)
	case "closing":
		t.execute(ExecutionClosing, 0)
	case "closed":
		t.execute(ExecutionClosed, 0)
	case "agent_initialized":
		return t.agentInitialized(data)
	}
	return true
}

// fact adds a fact of this relay event.
func (t *step) fact(typ string, data []byte) {
	t.r.Facts = append(t.r.Facts, Fact{Type: typ, RecordedAt: t.event.RecordedAt, Data: data, Source: t.source})
}

// execute sets what the session is doing. startedAt is in ms, for running.
func (t *step) execute(kind string, startedAt int64) {
	if next := (Execution{Kind: kind, StartedAt: startedAt}); t.View.Execution != next {
		t.View.Execution = next
		t.Changed |= PartView
	}
}

// harnessTurnStarted is a turn that no prompt asked for: it runs, but it is no
// turn to readers.
func (t *step) harnessTurnStarted(data []byte) bool {
	var started []byte
	ok := members(data, func(name string) *[]byte {
		if name == "started_at_ms" {
			return &started
		}
		return nil
	})
	at, isInt := bus.Int(started)
	if !ok || !isInt {
		return false
	}
	if t.View.ActiveTurn == nil {
		t.execute(ExecutionRunning, at)
	}
	return true
}

func (t *step) harnessTurnSettled(data []byte) bool {
	var inFlight []byte
	ok := members(data, func(name string) *[]byte {
		if name == "prompt_in_flight" {
			return &inFlight
		}
		return nil
	})
	if !ok {
		return false
	}
	switch string(inFlight) {
	case "", "false": // absent is false
		t.execute(ExecutionIdle, 0)
	case "true":
	default:
		return false
	}
	return true
}
