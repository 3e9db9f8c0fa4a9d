package materializer

import (
	"crypto/sha256"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// message is one INGEST message, taken apart as far as that needs no state.
type message struct {
	projection.Message
	subject    string
	subjectErr error  // the subject names no session; Key and Class are empty
	admin      bool   // a control message that belongs to no session
	trace      string // a well-formed traceparent, or ""
	traceState string // beside it; only read for spans
}

// hash8 is the hash by which a message is known again.
func hash8(body []byte) []byte {
	h := sha256.Sum256(body)
	return h[:len(projection.Hash{})]
}

// size is what the message counts against the bounds on memory.
func (m *message) size() int64 { return int64(len(m.Body) + len(m.subject) + 256) }

func (m *Materializer) newMessage(msg jetstream.Msg, meta *jetstream.MsgMetadata) *message {
	out := &message{subject: msg.Subject()}
	out.Seq = meta.Sequence.Stream
	out.Time = meta.Timestamp.UnixNano()
	out.Body = msg.Data()
	out.Key, out.Class, out.admin, out.subjectErr = m.o.Subjects.ParseIngest(out.subject)
	if out.subjectErr == nil {
		h := msg.Headers()
		out.Identity, out.IdentityErr = bus.ParseIdentity(h, out.Class)
		if out.trace = bus.Traceparent(h); out.trace != "" && m.o.Tracer != nil {
			out.traceState = bus.Tracestate(h)
		}
	}
	return out
}
