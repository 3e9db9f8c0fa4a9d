package outbox

import (
	"encoding/binary"
	"errors"

	"github.com/skaldbus/skald/bus"
)

// Kind says how an entry is told from every other one of its session.
type Kind uint8

// Kinds of entries.
const (
	// Counted is a message with a publisher's count.
	Counted Kind = 1 + iota
	// Named is a message with an event id.
	Named
	// Chained is a relay event in its wire form, with its place in the chain.
	Chained
	// Observed is an observation whose place in the chain is not known yet. It
	// becomes Chained by being added again under its number.
	Observed
)

// Entry is one accepted message or relay event.
type Entry struct {
	// Number is unique in the directory and goes up; Add gives it if it is 0.
	Number uint64
	Kind   Kind
	Class  bus.Class
	// AcceptedAt is when it was accepted, in ms since 1970.
	AcceptedAt int64

	Count       uint64            // of Counted
	EventID     string            // of Named
	After, Last bus.ChainPosition // of Chained: the chain before and with it
	Command     []byte            // of Observed: the command id's token, nil if none
	RecordedAt  int64             // of Observed: the worker's time in ms
	Body        []byte

	// Traceparent and Tracestate are the trace context that the entry was accepted in,
	// empty if none. Without the first the second is not kept.
	Traceparent, Tracestate string
}

// State is what has to be known of a session beside its entries.
type State struct {
	Key bus.Key
	// Publisher is the id under which its messages are counted.
	Publisher string
	// Count is the last count that was given out.
	Count uint64
	// Placed says that End is known.
	Placed bool
	// End is the chain with the last event that has a place.
	End bus.ChainPosition
	// Presumed says that End follows from a journal that was appended before the
	// bus was asked: the bus may know more of it.
	Presumed bool
	// UsedAt is the latest use, in ms since 1970.
	UsedAt int64
	// Stopped and Why say that the session has ended for good and why; the
	// numbers are the caller's, 0 while it goes on.
	Stopped uint8
	Why     string
}

// Session is what was found of a session.
type Session struct {
	State
	Entries []Entry // not released, by number
}

// Records in a frame.
const (
	recordHead uint8 = 1 + iota
	recordState
	recordEntry
	recordRelease
	recordTraced // an entry with a trace context
)

// version is that of the records: 2 has recordTraced beside those of 1.
const version = 2

// head begins a segment.
type head struct {
	prevEnd uint64 // how many bytes of the segment before it count
	number  uint64 // the highest entry number given out before
}

func appendHead(dst []byte, h head) []byte {
	dst = append(dst, recordHead, version)
	dst = binary.AppendUvarint(dst, h.prevEnd)
	return binary.AppendUvarint(dst, h.number)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendPosition(dst []byte, p bus.ChainPosition) []byte {
	return append(binary.AppendUvarint(dst, p.Ordinal), p.Digest[:]...)
}

func appendKey(dst []byte, k bus.Key) []byte {
	return appendString(appendString(dst, k.Workspace), k.Session)
}

func appendState(dst []byte, s *State) []byte {
	dst = appendKey(append(dst, recordState), s.Key)
	dst = appendString(dst, s.Publisher)
	dst = binary.AppendUvarint(dst, s.Count)
	switch {
	case s.Placed && s.Presumed:
		dst = appendPosition(append(dst, 2), s.End)
	case s.Placed:
		dst = appendPosition(append(dst, 1), s.End)
	default:
		dst = append(dst, 0)
	}
	dst = binary.AppendVarint(dst, s.UsedAt)
	return appendString(append(dst, s.Stopped), s.Why)
}

func appendEntry(dst []byte, k bus.Key, e *Entry) []byte {
	record := recordEntry
	if e.Traceparent != "" {
		record = recordTraced
	}
	dst = appendKey(append(dst, record), k)
	dst = binary.AppendUvarint(dst, e.Number)
	dst = appendString(append(dst, byte(e.Kind)), string(e.Class))
	dst = binary.AppendVarint(dst, e.AcceptedAt)
	switch e.Kind {
	case Counted:
		dst = binary.AppendUvarint(dst, e.Count)
	case Named:
		dst = appendString(dst, e.EventID)
	case Chained:
		dst = append(binary.AppendUvarint(dst, e.Last.Ordinal), e.After.Digest[:]...)
		dst = append(dst, e.Last.Digest[:]...)
	case Observed:
		dst = binary.AppendVarint(dst, e.RecordedAt)
		dst = appendString(dst, string(e.Command))
	}
	dst = appendString(dst, string(e.Body))
	if e.Traceparent != "" {
		dst = appendString(appendString(dst, e.Traceparent), e.Tracestate)
	}
	return dst
}

func appendRelease(dst []byte, number uint64) []byte {
	return binary.AppendUvarint(append(dst, recordRelease), number)
}

var errRecord = errors.New("a record can not be read")

// reader reads what the functions above have written. After an error it gives
// zeros; look at bad in the end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) digest() (d bus.Digest) {
	if len(r.b) < len(d) {
		r.bad, r.b = true, nil
		return d
	}
	copy(d[:], r.b)
	r.b = r.b[len(d):]
	return d
}

