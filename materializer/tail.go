package materializer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	tailMessages = 256
	tailBytes    = 16 << 20
)

// errLostDelivery marks a consumer that has sent a message which never came.
var errLostDelivery = errors.New("a message was lost on its way from the server")

// entry is one present message of EVENTS.
type entry struct {
	seq  uint64
	ours bool // with a well-formed origin, and a body that is of its number and subject
	void bool // an empty message that only takes a number
	row  store.Row

	epoch string // when it was written, of what is ours
	body  []byte // as EVENTS holds it
}

// tail reads EVENTS from a number on to the end that it had when it was opened,
// in order. It is open for as long as one attempt follows.
type tail struct {
	m    *Materializer
	cons jetstream.Consumer
	pull jetstream.ConsumeContext
	msgs chan jetstream.Msg // handed over one by one
	lost chan error         // why nothing comes any more; holds the first reason
	stop chan struct{}      // closed by close
	last uint64             // the end
	next *entry             // read ahead, not yet taken
	read uint64             // the last number that was read or found gone
	left uint64             // messages the consumer has still to deliver, as it said last
	sent uint64             // how many it has delivered, as it counts them
	none bool               // no message is left up to last
}

func (m *Materializer) openTail(ctx context.Context, from, last uint64) (*tail, error) {
	c, err := m.o.Streams.Events.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:       "materializer, following",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        -1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: pullExpiry,
	})
	if err != nil {
		return nil, fmt.Errorf("follow EVENTS from %d: %w", from, err)
	}
	t := &tail{
		m: m, cons: c, last: last, read: from - 1, left: c.CachedInfo().NumPending,
		msgs: make(chan jetstream.Msg), lost: make(chan error, 1), stop: make(chan struct{}),
	}
	// The subscription buffers what was pulled. An iterator over the messages has a
	// channel of fixed size instead, and drops what does not fit.
	t.pull, err = c.Consume(func(msg jetstream.Msg) {
		select {
		case t.msgs <- msg:
		case <-t.stop:
		}
	},
		jetstream.PullMaxMessagesWithBytesLimit(tailMessages, tailBytes),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			select {
			case t.lost <- err:
			default:
			}
		}),
	)
	if err != nil {
		t.close()
		return nil, fmt.Errorf("follow EVENTS from %d: %w", from, err)
	}
	return t, nil
}

func (t *tail) close() {
	if t == nil {
		return
	}
	close(t.stop)
	if t.pull != nil {
		t.pull.Stop()
		<-t.pull.Closed()
	}
	t.m.deleteConsumer(t.m.o.Streams.Events, t.cons)
}

// peek returns the next present message up to the end, nil if there is none. It
// does not take it.
func (t *tail) peek(ctx context.Context) (*entry, error) {
	if t.next != nil || t.none {
		return t.next, nil
	}
	if t.left == 0 {
		// The stream's leader has the last word on what is left. The consumer
		// may live on a replica that lags, and then there is more to wait for.
		raw, err := t.m.getMsg(ctx, t.m.o.Streams.Events, t.read+1, true)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > t.last {
			t.none = true
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for EVENTS %d: %w", t.read+1, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, appendTimeout, fmt.Errorf("no message within %s", appendTimeout))
	defer cancel()
	for {
		var msg jetstream.Msg
		select {
		case msg = <-t.msgs:
		case err := <-t.lost:
			return nil, fmt.Errorf("read EVENTS after %d: %w", t.read, err)
		case <-ctx.Done():
			return nil, fmt.Errorf("read EVENTS after %d: %w", t.read, context.Cause(ctx))
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read EVENTS after %d: %w", t.read, err)
		}
		// What a broken connection or a full buffer loses on its way is not sent
		// again, and would look like numbers that are gone.
		if t.sent++; meta.Sequence.Consumer != t.sent {
			return nil, fmt.Errorf("read EVENTS after %d: %w", t.read, errLostDelivery)
		}
		t.left = meta.NumPending
		seq := meta.Sequence.Stream
		if seq <= t.read {
			continue
		}
		if seq > t.last {
			t.none = true
			return nil, nil
		}
		t.next = t.m.parseEntry(seq, msg.Subject(), msg.Headers(), msg.Data())
		return t.next, nil
	}
}

// take moves behind the message that peek returned.
func (t *tail) take() {
	t.read, t.next = t.next.seq, nil
}

// parseEntry takes a message of EVENTS apart: a row of ours, a number that is taken
// by an empty message, or a foreign one.
func (m *Materializer) parseEntry(seq uint64, subject string, h nats.Header, data []byte) *entry {
	e := &entry{seq: seq, void: subject == m.o.Subjects.Void(), body: data}
	ev, origin, ok := m.o.Subjects.ParseFact(seq, subject, h, data)
	if e.void || !ok {
		return e
	}
	e.ours, e.epoch = true, h.Get(bus.HeaderEpoch)
	e.row = store.Row{
		Seq: seq, Key: ev.Key(), Type: ev.Type, RecordedAt: ev.RecordedAt, Origin: origin,
		Source: bus.SourceOf(h), Trace: ev.Traceparent, Data: ev.Data,
	}
	return e
}
