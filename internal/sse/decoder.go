package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// MaxEvent bounds one event, in bytes: more than the largest message of a server.
const MaxEvent = 64 << 20

// ErrTooLarge: an event is larger than MaxEvent.
var ErrTooLarge = errors.New("server-sent event is too large")

// Event is one event of a stream.
type Event struct {
	ID   string // the last id that the stream has set, with this event or before
	Name string // "message" if the event names none
	Data []byte
}

// Decoder reads a stream of events. It does not matter how the bytes are cut.
type Decoder struct {
	r        *bufio.Reader
	begun    bool
	skipLF   bool // the line before ended in CR, to which an LF may belong
	id       string
	retry    time.Duration
	comments int
}

// NewDecoder returns a decoder that reads from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReader(r)} }

// Retry returns how long the stream has asked a client to wait before it comes back, 0
// if it has not.
func (d *Decoder) Retry() time.Duration { return d.retry }

// Comments returns how many comments were read.
func (d *Decoder) Comments() int { return d.comments }

// Next returns the next event. The error is io.EOF at the stream's end, by which an
// event that was not complete is lost, as the standard has it; or ErrTooLarge, or the
// reader's.
func (d *Decoder) Next() (Event, error) {
	e := Event{Name: "message"}
	var data []byte
	has, size := false, 0
	for {
		line, err := d.line(MaxEvent - size)
		if err != nil {
			return Event{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if !has {
				e.Name, size = "message", 0
				continue
			}
			e.ID, e.Data = d.id, data
			return e, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "":
			d.comments++
		case "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case "event":
			if e.Name = string(value); e.Name == "" {
				e.Name = "message"
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				d.id = string(value)
			}
		case "retry":
			if n, err := strconv.ParseUint(string(value), 10, 31); err == nil && !strings.HasPrefix(string(value), "+") {
				d.retry = time.Duration(n) * time.Millisecond
			}
		}
	}
}

// line returns the next line without its end, which is CR, LF or both.
func (d *Decoder) line(most int) ([]byte, error) {
	if !d.begun {
		d.begun = true
		if bom, err := d.r.Peek(3); err == nil && string(bom) == "\uFEFF" {
			_, _ = d.r.Discard(3) // it is there
		}
	}
	var line []byte
	for {
		// What is buffered is looked at whole; a byte at a time only between buffers.
		if _, err := d.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("read server-sent events: %w", err)
		}
		chunk, _ := d.r.Peek(d.r.Buffered())
		if d.skipLF {
			d.skipLF = false
			if chunk[0] == '\n' {
				_, _ = d.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		n := end
		if end < 0 {
			n = len(chunk)
		}
		if len(line)+n > most {
			return nil, ErrTooLarge
		}
		line = append(line, chunk[:n]...)
		if end < 0 {
			_, _ = d.r.Discard(n)
			continue
		}
		d.skipLF = chunk[end] == '\r'
		_, _ = d.r.Discard(n + 1)
		return line, nil
	}
}
