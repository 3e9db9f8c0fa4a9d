package publisher

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// Message is a message without a chain whose body is ready.
type Message struct {
	// Class is session, activity, error or control; for projection see
	// [Session.Append].
	Class bus.Class
	// EventID, if it is not empty, stands instead of a count: whoever sends the
	// message again with it, in whatever process, adds nothing. The bus remembers
	// it within its horizon. A control message has no count, so without an id it
	// gets one.
	EventID string
	// Body is JSON of that class. White space between tokens is left out.
	Body []byte
}

// Publish takes ready messages, in their order; all are accepted or none. There are
// as many receipts. A body that the bus would reject is a *[bus.InvalidError]. Other
// errors are those of [Session.Observe].
func (s *Session) Publish(ctx context.Context, messages ...Message) ([]*Receipt, error) {
	for i := range messages {
		if err := messages[i].check(); err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
	}
	receipts, err := s.publish(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return receipts, nil
}

func (m *Message) check() error {
	if m.EventID != "" {
		if _, err := bus.ParseIdentity(nats.Header{bus.HeaderEventID: {m.EventID}}, bus.ClassError); err != nil {
			return err
		}
	}
	body, err := bus.Compact(m.Body)
	if err != nil {
		return err
	}
	m.Body = body
	switch {
	case !m.Class.Known() || m.Class == bus.ClassProjection:
		return &bus.InvalidError{Reason: bus.ReasonBody, Field: "class", Rule: fmt.Sprintf("must be session, activity, error or control, not %q", m.Class)}
	case m.Class == bus.ClassControl && m.EventID == "":
		m.EventID = bus.NewID()
	}
	return bus.CheckBody(m.Class, body)
}

// publish accepts messages that are in order.
func (s *Session) publish(ctx context.Context, messages []Message) ([]*Receipt, error) {
	receipts := make([]*Receipt, len(messages))
	trace := traceOf(ctx)
	size := 0
	for i := range messages {
		if err := s.p.fits(len(messages[i].Body)); err != nil {
			return nil, err
		}
		size += len(messages[i].Body)
		receipts[i] = &Receipt{s: s, eventID: messages[i].EventID}
	}
	if len(messages) == 0 {
		return nil, nil
	}
	return receipts, s.acceptMany(ctx, len(messages), int64(size), func() error {
		for i, m := range messages {
			s.pushLocked(item{class: m.Class, eventID: m.EventID, body: m.Body, cost: int64(len(m.Body)) + overhead, receipt: receipts[i], trace: trace})
		}
		return nil
	})
}

// say accepts a message whose body may have failed.
func (s *Session) say(ctx context.Context, doing string, m Message, err error) (*Receipt, error) {
	var receipts []*Receipt
	if err == nil {
		receipts, err = s.publish(ctx, []Message{m})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return receipts[0], nil
}

// question names a message when the bus is asked what became of it.
func question(publisher string, count uint64, eventID string) []byte {
	if eventID != "" {
		return append(bus.AppendQuoted([]byte(`{"event_id":`), eventID), '}')
	}
	return fmt.Appendf(bus.AppendQuoted([]byte(`{"publisher":`), publisher), `,"publisher_seq":%d}`, count)
}
