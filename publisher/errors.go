package publisher

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Why a message is not stored yet. The publisher keeps trying; these are what
// [Session.Err], and calls whose context ends meanwhile, say of the latest attempt.
var (
	// ErrDisconnected: there is no connection, or it was lost before the answer
	// came; the message may be stored or not.
	ErrDisconnected = errors.New("no connection to NATS")
	// ErrFull: INGEST has no room until it is trimmed.
	ErrFull = errors.New("INGEST is full")
	// ErrNoService: nobody answers for the bus: no skald process serves it.
	ErrNoService = errors.New("nobody answers for the bus")
	// ErrNoStream: no stream takes the message: the bus has not been created on
	// this server, or has another prefix.
	ErrNoStream = errors.New("no stream takes the message")
	// ErrNotPermitted: the server refuses this connection the subject.
	ErrNotPermitted = errors.New("not permitted")
	// ErrRefused: the server answered with another refusal, which is wrapped.
	ErrRefused = errors.New("INGEST refuses the message")
	// ErrTimeout: no answer came in time; the message may be stored or not.
	ErrTimeout = errors.New("no answer in time")
)

// What does not change by trying again.
var (
	// ErrClosed: the publisher, the session or the connection was closed; the last also by
	// nats.go itself, when it has tried to reconnect nats.MaxReconnects times.
	ErrClosed = errors.New("closed")
	// ErrConflict: the bus knows another message under the count of one of this
	// publisher's: another process uses a copy of the outbox. It is ErrForked, too.
	ErrConflict = errors.New("another message has its count")
	// ErrForgotten: the session was forgotten; what is sent for it is dropped.
	ErrForgotten = errors.New("session was forgotten")
	// ErrForked: the bus knows another message in this one's place: someone else
	// writes the session, or the journal is not the one that the bus has read.
	ErrForked = errors.New("session has forked")
	// ErrLost: INGEST lost what it had acknowledged and the publisher no longer
	// keeps it. Open the session again and append from its position on.
	ErrLost = errors.New("acknowledged messages are lost")
	// ErrOpen: the publisher has the session open already.
	ErrOpen = errors.New("session is open already")
	// ErrNotKept: the outbox could not keep it, see what it wraps. Nothing was
	// accepted, and the next try may succeed. Only if the process then dies before
	// another write may the outbox bring it back.
	ErrNotKept = errors.New("outbox could not keep it")
	// ErrRejected: the bus rejected the message for good, see [RejectedError].
	ErrRejected = errors.New("message was rejected")
	// ErrRunning: Run was called a second time.
	ErrRunning = errors.New("publisher has run already")
	// ErrTooLarge: the message does not fit into [bus.MaxMessage] of the server's
	// payload limit, or into what INGEST takes.
	ErrTooLarge = errors.New("message is too large")
)

// RejectedError says why the bus rejected a message that INGEST had stored. It is
// ErrRejected.
type RejectedError struct {
	Reason    bus.Reason
	Detail    string // the rule in words; empty if only a hint told of it
	IngestSeq uint64
}

// Error returns the reason and the detail.
func (e *RejectedError) Error() string {
	s := fmt.Sprintf("%v: INGEST %d: %s", ErrRejected, e.IngestSeq, e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is makes errors.Is true for ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// Unconfirmed is what one session had accepted and INGEST has not acknowledged, or
// has lost again; with an outbox, what is not known to be materialized. Each such
// message may be stored or not.
type Unconfirmed struct {
	Key      bus.Key
	Messages int   // relay events, and messages without a chain
	Err      error // why; nil if there was no time to try

	// FirstOrdinal and LastOrdinal are the range of the relay events among
	// them, 0 if there are none.
	FirstOrdinal, LastOrdinal uint64

	// Kept says that they are in the outbox, and are sent when it is opened again.
	Kept bool
}

// add counts a message; its ordinal is 0 if it has no chain.
func (u *Unconfirmed) add(ordinal uint64) {
	u.Messages++
	if ordinal == 0 {
		return
	}
	if u.FirstOrdinal == 0 {
		u.FirstOrdinal = ordinal
	}
	u.LastOrdinal = ordinal
}

// UnconfirmedError lists what was accepted and is not known to be stored.
type UnconfirmedError struct{ Sessions []Unconfirmed }

// Error counts the messages and names the first sessions.
func (e *UnconfirmedError) Error() string {
	const named = 3 // as many as a line of a log bears
	total := 0
	var b strings.Builder
	for i, u := range e.Sessions {
		total += u.Messages
		if i < named {
			fmt.Fprintf(&b, "; %q/%q: %d", u.Key.Workspace, u.Key.Session, u.Messages)
			if u.Kept {
				b.WriteString(" kept in the outbox")
			}
			if u.Err != nil {
				fmt.Fprintf(&b, " (%v)", u.Err)
			}
		}
	}
	if more := len(e.Sessions) - named; more > 0 {
		fmt.Fprintf(&b, "; and %d more sessions", more)
	}
	return fmt.Sprintf("%d messages are not confirmed%s", total, b.String())
}

// Unwrap returns the sessions' reasons.
func (e *UnconfirmedError) Unwrap() []error {
	var out []error
	for _, u := range e.Sessions {
		if u.Err != nil {
			out = append(out, u.Err)
		}
	}
	return out
}
