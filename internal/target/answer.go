package target

import (
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// errAnswer marks an answer that is not the JSON text it should be.
var errAnswer = errors.New("not an answer of skald's")

// Page is a page of events, taken apart.
type Page struct {
	Events    [][]byte // each the event's bytes as they came
	NextAfter uint64
	Latest    uint64
	Oldest    uint64
	Epoch     string
}

// ParsePage takes apart what [Target.Events] returned.
func ParsePage(body []byte) (p Page, err error) {
	err = members(body, func(name string, v []byte) error {
		switch name {
		case "events":
			return elements(v, func(e []byte) error {
				p.Events = append(p.Events, e)
				return nil
			})
		case "next_after_seq":
			return number(&p.NextAfter, name, v)
		case "latest_seq":
			return number(&p.Latest, name, v)
		case "oldest_seq":
			return number(&p.Oldest, name, v)
		case "epoch":
			return text(&p.Epoch, name, v)
		}
		return nil
	})
	return p, err
}

// Session is one entry of a list of sessions.
type Session struct {
	Workspace string
	Session   string
	JSON      []byte // the object's bytes as they came
}

// ParseSessions takes apart what [Target.Sessions] returned. next is 0 if there
// are no more.
func ParseSessions(body []byte) (list []Session, next uint64, err error) {
	err = members(body, func(name string, v []byte) error {
		switch {
		case name == "next_after" && !bus.IsNull(v):
			return number(&next, name, v)
		case name == "sessions":
			return elements(v, func(e []byte) error {
				s, err := parseSession(e)
				list = append(list, s)
				return err
			})
		}
		return nil
	})
	return list, next, err
}

func parseSession(body []byte) (Session, error) {
	s := Session{JSON: body}
	err := members(body, func(name string, v []byte) error {
		switch name {
		case "workspace_id":
			return text(&s.Workspace, name, v)
		case "session_id":
			return text(&s.Session, name, v)
		}
		return nil
	})
	return s, err
}

// Outcome is what became of a message.
type Outcome struct {
	Outcome        string
	Reason         string
	Detail         string
	IngestPosition uint64
}

// ParseOutcome takes apart what [NATS.Outcome] returned.
func ParseOutcome(body []byte) (o Outcome, err error) {
	err = members(body, func(name string, v []byte) error {
		switch name {
		case "outcome":
			return text(&o.Outcome, name, v)
		case "reason":
			return text(&o.Reason, name, v)
		case "detail":
			return text(&o.Detail, name, v)
		case "ingest_position":
			return number(&o.IngestPosition, name, v)
		}
		return nil
	})
	return o, err
}

// Status is of [Target.Status] what commands go by.
type Status struct {
	Epoch          string
	Latest         uint64
	Oldest         uint64
	IngestPosition uint64
	SilentStores   uint64 // 0 also if it is not known
}

// ParseStatus takes apart what [Target.Status] returned.
func ParseStatus(body []byte) (s Status, err error) {
	err = members(body, func(name string, v []byte) error {
		switch name {
		case "epoch":
			return text(&s.Epoch, name, v)
		case "latest_seq":
			return number(&s.Latest, name, v)
		case "oldest_seq":
			return number(&s.Oldest, name, v)
		case "silent_stores":
			if bus.IsNull(v) {
				return nil
			}
			return number(&s.SilentStores, name, v)
		case "ingest":
			return members(v, func(name string, v []byte) error {
				if name == "position" {
					return number(&s.IngestPosition, name, v)
				}
				return nil
			})
		}
		return nil
	})
	return s, err
}

func members(body []byte, fn func(name string, v []byte) error) error {
	compact, err := bus.CompactWire(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	isObject, err := bus.Members(compact, fn)
	if err == nil && !isObject {
		err = fmt.Errorf("%w: it is no object", errAnswer)
	}
	return err
}

func elements(v []byte, fn func(e []byte) error) error {
	isArray, err := bus.Elements(v, fn)
	if err == nil && !isArray {
		err = fmt.Errorf("%w: a list is no array", errAnswer)
	}
	return err
}

func number(to *uint64, name string, v []byte) error {
	n, ok := bus.Int(v)
	if !ok || n < 0 {
		return fmt.Errorf("%w: %s is no number", errAnswer, name)
	}
	*to = uint64(n)
	return nil
}

func text(to *string, name string, v []byte) error {
	if !bus.IsString(v) {
		return fmt.Errorf("%w: %s is no string", errAnswer, name)
	}
	*to = bus.Unquote(v)
	return nil
}
