package publisher

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/skaldbus/skald/bus"
)

// Text is a member of a session's record. The zero value leaves what is stored.
type Text struct {
	op    textOp
	value string
}

type textOp uint8

const (
	textKeep textOp = iota
	textSet
	textClear
)

// Set returns the text that replaces what is stored.
func Set(value string) Text { return Text{op: textSet, value: value} }

// Clear returns the text that clears what is stored.
func Clear() Text { return Text{op: textClear} }

// Record is what is saved of a session. A LastError that becomes a new text gives
// one error event.
type Record struct {
	Title     Text
	State     Text
	LastError Text
	// RecordedAt is the worker's time. The zero value is the time of the call.
	RecordedAt time.Time
}

// fence is the body of the message with which a session is opened: it saves
// nothing, and once it is materialized so is all that was stored before it.
const fence = `{"op":"save"}`

func (r *Record) appendBody(dst []byte, now time.Time) ([]byte, error) {
	dst = append(dst, `{"op":"save"`...)
	for _, m := range []struct {
		name string
		text Text
	}{{"title", r.Title}, {"state", r.State}, {"last_error", r.LastError}} {
		if m.text.op == textKeep {
			continue
		}
		dst = append(dst, `,"`...)
		dst = append(dst, m.name...)
		dst = append(dst, `":`...)
		if m.text.op == textClear {
			dst = append(dst, "null"...)
			continue
		}
		if err := checkText(m.name, m.text.value); err != nil {
			return nil, err
		}
		dst = bus.AppendQuoted(dst, m.text.value)
	}
	dst = append(dst, ',')
	return append(appendTime(dst, r.RecordedAt, now), '}'), nil
}

func activityBody(object []byte, now time.Time) ([]byte, error) {
	compact, err := compactObject("activity", object, 1)
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, len(compact)+64), '{')
	b = appendTime(b, time.Time{}, now)
	b = append(b, `,"activity":`...)
	return append(append(b, compact...), '}'), nil
}

func errorBody(message, commandID string, now time.Time) ([]byte, error) {
	if err := checkText("message", message); err != nil {
		return nil, err
	}
	if err := checkText("command_id", commandID); err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, len(message)+len(commandID)+96), '{')
	b = appendTime(b, time.Time{}, now)
	b = append(b, `,"message":`...)
	b = bus.AppendQuoted(b, message)
	if commandID != "" {
		b = append(b, `,"command_id":`...)
		b = bus.AppendQuoted(b, commandID)
	}
	return append(b, '}'), nil
}

// compactObject checks that v is one JSON object that may stand in so many levels.
func compactObject(field string, v []byte, levels int) ([]byte, error) {
	compact, err := bus.Compact(v)
	if err != nil {
		return nil, err
	}
	if !bus.IsObject(compact) {
		return nil, &bus.InvalidError{Reason: bus.ReasonBody, Field: field, Rule: "must be an object"}
	}
	return compact, checkDepth(compact, levels)
}

// checkText refuses what JSON can not carry: it would have to be changed.
func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return &bus.InvalidError{Reason: bus.ReasonBody, Field: field, Rule: "must be valid UTF-8"}
	}
	return nil
}

func appendTime(dst []byte, at, now time.Time) []byte {
	if at.IsZero() {
		at = now
	}
	dst = append(dst, `"recorded_at_ms":`...)
	return strconv.AppendInt(dst, at.UnixMilli(), 10)
}
