package publisher

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher/outbox"
)

// item is what a caller has handed over: a relay event, which will become part of
// a page, or the whole body of a message without a chain.
type item struct {
	class   bus.Class
	body    []byte
	after   bus.ChainPosition // of an event: the chain before it
	last    bus.ChainPosition // of an event: the chain with it
	cost    int64             // bytes of the budget
	trace   traceContext      // that of the call
	receipt *Receipt

	count      uint64        // of a message without a chain, 0 if it gets one when it is sent
	eventID    string        // of a message that has one instead of a count
	acceptedAt int64         // ms
	resumed    bool          // an earlier process may have sent it
	number     uint64        // in the outbox
	batch      *outbox.Batch // with which it is kept; nil if nothing is waited for
	observed   bool          // an observation whose place in the chain is not known
	command    []byte        // of such a one
	recordedAt int64         // of such a one
}

// ready reports whether the item may be sent.
func (it *item) ready() bool { return !it.observed && it.batch.Kept() }

// queue holds what is accepted and not yet part of a message, in the callers'
// order.
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

// page returns how many items at the front make the next message: relay events of one
// trace, up to [bus.MaxPageEvents] and limit bytes, at least one, or one item without a
// chain. It is 0 if the first one may not be sent yet.
func (q *queue) page(limit int) (n, size int) {
	if !q.items[0].ready() {
		return 0, 0
	}
	if q.items[0].class != bus.ClassProjection {
		return 1, len(q.items[0].body)
	}
	size = pageFrame
	var of string // the page's trace
	for n < len(q.items) && n < bus.MaxPageEvents && q.items[n].class == bus.ClassProjection && q.items[n].ready() {
		grown := size + len(q.items[n].body) + 1
		if n > 0 && grown > limit {
			break
		}
		if id := q.items[n].trace.id(); id != "" {
			if of != "" && id != of {
				break // its facts would be told to come of another's trace
			}
			of = id
		}
		n, size = n+1, grown
	}
	return n, size
}

// message is one INGEST message. Its bytes never change, whatever becomes of the
// attempts to send it.
type message struct {
	class bus.Class
	count uint64 // of a message without a chain, 0 if it has an event id
	// eventID is that of a message that has one.
	eventID string
	after   bus.ChainPosition
	last    bus.ChainPosition // of a page: the chain after it
	msg     nats.Msg
	items   []item // until it is stored, with an outbox until it is settled
	// receipts are those of the items, in their order.
	receipts []*Receipt

	seq     uint64 // in INGEST, of the last acknowledged copy; 0 if that is not known
	stored  bool   // it is in INGEST, or was
	unsure  bool   // an attempt ended without an answer: a copy may be stored
	again   bool   // it was stored and has to be sent again
	settled bool   // it is not followed any more

	pending  bool      // its items count as not stored
	resumed  bool      // an earlier process may have sent it
	asked    bool      // the bus did not know it when it was asked before it was sent
	filler   bool      // it stands for a message that INGEST would not take
	sentMore bool      // it was sent more than once
	ackedAt  time.Time // when its latest acknowledgement came
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
	m := &message{class: bus.ClassProjection, after: events[0].after, last: events[len(events)-1].last, items: events, pending: true}
	m.msg = nats.Msg{Subject: subject, Header: traceOfPage(events).on(nil), Data: body}
	m.receipts = receiptsOf(events)
	return m
}

// newSingle makes a message without a chain.
func newSingle(subject, publisher string, count uint64, it item) *message {
	m := &message{class: it.class, count: count, eventID: it.eventID, items: []item{it}, pending: true, resumed: it.resumed}
	m.msg = nats.Msg{Subject: subject, Header: identity(publisher, count), Data: it.body}
	if it.eventID != "" {
		m.count = 0
		m.msg.Header = nats.Header{bus.HeaderEventID: {it.eventID}}
	}
	m.msg.Header = it.trace.on(m.msg.Header)
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
