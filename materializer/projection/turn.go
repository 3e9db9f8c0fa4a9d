package projection

import (
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// Turn is a prompt at work.
type Turn struct {
	CommandID ID     `json:"command_id"` // the prompt's id
	Accepted  uint64 `json:"accepted"`   // ordinal of the event that queued the prompt
	Start     uint64 `json:"start"`      // ordinal of the event that started the turn
	StartedAt int64  `json:"started_at"` // ms
}

// appendJSON appends the turn as readers see it.
func (u *Turn) appendJSON(dst []byte) []byte {
	dst = append(append(dst, `{"command_id":`...), u.CommandID.token...)
	dst = append(dst, `,"accepted_ordinal":`...)
	dst = strconv.AppendUint(dst, u.Accepted, 10)
	dst = append(dst, `,"turn_start_position":`...)
	dst = strconv.AppendUint(dst, u.Start, 10)
	dst = append(dst, `,"started_at_ms":`...)
	dst = strconv.AppendInt(dst, u.StartedAt, 10)
	return append(dst, '}')
}

// startTurn makes u the active turn. A turn names the ordinal that started it, so
// it always differs from the one before: the fact always follows, and a turn that
// a steer replaces gets no end.
func (t *step) startTurn(u Turn) {
	t.View.ActiveTurn = &u
	t.View.start(u.CommandID)
	t.Changed |= PartView
	d := make([]byte, 0, len(u.CommandID.token)+160)
	d = append(u.appendJSON(append(d, `{"turn":`...)), '}')
	t.fact(bus.TypeTurnStarted, d)
}

// end is how a prompt ended.
type end struct {
	kind      string // completed, rejected or interrupted
	text      []byte // the stop reason or the message, a string token
	commandID []byte // a string token
	// Objects as sent, nil if absent.
	diagnostic, usage []byte
	// Ordinals of the turn that ended, 0 if unknown.
	accepted, start uint64
}

// endTurn sets the last outcome and adds the fact of it.
func (t *step) endTurn(e end) {
	const open = `{"turn":`
	d := make([]byte, 0, len(e.text)+len(e.commandID)+len(e.diagnostic)+len(e.usage)+320)
	d = append(d, open...)
	d = append(d, '{')
	if e.diagnostic != nil {
		d = append(append(append(d, `"diagnostic":`...), e.diagnostic...), ',')
	}
	if e.usage != nil {
		d = append(append(append(d, `"usage":`...), e.usage...), ',')
	}
	d = append(append(d, `"command_id":`...), e.commandID...)
	if e.accepted != 0 {
		d = append(d, `,"accepted_ordinal":`...)
		d = strconv.AppendUint(d, e.accepted, 10)
	}
	if e.start != 0 {
		d = append(d, `,"turn_start_position":`...)
		d = strconv.AppendUint(d, e.start, 10)
	}
	d = append(d, `,"completed_ordinal":`...)
	d = strconv.AppendUint(d, t.event.Ordinal, 10)
	d = append(d, `,"completed_at_ms":`...)
	d = strconv.AppendInt(d, t.event.RecordedAt, 10)
	d = append(append(append(d, `,"outcome":{"kind":"`...), e.kind...), '"')
	if e.kind == "completed" {
		d = append(d, `,"stop_reason":`...)
	} else {
		d = append(d, `,"message":`...)
	}
	d = append(append(d, e.text...), `}}`...)
	t.View.LastOutcome = string(d[len(open):])
	t.Changed |= PartView
	t.fact(bus.TypeTurnEnded, append(d, '}'))
}

// appendTurnID appends the member turn_id: the ordinal that names a turn to
// readers, or null for 0.
func appendTurnID(dst []byte, accepted uint64) []byte {
	dst = append(dst, `"turn_id":`...)
	if accepted == 0 {
		return append(dst, "null"...)
	}
	return strconv.AppendUint(dst, accepted, 10)
}
