package publisher

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// item is what a caller has handed over: a relay event, which will become part of
// a page, or the whole body of a message without a chain.
type item struct {
	class   bus.Class
	body    []byte
	after   bus.ChainPosition // of an event: the chain before it
	last    bus.ChainPosition // of an event: the chain with it
	cost    int64             // bytes of the budget
	receipt *Receipt
}

// queue holds what is accepted and not yet part of a message, in the callers'
// order. It is where a queue on disk would stand.
type queue struct{ items []item }

func (q *queue) push(it item) { q.items = append(q.items, it) }

// unshift puts items back at the front.
func (q *queue) unshift(items []item) {
	q.items = append(append(make([]item, 0, len(items)+len(q.items)), items...), q.items...)
}

// take takes n items off the front.
func (q *queue) take(n int) []item {
	out := append([]item(nil), q.items[:n]...)
	clear(q.items[:n]) // the array lives on
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return out
}

// page returns how many items at the front make the next message: relay events up
// to [bus.MaxPageEvents] and limit bytes, at least one, or one item without a chain.
func (q *queue) page(limit int) (n, size int) {
	if q.items[0].class != bus.ClassProjection {
		return 1, len(q.items[0].body)
	}
	size = pageFrame
	for n < len(q.items) && n < bus.MaxPageEvents && q.items[n].class == bus.ClassProjection {
		grown := size + len(q.items[n].body) + 1
		if n > 0 && grown > limit {
			break
		}
		n, size = n+1, grown
	}
	return n, size
}

// message is one INGEST message. Its bytes never change, whatever becomes of the
// attempts to send it.
type message struct {
	class bus.Class
	count uint64 // of a message without a chain, else 0
	after bus.ChainPosition
	last  bus.ChainPosition // of a page: the chain after it
	msg   nats.Msg
	items []item // until it is stored
	// receipts are those of the items, in their order.
	receipts []*Receipt

	seq     uint64 // in INGEST, of the last acknowledged copy; 0 if that is not known
	stored  bool   // it is in INGEST, or was
	unsure  bool   // an attempt ended without an answer: a copy may be stored
	again   bool   // it was stored and has to be sent again
	settled bool   // it is not followed any more
}

func (m *message) page() bool { return m.class == bus.ClassProjection }

// weight is what keeping the message costs, in bytes.
func (m *message) weight() int64 {
	return int64(len(m.msg.Data)) + overhead + int64(len(m.receipts))*(overhead/4)
}

// newPage makes a page of events, whose bytes become part of its body.
func newPage(subject string, events []item, size int) *message {
	body := appendPageHead(make([]byte, 0, size), events[0].after)
	for i := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, events[i].body...)
	}
	body = append(body, ']', '}')
	// The events' own copies can go; the page may still have to be taken apart.
	at := len(appendPageHead(nil, events[0].after))
	for i := range events {
		n := len(events[i].body)
		events[i].body = body[at : at+n : at+n]
		at += n + 1
	}
	m := &message{class: bus.ClassProjection, after: events[0].after, last: events[len(events)-1].last, items: events}
	m.msg = nats.Msg{Subject: subject, Data: body}
	m.receipts = receiptsOf(events)
	return m
}

// newCounted makes a message without a chain.
func newCounted(subject, publisher string, count uint64, it item) *message {
	m := &message{class: it.class, count: count, items: []item{it}}
	m.msg = nats.Msg{Subject: subject, Header: identity(publisher, count), Data: it.body}
	m.receipts = receiptsOf(m.items)
	return m
}

func identity(publisher string, count uint64) nats.Header {
	return nats.Header{
		bus.HeaderPublisher:    {publisher},
		bus.HeaderPublisherSeq: {strconv.FormatUint(count, 10)},
	}
}

func receiptsOf(items []item) []*Receipt {
	out := make([]*Receipt, len(items))
	for i := range items {
		out[i] = items[i].receipt
	}
	return out
}

// costOf sums what items take of the budget.
func costOf(items []item) (messages int, bytes int64) {
	for i := range items {
		bytes += items[i].cost
	}
	return len(items), bytes
}
