package projection

import (
	"slices"

	"github.com/skaldbus/skald/bus"
)

// commandQueued appends prompts and settings to the queue; other commands are not
// queued, and a close is under way at once.
func (t *step) commandQueued(data []byte) bool {
	var id, command, created []byte
	ok := members(data, func(name string) *[]byte {
		switch name {
		case "command_id":
			return &id
		case "command":
			return &command
		case "created_at_ms":
			return &created
		}
		return nil
	})
	queuedAt, isInt := bus.Int(created)
	if !ok || !isInt || !isID(id) {
		return false
	}
	typ, content, ok := tagged(command)
	if !ok {
		return false
	}
	v := &t.View
	switch string(typ) {
	case "close":
		t.execute(ExecutionClosing, 0)
		return true
	case KindPrompt, KindSetConfig:
	default:
		return true
	}
	// An id that is queued again gives up its place.
	at := v.queued(decoded(id))
	if at < 0 && len(v.Queue) >= MaxQueued {
		return false
	}
	if at >= 0 {
		v.Queue = slices.Delete(v.Queue, at, at+1)
	}
	v.Queue = append(v.Queue, Queued{CommandID: newID(id), Kind: string(typ), Accepted: t.event.Ordinal, QueuedAt: queuedAt})
	if string(typ) == KindPrompt && v.ProjectedTitle == "" {
		v.ProjectedTitle = promptTitle(content)
	}
	t.Changed |= PartView
	return true
}

// commandStarted starts a turn if the id is a queued prompt's. An id that is not
// queued starts nothing.
func (t *step) commandStarted(data []byte) bool {
	var id, started []byte
	ok := members(data, func(name string) *[]byte {
		switch name {
		case "command_id":
			return &id
		case "started_at_ms":
			return &started
		}
		return nil
	})
	startedAt, isInt := bus.Int(started)
	if !ok || !isInt || !isID(id) {
		return false
	}
	q, ok := t.dequeue(decoded(id))
	if ok && q.Kind == KindPrompt {
		t.execute(ExecutionRunning, startedAt)
		t.startTurn(Turn{CommandID: newID(id), Accepted: q.Accepted, Start: t.event.Ordinal, StartedAt: startedAt})
	}
	return true
}

// commandCompleted ends what a command began, by the type of its outcome.
func (t *step) commandCompleted(data []byte) bool {
	var id, outcome []byte
	ok := members(data, func(name string) *[]byte {
		switch name {
		case "command_id":
			return &id
		case "outcome":
			return &outcome
		}
		return nil
	})
	if !ok || !isID(id) {
		return false
	}
	typ, content, ok := tagged(outcome)
	if !ok {
		return false
	}
	switch string(typ) {
	case "prompt":
		return t.promptCompleted(id, content)
	case "steered":
		return t.steered(content)
	case "queue_changed":
		return t.queueChanged(content)
	case "closed":
		t.dequeue(decoded(id))
		t.execute(ExecutionClosed, 0)
	case "configured":
		t.dequeue(decoded(id))
	}
	return true
}

// promptCompleted ends the active turn, whichever it is. Ids that were never
// queued or started have an end too, without the ordinals of a turn.
func (t *step) promptCompleted(id, content []byte) bool {
	e := end{kind: "completed", commandID: id}
	ok := members(content, func(name string) *[]byte {
		switch name {
		case "stop_reason":
			return &e.text
		case "diagnostic":
			return &e.diagnostic
		case "usage":
			return &e.usage
		}
		return nil
	})
	if !ok || !bus.IsString(e.text) || !objectOrAbsent(&e.diagnostic) || !objectOrAbsent(&e.usage) {
		return false
	}
	v, text := &t.View, decoded(id)
	if u := v.ActiveTurn; u != nil && u.CommandID.is(text) {
		e.accepted, e.start = u.Accepted, u.Start
	}
	v.ActiveTurn = nil
	t.dequeue(text)
	v.finish(text)
	t.execute(ExecutionIdle, 0)
	switch classify(e.text) {
	case stopInputRequired:
		t.fact(bus.TypeInputRequired, append(appendTurnID([]byte{'{'}, e.accepted), '}'))
	case stopError:
		t.fact(bus.TypeError, appendErrorData(nil, e.text, id))
	}
	t.endTurn(e)
	return true
}

