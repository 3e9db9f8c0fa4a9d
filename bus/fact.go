package bus

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ParseFact reads a message of EVENTS and decides whether it is ours: it has a
// well-formed origin, and its body is of the number, session and type that its
// sequence and subject say. All else is foreign and only takes a number; ok is then
// false. Data belongs to data, as with [ParseEvent].
func (s Subjects) ParseFact(seq uint64, subject string, h nats.Header, data []byte) (ev Event, o Origin, ok bool) {
	if o, ok = ParseOrigin(h); !ok {
		return Event{}, Origin{}, false
	}
	key, typ, err := s.ParseEvent(subject)
	if err != nil {
		return Event{}, Origin{}, false
	}
	ev, err = ParseEvent(data)
	if err != nil || ev.Seq != seq || ev.Key() != key || ev.Type != typ {
		return Event{}, Origin{}, false
	}
	ev.Traceparent = Traceparent(h)
	return ev, o, true
}

// APIPrefix is what the subjects of JetStream's requests begin with, for requests
// that the client library does not offer. It tells the prefix only where it is not
// the usual one.
func APIPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}
