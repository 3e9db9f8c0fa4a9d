package projection

import (
	"bytes"
	"crypto/sha256"

	"github.com/skaldbus/skald/bus"
)

// Message is one INGEST message as the materializer read it.
type Message struct {
	Key   bus.Key
	Class bus.Class // as in the subject, known or not
	Seq   uint64    // its sequence in INGEST
	Time  int64     // INGEST's stored time, ns since 1970

	// Identity and IdentityErr are the results of [bus.ParseIdentity].
	Identity    bus.Identity
	IdentityErr error

	// Body is the payload as received. Neither the state nor a result keeps a
	// slice of it.
	Body []byte
}

// Hash is the first 8 bytes of the SHA-256 over a message's class, a NUL byte and
// its compact body (the raw body if that is not JSON). Under one count or event id
// it tells the same message from another one.
type Hash [8]byte

// KnownID is what is remembered of an event id that was applied within the horizon. A
// zero hash is unknown: then any message with the id is taken for the same.
type KnownID struct{ Hash Hash }

// Outcome is what became of a message.
type Outcome uint8

// The outcomes. Every message has exactly one; the zero value is none.
const (
	Applied   Outcome = iota + 1 // it changed the state or gave facts
	Duplicate                    // known by count, id or chain, and the same
	Held                         // a page ahead of the chain that waits for a gap to fill
	Rejected                     // see Result.Reason
	Dropped                      // its session was forgotten
)

// String returns the outcome as status, hints and logs write it.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Duplicate:
		return "duplicate"
	case Held:
		return "held"
	case Rejected:
		return "rejected"
	case Dropped:
		return "dropped"
	}
	return "none"
}

// Result is all that a message leads to besides the session's new state.
type Result struct {
	Outcome Outcome
	Reason  bus.Reason // for Rejected, else empty
	Detail  string     // for Rejected: the rule in words; for ahead it names the expected ordinal or count

	Facts   []Fact    // to append to EVENTS, in this order; those of held pages follow the message's own
	Rejects []Reject  // entries to leave for the operator, at most one a message
	Hold    *HeldPage // a page to store, nil if none
	Release []HeldKey // held pages to delete from the store

	// Remember says that the message's event id is to be remembered with Hash.
	Remember bool
	Hash     Hash

	Unprojected int  // observations that moved the chain on but could not be used
	Forget      bool // the session became a tombstone: its rows, ids, rejects and held pages go
	Erase       bool // with Forget: what goes is overwritten
}

// Fact is an event that has no number yet.
type Fact struct {
	Type       string // one of bus.Type…
	RecordedAt int64  // ms, the worker's clock
	Data       []byte // one compact JSON object
	Source     bus.Source
}

// Reject is an entry for the operator: a message that was rejected, a held page
// that turned out wrong, or the range that a resync skipped.
type Reject struct {
	Seq      uint64 // of the message, in INGEST
	Time     int64  // its stored time, ns since 1970
	Class    bus.Class
	Reason   bus.Reason
	Detail   string
	Payload  []byte // as received, a held page compact; nil for ahead, which keeps none
	Size     int    // bytes of the payload as received, of a held page compact
	Identity bus.Identity
}

// HeldKey names a held page within its session.
type HeldKey struct {
	First uint64     // ordinal of the first event
	Last  bus.Digest // digest of the last event
}

// HeldPage is a page that waits until the ordinals before it are applied.
type HeldPage struct {
	HeldKey
	LastOrdinal uint64
	Seq         uint64 // of its message, in INGEST
	Time        int64  // that message's stored time, ns since 1970
	Body        []byte // compact; must not be modified
}

// reject makes the result that of a rejected message, and leaves an entry.
func (r *Result) reject(m *Message, reason bus.Reason, detail string) {
	r.Outcome, r.Reason, r.Detail = Rejected, reason, detail
	r.leave(m, reason, detail)
}

// leave leaves an entry for the message.
func (r *Result) leave(m *Message, reason bus.Reason, detail string) {
	e := Reject{Seq: m.Seq, Time: m.Time, Class: m.Class, Reason: reason, Detail: detail, Size: len(m.Body), Identity: m.Identity}
	if reason != bus.ReasonAhead {
		// Appending to an empty slice keeps an empty payload apart from none.
		e.Payload = append([]byte{}, m.Body...)
	}
	r.Rejects = append(r.Rejects, e)
}

// leaveHeld leaves an entry for a page that was held and can not be applied.
func (r *Result) leaveHeld(h *HeldPage, reason bus.Reason, detail string) {
	r.Rejects = append(r.Rejects, Reject{
		Seq: h.Seq, Time: h.Time, Class: bus.ClassProjection, Reason: reason, Detail: detail,
		Payload: h.Body, Size: len(h.Body),
	})
}

// hashOf returns the message's hash over its class and the given form of its body.
func hashOf(class bus.Class, body []byte) (h Hash) {
	// Most messages fit a buffer on the stack, which spares an allocation.
	var small [1024]byte
	if n := len(class) + 1 + len(body); n <= len(small) {
		b := append(append(append(small[:0], class...), 0), body...)
		sum := sha256.Sum256(b)
		copy(h[:], sum[:])
		return h
	}
	d := sha256.New()
	d.Write([]byte(class))
	d.Write([]byte{0})
	d.Write(body)
	copy(h[:], d.Sum(nil))
	return h
}

// recordedAt returns the worker's time in ms, INGEST's stored time if it gave none.
func (m *Message) recordedAt(given *int64) int64 {
	if given != nil {
		return *given
	}
	return m.Time / 1e6
}

// source returns what the facts of a message without a chain are deduplicated by.
func (m *Message) source() bus.Source {
	if m.Identity.Publisher != "" {
		return bus.Source{Publisher: m.Identity.Publisher, Count: m.Identity.Count}
	}
	return bus.Source{EventID: m.Identity.EventID}
}

// own returns compact in memory that nobody else holds: a compact body is the
// received one if there was no white space to take out.
func (m *Message) own(compact []byte) []byte {
	if len(compact) > 0 && len(m.Body) > 0 && &compact[0] == &m.Body[0] {
		return bytes.Clone(compact)
	}
	return compact
}
