package bus

import (
	"errors"
	"fmt"
)

// Reason is why a message was rejected: a short code that stays the same over
// releases, stored with the reject and told to the publisher.
type Reason string

// The reasons. All but ReasonAhead are final: the same bytes will be rejected
// again, and the message is kept as a reject until an operator discards it.
const (
	// ReasonSubject: the subject is not prefix.in.<workspace>.<session>.<class>,
	// or a token is not the canonical escape of a valid id.
	ReasonSubject Reason = "bad_subject"
	// ReasonClass: the subject's last token names no known class.
	ReasonClass Reason = "unknown_class"
	// ReasonHeader: Skald-Publisher, Skald-Publisher-Seq or Skald-Event-Id is malformed.
	ReasonHeader Reason = "bad_header"
	// ReasonBody: the body is not JSON, or a named member lacks its type or range.
	ReasonBody Reason = "bad_body"
	// ReasonPage: a projection page is not 1 to 128 events with ordinals from 1
	// that follow each other.
	ReasonPage Reason = "bad_page"
	// ReasonChain: a digest, a previous digest or an "after" differs from the
	// session's chain: a fork, a corruption or another journal.
	ReasonChain Reason = "bad_chain"
	// ReasonConflict: the count or event id is known with another body; the first stands.
	ReasonConflict Reason = "conflict"
	// ReasonAhead: the message lies further ahead of what the session knows than
	// it can hold. Not final: the publisher sends again from the expected place.
	ReasonAhead Reason = "ahead"
	// ReasonResync: not a refusal but the record that a resync leaves of the
	// range it skipped, and of held pages that it made useless.
	ReasonResync Reason = "resync"
	// ReasonNotInEvents: the store derived facts of this message that EVENTS,
	// which decides, neither held nor was given.
	ReasonNotInEvents Reason = "not_in_events"
	// ReasonTakenOver: not a refusal but the record that the store has taken a session's
	// facts over from EVENTS without their messages, which INGEST no longer holds.
	ReasonTakenOver Reason = "taken_over"
)

// The reasons of entries that are of no message, but of INGEST itself: it is not what
// it was. Discarding such an entry says that an operator knows.
const (
	// ReasonIngestHole: INGEST lost messages from its middle that it had acknowledged.
	ReasonIngestHole Reason = "ingest_hole"
	// ReasonIngestTrimmed: INGEST's beginning is gone beyond what the store has read.
	ReasonIngestTrimmed Reason = "ingest_trimmed"
	// ReasonIngestRolledBack: INGEST was set back to an earlier state, or lost its end,
	// and may have gone on since.
	ReasonIngestRolledBack Reason = "ingest_rolled_back"
	// ReasonIngestRecreated: INGEST was made anew, or another one was put in its place.
	ReasonIngestRecreated Reason = "ingest_recreated"
)

// InvalidError says which part of an input breaks which rule. It is what every
// door of Skald (NATS, HTTP, command line) answers to bad input.
type InvalidError struct {
	Reason Reason // the code; empty where the input is not a message
	Field  string // the part that is wrong: "recorded_at_ms", "limit", "session"
	Rule   string // the rule it breaks, in words: "must be an integer within int64"
}

// Error returns "field: rule".
func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Rule
	}
	return e.Field + ": " + e.Rule
}

// invalid builds an InvalidError with a formatted rule.
func invalid(reason Reason, field, rule string, args ...any) *InvalidError {
	if len(args) > 0 {
		rule = fmt.Sprintf(rule, args...)
	}
	return &InvalidError{Reason: reason, Field: field, Rule: rule}
}

// Errors that a reader of the table or of EVENTS meets. Each is wrapped with the
// numbers it concerns; decide with errors.Is.
var (
	// ErrCursorAhead: the cursor lies beyond the newest number anywhere.
	ErrCursorAhead = errors.New("cursor is ahead of the newest event")
	// ErrCursorGone: events after the cursor were pruned from the table.
	ErrCursorGone = errors.New("cursor is older than the oldest kept event")
	// ErrOtherEpoch: the cursor was handed out before numbers changed meaning.
	ErrOtherEpoch = errors.New("cursor belongs to another epoch")
	// ErrBehind: the cursor is valid but this store has not reached it yet.
	ErrBehind = errors.New("this store has not reached the cursor yet")
	// ErrNotFound: no such session, or it was forgotten.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: several workspaces have a session of this id.
	ErrAmbiguous = errors.New("several workspaces have a session of this id")
	// ErrUnavailable: NATS or the store does not answer at the moment.
	ErrUnavailable = errors.New("not available at the moment")
)

// Errors that stop a process at start-up, since going on would break a promise.
var (
	// ErrOtherBus: the store and the streams carry different epochs, so they do
	// not belong together.
	ErrOtherBus = errors.New("store and streams belong to different buses")
	// ErrContract: the streams follow a contract that this binary does not know.
	ErrContract = errors.New("streams follow another contract")
	// ErrStreamSettings: a stream exists with settings that break a promise.
	ErrStreamSettings = errors.New("stream settings do not fit")
	// ErrServerTooOld: the NATS server is older than MinServerVersion.
	ErrServerTooOld = errors.New("NATS server is too old")
	// ErrNoJetStream: the NATS server or account has no JetStream.
	ErrNoJetStream = errors.New("JetStream is not enabled")
	// ErrStreamMissing: a store that belongs to a bus finds one of its streams gone.
	ErrStreamMissing = errors.New("stream is missing")
)
