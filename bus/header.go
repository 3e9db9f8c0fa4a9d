package bus

import (
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Headers of INGEST messages, which say what a message is deduplicated by, and
// of EVENTS messages, which carry that on and name the fact's origin.
const (
	HeaderPublisher    = "Skald-Publisher"     // an id of the publisher
	HeaderPublisherSeq = "Skald-Publisher-Seq" // its count in this session, from 1
	HeaderEventID      = "Skald-Event-Id"      // for clients that keep no count
	HeaderTrace        = "traceparent"         // W3C trace context, passed on
	HeaderTraceState   = "tracestate"          // beside it, up to INGEST

	HeaderEpoch      = "Skald-Epoch"       // the epoch when the message was written
	HeaderIngestSeq  = "Skald-Ingest-Seq"  // the origin's sequence in INGEST
	HeaderIngestTime = "Skald-Ingest-Time" // the origin's stored time, ns since 1970
	HeaderIndex      = "Skald-Index"       // the fact's place among its origin's, from 0
	HeaderChain      = "Skald-Chain"       // ordinal:digest of the relay event behind the fact
)

// Bounds of the values above.
const (
	MaxPublisher = 64  // bytes of a publisher's id
	MaxEventID   = 128 // bytes of an event id

	MaxTraceState = 512 // bytes of a tracestate; a longer one is left out
)

// Identity is what a message is deduplicated by: a publisher and its count, or an
// event id, or nothing. Where both are given the count decides.
type Identity struct {
	Publisher string
	Count     uint64 // 1 to 2^63-1; 0 if there is no publisher
	EventID   string
}

// ParseIdentity reads the identity out of a message's headers, as far as its
// class uses it: projection pages are deduplicated by their chain and control
// messages have no count, so what they carry there is not read. The error is an
// *[InvalidError] with [ReasonHeader]; the identity returned with it holds the
// parts that are well-formed.
func ParseIdentity(h nats.Header, class Class) (id Identity, err error) {
	if class == ClassProjection || len(h) == 0 {
		return Identity{}, nil
	}
	if err := spelling(h, class); err != nil {
		return Identity{}, err
	}
	if id.EventID, err = printable(h, HeaderEventID, MaxEventID); err != nil {
		return Identity{}, err
	}
	if class == ClassControl {
		return id, nil
	}
	publisher, err := printable(h, HeaderPublisher, MaxPublisher)
	if err != nil {
		return id, err
	}
	count, err := printable(h, HeaderPublisherSeq, 19)
	if err != nil {
		return id, err
	}
	switch {
	case publisher == "" && count == "":
		return id, nil
	case publisher == "":
		return id, invalid(ReasonHeader, HeaderPublisher, "is missing beside %s", HeaderPublisherSeq)
	case count == "":
		return id, invalid(ReasonHeader, HeaderPublisherSeq, "is missing beside %s", HeaderPublisher)
	}
	n, err := parseDigits(count)
	if err != nil || n == 0 {
		return id, invalid(ReasonHeader, HeaderPublisherSeq, "must be a decimal number from 1 to 2^63-1")
	}
	id.Publisher, id.Count = publisher, n
	return id, nil
}

// spelling refuses an identity's header in another case than ours. NATS keeps the
// case of names, so it would not be found, and the message would be taken without
// the identity that its sender relies on.
func spelling(h nats.Header, class Class) error {
	ours := [...]string{HeaderEventID, HeaderPublisher, HeaderPublisherSeq}
	read := ours[:]
	if class == ClassControl {
		read = ours[:1]
	}
	for name := range h {
		for _, right := range read {
			if len(name) == len(right) && name != right && strings.EqualFold(name, right) {
				return invalid(ReasonHeader, right, "must be written just so, not %s", name)
			}
		}
	}
	return nil
}

// printable returns the header's one value, "" if it is absent.
func printable(h nats.Header, name string, most int) (string, error) {
	v, ok := h[name]
	if !ok {
		return "", nil
	}
	if len(v) != 1 {
		return "", invalid(ReasonHeader, name, "must occur once")
	}
	if len(v[0]) < 1 || len(v[0]) > most {
		return "", invalid(ReasonHeader, name, "must be 1 to %d bytes long, not %d", most, len(v[0]))
	}
	for i := 0; i < len(v[0]); i++ {
		if c := v[0][i]; c < 0x21 || c > 0x7E {
			return "", invalid(ReasonHeader, name, "must be printable ASCII without spaces")
		}
	}
	return v[0], nil
}

// Traceparent returns the message's W3C trace context if it is well-formed
// (version-trace id-parent id-flags in lower-case hex), else "".
func Traceparent(h nats.Header) string {
	v := anyCase(h, HeaderTrace)
	if len(v) != 1 || len(v[0]) != 55 {
		return ""
	}
	for i := 0; i < 55; i++ {
		if c := v[0][i]; i == 2 || i == 35 || i == 52 {
			if c != '-' {
				return ""
			}
		} else if lowerHex(c) < 0 {
			return ""
		}
	}
	return v[0]
}

// Tracestate returns what stands beside a well-formed traceparent, "" if that is
// nothing, too long or in several parts. What it says is not looked at.
func Tracestate(h nats.Header) string {
	v := anyCase(h, HeaderTraceState)
	if len(v) != 1 || len(v[0]) > MaxTraceState {
		return ""
	}
	return v[0]
}

// anyCase returns the header's values: NATS keeps the case of header names, so
// clients differ in it.
func anyCase(h nats.Header, name string) []string {
	v, ok := h[name]
	if ok {
		return v
	}
	for other, values := range h {
		if len(other) == len(name) && strings.EqualFold(other, name) {
			v = values
		}
	}
	return v
}

// Origin names the INGEST message that a fact came from. Time is part of it
// since a rolled-back stream issues sequences again.
type Origin struct {
	Seq   uint64
	Time  int64 // INGEST's stored time, ns since 1970
	Index int   // the fact's place among its origin's facts, from 0
}

// SetHeaders writes the origin into h.
func (o Origin) SetHeaders(h nats.Header) { o.Headers(setIn(h)) }

// SetHeaders writes the source into h.
func (s Source) SetHeaders(h nats.Header) { s.Headers(setIn(h)) }

func setIn(h nats.Header) func(name, value string) {
	return func(name, value string) { h[name] = []string{value} }
}

// Headers calls set for each of the origin's three headers: for those who write
// many and care where the values are kept.
func (o Origin) Headers(set func(name, value string)) {
	set(HeaderIngestSeq, strconv.FormatUint(o.Seq, 10))
	set(HeaderIngestTime, strconv.FormatInt(o.Time, 10))
	set(HeaderIndex, strconv.Itoa(o.Index))
}

// ParseOrigin reads the origin of an EVENTS message; ok is false if a part is
// missing or malformed.
func ParseOrigin(h nats.Header) (o Origin, ok bool) {
	seq, err1 := parseDigits(h.Get(HeaderIngestSeq))
	time, err2 := parseDigits(h.Get(HeaderIngestTime))
	index, err3 := parseDigits(h.Get(HeaderIndex))
	if err1 != nil || err2 != nil || err3 != nil || seq == 0 || index > math.MaxInt32 {
		return Origin{}, false
	}
	return Origin{Seq: seq, Time: int64(time), Index: int(index)}, true
}

// Source is what a fact was deduplicated by: a count, an event id, or the relay
// event it was derived from. At most one of the three is set.
type Source struct {
	Publisher string
	Count     uint64
	EventID   string
	Chain     ChainPosition
}

// Headers calls set for each of the source's headers: two, one or none.
func (s Source) Headers(set func(name, value string)) {
	switch {
	case s.Publisher != "":
		set(HeaderPublisher, s.Publisher)
		set(HeaderPublisherSeq, strconv.FormatUint(s.Count, 10))
	case s.EventID != "":
		set(HeaderEventID, s.EventID)
	case s.Chain.Ordinal != 0:
		set(HeaderChain, strconv.FormatUint(s.Chain.Ordinal, 10)+":"+s.Chain.Digest.String())
	}
}

// SourceOf reads the source of an EVENTS message. Malformed parts count as absent.
func SourceOf(h nats.Header) Source {
	if v := h.Get(HeaderChain); v != "" {
		if s, ok := ParseSource("c" + v); ok {
			return s
		}
	}
	id, err := ParseIdentity(h, ClassError)
	switch {
	case err != nil:
		return Source{}
	case id.Publisher != "":
		return Source{Publisher: id.Publisher, Count: id.Count} // the count decides
	}
	return Source{EventID: id.EventID}
}

// String returns the source in the short form that the table keeps: "p" count
// ":" publisher, "i" event id, "c" ordinal ":" digest, or "" if nothing is set.
func (s Source) String() string {
	switch {
	case s.Publisher != "":
		return "p" + strconv.FormatUint(s.Count, 10) + ":" + s.Publisher
	case s.EventID != "":
		return "i" + s.EventID
	case s.Chain.Ordinal != 0:
		return "c" + strconv.FormatUint(s.Chain.Ordinal, 10) + ":" + s.Chain.Digest.String()
	}
	return ""
}

// ParseSource reads what String wrote.
func ParseSource(v string) (s Source, ok bool) {
	if v == "" {
		return s, true
	}
	kind, rest := v[0], v[1:]
	if kind == 'i' {
		return Source{EventID: rest}, rest != ""
	}
	num, text, found := strings.Cut(rest, ":")
	n, err := parseDigits(num)
	if !found || err != nil || n == 0 || text == "" {
		return s, false
	}
	switch kind {
	case 'p':
		return Source{Publisher: text, Count: n}, true
	case 'c':
		if d, ok := ParseDigest([]byte(text)); ok {
			return Source{Chain: ChainPosition{Ordinal: n, Digest: d}}, true
		}
	}
	return s, false
}