// steered hands the active turn to a queued prompt.
func (t *step) steered(content []byte) bool {
	var id []byte
	ok := members(content, func(name string) *[]byte {
		if name == "queued_command_id" {
			return &id
		}
		return nil
	})
	if !ok || !isID(id) {
		return false
	}
	text := decoded(id)
	if at := t.View.queued(text); at < 0 || t.View.Queue[at].Kind != KindPrompt {
		return false
	}
	q, _ := t.dequeue(text)
	t.startTurn(Turn{CommandID: q.CommandID, Accepted: q.Accepted, Start: t.event.Ordinal, StartedAt: t.event.RecordedAt})
	return true
}

// queueChanged takes the listed ids out of the queue.
func (t *step) queueChanged(content []byte) bool {
	var list []byte
	ok := members(content, func(name string) *[]byte {
		if name == "removed_command_ids" {
			return &list
		}
		return nil
	})
	if !ok {
		return false
	}
	// A set, since a list may name as many ids as fit a message.
	removed := map[string]bool{}
	allIDs := true
	isArray, _ := bus.Elements(list, func(v []byte) error {
		if allIDs = allIDs && isID(v); allIDs {
			removed[string(decoded(v))] = true
		}
		return nil
	})
	if !isArray || !allIDs {
		return false
	}
	v := &t.View
	before := len(v.Queue)
	v.Queue = slices.DeleteFunc(v.Queue, func(q Queued) bool { return removed[q.CommandID.text] })
	if len(v.Queue) != before {
		t.Changed |= PartView
	}
	return true
}

// commandFailed is a command that was rejected or interrupted, as kind says. Any
// command gives an error; a prompt's end is the end of a turn as well.
func (t *step) commandFailed(data []byte, kind string) bool {
	e := end{kind: kind}
	var command []byte
	ok := members(data, func(name string) *[]byte {
		switch name {
		case "command_id":
			return &e.commandID
		case "command":
			return &command
		case "message":
			return &e.text
		}
		return nil
	})
	if !ok || !isID(e.commandID) || !bus.IsString(command) || !bus.IsString(e.text) {
		return false
	}
	t.fact(bus.TypeError, appendErrorData(nil, e.text, e.commandID))
	v, text := &t.View, decoded(e.commandID)
	q, _ := t.dequeue(text)
	switch string(decoded(command)) {
	case "prompt":
		e.accepted = q.Accepted
		if u := v.ActiveTurn; u != nil && u.CommandID.is(text) {
			e.accepted, e.start = u.Accepted, u.Start
			v.ActiveTurn = nil
		}
		if v.finish(text) {
			t.execute(ExecutionIdle, 0)
		}
		t.endTurn(e)
	case "close":
		if v.Execution.Kind == ExecutionClosing {
			t.execute(ExecutionIdle, 0)
		}
	}
	return true
}

// tagged reads {"type":…,"data":…}: the decoded type, and the data, which may be
// absent.
func tagged(v []byte) (typ, data []byte, ok bool) {
	ok = members(v, func(name string) *[]byte {
		switch name {
		case "type":
			return &typ
		case "data":
			return &data
		}
		return nil
	})
	if !ok || !bus.IsString(typ) {
		return nil, nil, false
	}
	return decoded(typ), data, true
}

// objectOrAbsent turns null into absent and reports whether v is an object or absent.
func objectOrAbsent(v *[]byte) bool {
	if isAbsent(*v) {
		*v = nil
		return true
	}
	return bus.IsObject(*v)
}
