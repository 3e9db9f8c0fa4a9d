package bus

import (
	"strconv"
)

// Types of facts. Readers must tolerate types that they do not know.
const (
	TypeTurnStarted     = "turn_started"
	TypeTurnEnded       = "turn_ended"
	TypeError           = "error"
	TypeInputRequired   = "input_required"
	TypeInputResolved   = "input_resolved"
	TypeActivityChanged = "activity_changed"
	TypeRuntimeResolved = "runtime_resolved"
)

// Event is a fact in its wire form, the same in EVENTS, pages, SSE and the CLI.
type Event struct {
	Seq        uint64 // its number: the sequence in EVENTS
	Session    string
	Workspace  string
	RecordedAt int64 // ms, the worker's clock
	StoredAt   int64 // ms, INGEST's clock; order is by Seq alone
	Type       string
	Data       []byte // one compact JSON object, every byte as the worker sent it

	// Traceparent is the W3C trace context of the message that the fact came from, ""
	// if it had none. It is no part of the wire form: [Subjects.ParseFact] has it from
	// the headers in EVENTS, and an event out of a page has none.
	Traceparent string
}

// Key returns the event's session.
func (e *Event) Key() Key { return Key{Workspace: e.Workspace, Session: e.Session} }

// AppendJSON appends the event as one compact JSON object. Data is spliced in
// as it is: encoding it again would rewrite escapes and numbers.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"session_id":`...)
	dst = AppendQuoted(dst, e.Session)
	dst = append(dst, `,"workspace_id":`...)
	dst = AppendQuoted(dst, e.Workspace)
	dst = append(dst, `,"recorded_at_ms":`...)
	dst = strconv.AppendInt(dst, e.RecordedAt, 10)
	dst = append(dst, `,"stored_at_ms":`...)
	dst = strconv.AppendInt(dst, e.StoredAt, 10)
	dst = append(dst, `,"type":`...)
	dst = AppendQuoted(dst, e.Type)
	dst = append(dst, `,"data":`...)
	dst = append(dst, e.Data...)
	return append(dst, '}')
}

// ParseEvent reads an event from its wire form; unknown members are ignored. Data
// belongs to b if b has no white space between tokens, else to a copy. The error
// is an *[InvalidError] that names the member.
func ParseEvent(b []byte) (Event, error) {
	var e Event
	b, err := CompactWire(b)
	if err != nil {
		return e, err
	}
	missing := 0b111_1111
	err = members(b, func(name string, v []byte) (bool, error) {
		bit := 0
		switch name {
		case "seq":
			n, ok := Int(v)
			if !ok || n < 0 {
				return true, invalid("", name, "must be an integer from 0 to 2^63-1")
			}
			e.Seq, bit = uint64(n), 1
		case "session_id":
			bit = 2
			e.Session, err = stringMember(name, v)
		case "workspace_id":
			bit = 4
			e.Workspace, err = stringMember(name, v)
		case "recorded_at_ms":
			bit = 8
			e.RecordedAt, err = intMember(name, v)
		case "stored_at_ms":
			bit = 16
			e.StoredAt, err = intMember(name, v)
		case "type":
			bit = 32
			e.Type, err = stringMember(name, v)
		case "data":
			if !IsObject(v) {
				return true, invalid("", name, "must be an object")
			}
			e.Data, bit = v, 64
		default:
			return false, nil
		}
		missing &^= bit
		return true, err
	})
	if err == nil && missing != 0 {
		err = invalid("", "event", "lacks one of seq, session_id, workspace_id, recorded_at_ms, stored_at_ms, type, data")
	}
	return e, err
}

func stringMember(name string, v []byte) (string, error) {
	if !IsString(v) {
		return "", invalid("", name, "must be a string")
	}
	return Unquote(v), nil
}

func intMember(name string, v []byte) (int64, error) {
	n, ok := Int(v)
	if !ok {
		return 0, invalid("", name, "must be an integer literal within int64")
	}
	return n, nil
}
