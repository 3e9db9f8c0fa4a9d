package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// maxLineOverhead is what a line of input may hold beside the body: two ids with
// every byte escaped, an event id, names and white space.
const maxLineOverhead = 64 << 10

// message is what is to be published.
type message struct {
	key     bus.Key // zero for control messages that belong to no session
	class   bus.Class
	eventID string
	body    []byte
}

// parseMessage reads one line, {"workspace_id"?,"session_id"?,"class"?,
// "event_id"?,"body"}. What is absent is taken from the defaults. The body's
// bytes stay as they are, less white space between tokens.
func parseMessage(line []byte, defaults message) (message, error) {
	m := defaults
	m.body = nil
	compact, err := bus.CompactWire(line)
	if err != nil {
		return m, err
	}
	seen := map[string]bool{}
	isObject, err := bus.Members(compact, func(name string, v []byte) error {
		if seen[name] {
			return fmt.Errorf("%s: must not occur twice", name)
		}
		seen[name] = true
		if name == "body" {
			m.body = v
			return nil
		}
		if !bus.IsString(v) {
			return fmt.Errorf("%s: must be a string", name)
		}
		switch s := bus.Unquote(v); name {
		case "workspace_id":
			m.key.Workspace = s
		case "session_id":
			m.key.Session = s
		case "class":
			m.class = bus.Class(s)
		case "event_id":
			m.eventID = s
			if s == "" {
				return errors.New("event_id: must not be empty, leave it out instead")
			}
		default:
			return fmt.Errorf("%s: is not known, the members are workspace_id, session_id, class, event_id and body", name)
		}
		return nil
	})
	switch {
	case err != nil:
		return m, err
	case !isObject:
		return m, errors.New("must be a JSON object")
	case m.body == nil:
		return m, errors.New("body: is missing")
	}
	return m, nil
}

// check reports what would be refused or rejected for certain, before it is sent.
// most bounds the body in bytes.
func (m *message) check(most int) error {
	if err := m.key.Check(); err != nil {
		return err
	}
	if !m.class.Known() {
		return fmt.Errorf("class: must be session, activity, error, projection or control, not %q", m.class)
	}
	if _, err := bus.ParseIdentity(m.headers(), bus.ClassError); err != nil {
		return err
	}
	body, err := bus.Compact(m.body)
	if err != nil {
		return err
	}
	m.body = body
	if err := bus.CheckBody(m.class, body); err != nil {
		return bodyError{m.class, err}
	}
	if len(body) > most {
		return fmt.Errorf("body: is %d bytes long, this server takes at most %d", len(body), most)
	}
	return nil
}

// errBody is what a bodyError is.
var errBody = errors.New("body is not one of its class")

// bodyError says what is wrong with a body of the class.
type bodyError struct {
	class bus.Class
	err   error
}

func (b bodyError) Error() string        { return fmt.Sprintf("body of class %s: %v", b.class, b.err) }
func (b bodyError) Unwrap() error        { return b.err }
func (b bodyError) Is(target error) bool { return target == errBody }

func (m *message) headers() nats.Header {
	h := nats.Header{}
	if m.eventID != "" {
		h.Set(bus.HeaderEventID, m.eventID)
	}
	return h
}

// lines reads lines of at most most bytes.
type lines struct {
	r    *bufio.Reader
	most int
}

func newLines(r io.Reader, most int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

// errLineTooLong is returned for a line that was passed over; the next call goes
// on with the next line.
var errLineTooLong = errors.New("line is too long")

// next returns the next line without its end, or io.EOF.
func (l *lines) next() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if long = long || len(line)+len(part) > l.most; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0 && !long):
			return nil, err
		case long:
			return nil, fmt.Errorf("%w, at most %d bytes are read", errLineTooLong, l.most)
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// more reports whether another whole line has been read ahead.
func (l *lines) more() bool {
	ahead, err := l.r.Peek(l.r.Buffered())
	return err == nil && bytes.IndexByte(ahead, '\n') >= 0
}