func (r *reader) key() bus.Key {
	return bus.Key{Workspace: string(r.bytes()), Session: string(r.bytes())}
}

func (r *reader) state() (s State) {
	s.Key = r.key()
	s.Publisher = string(r.bytes())
	s.Count = r.uint()
	place := r.byte()
	s.Presumed = place == 2
	if s.Placed = place > 0; s.Placed {
		s.End.Ordinal = r.uint()
		s.End.Digest = r.digest()
	}
	s.UsedAt = r.int()
	s.Stopped = r.byte()
	s.Why = string(r.bytes())
	return s
}

func (r *reader) entry(traced bool) (k bus.Key, e Entry) {
	k = r.key()
	e.Number = r.uint()
	e.Kind = Kind(r.byte())
	e.Class = bus.Class(r.bytes())
	e.AcceptedAt = r.int()
	switch e.Kind {
	case Counted:
		e.Count = r.uint()
	case Named:
		e.EventID = string(r.bytes())
	case Chained:
		e.Last.Ordinal = r.uint()
		e.After.Digest = r.digest()
		e.Last.Digest = r.digest()
		e.After.Ordinal = e.Last.Ordinal - 1
	case Observed:
		e.RecordedAt = r.int()
		if e.Command = r.bytes(); len(e.Command) == 0 {
			e.Command = nil
		}
	default:
		r.bad = true
	}
	e.Body = r.bytes()
	if traced {
		e.Traceparent, e.Tracestate = string(r.bytes()), string(r.bytes())
	}
	return k, e
}

// visitor takes the records of a frame in; a nil func passes over them.
type visitor struct {
	head    func(head)
	state   func(State)
	entry   func(e found, record []byte)
	release func(number uint64)
}

// visit reads the records of a payload.
func visit(payload []byte, v visitor) error {
	r := reader{b: payload}
	for len(r.b) > 0 {
		begin := r.b
		switch record := r.byte(); record {
		case recordHead:
			if r.byte() > version {
				return errors.New("it was written by a later version")
			}
			h := head{prevEnd: r.uint(), number: r.uint()}
			if !r.bad && v.head != nil {
				v.head(h)
			}
		case recordState:
			if s := r.state(); !r.bad && v.state != nil {
				v.state(s)
			}
		case recordEntry, recordTraced:
			if k, e := r.entry(record == recordTraced); !r.bad && v.entry != nil {
				v.entry(found{Entry: e, key: k}, begin[:len(begin)-len(r.b)])
			}
		case recordRelease:
			if n := r.uint(); !r.bad && v.release != nil {
				v.release(n)
			}
		default:
			return errRecord
		}
		if r.bad {
			return errRecord
		}
	}
	return nil
}
