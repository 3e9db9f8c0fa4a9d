package materializer

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Headers of JetStream's atomic batches.
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// maxHeaders is how many headers a message to EVENTS has at most: four, two of its
// source, a trace, the expected sequence and three of the batch, or two of a chain.
const maxHeaders = 11

// eventWriter builds the messages of EVENTS, all in the same memory: nats.go has
// copied a message when PublishMsg returns. Making maps and bodies anew cost a
// tenth of the time of a catch-up. The worker owns it.
type eventWriter struct {
	m   *Materializer
	msg nats.Msg // what message returns

	// The headers' names and values in the order they were set. The values of
	// msg.Header are slices of values, so that a message with the headers of the one
	// before costs no write to the map.
	names  [maxHeaders]string
	values [maxHeaders]string
	chain  string // begins the names of messages in chains
	named  uint64 // names given
	n      int    // set so far
	had    int    // in msg.Header
	other  bool   // a name differs from the one that msg.Header has there
}

func newEventWriter(m *Materializer) *eventWriter {
	return &eventWriter{m: m, chain: bus.NewID(), msg: nats.Msg{Header: make(nats.Header, maxHeaders)}}
}

// batchPlace says where in an append a message stands.
type batchPlace struct {
	expect uint64 // for the first: the sequence at which EVENTS has to end
	id     string // the batch's; "" for a message without one
	seq    uint64 // in the batch, from 1
	last   bool
	name   string // of the message in a chain; "" if it is in none
	after  string // the message before it in the chain; "" if any may be
}

// message returns the message of the row, which holds until the next call. A nil
// row gives the empty message that only takes a number.
func (w *eventWriter) message(r *store.Row, at batchPlace) *nats.Msg {
	w.n, w.other = 0, false
	w.msg.Data = w.msg.Data[:0]
	if r == nil {
		w.msg.Subject = w.m.o.Subjects.Void()
	} else {
		w.fact(r)
	}
	if at.seq == 1 {
		w.set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(at.expect, 10))
	}
	if at.name != "" {
		w.set(jetstream.MsgIDHeader, at.name)
	}
	if at.after != "" {
		w.set(jetstream.ExpectedLastMsgIDHeader, at.after)
	}
	if at.id != "" {
		w.set(headerBatchID, at.id)
		w.set(headerBatchSeq, strconv.FormatUint(at.seq, 10))
		if at.last {
			w.set(headerBatchCommit, "1")
		}
	}
	if w.other || w.n != w.had {
		clear(w.msg.Header)
		for i := range w.n {
			w.msg.Header[w.names[i]] = w.values[i : i+1 : i+1]
		}
		w.had = w.n
	}
	return &w.msg
}

func (w *eventWriter) fact(r *store.Row) {
	w.msg.Subject = w.m.o.Subjects.Event(r.Key, r.Type)
	w.msg.Data = appendWire(w.msg.Data, r)
	w.set(bus.HeaderEpoch, w.m.o.Streams.Epoch)
	r.Origin.Headers(w.set)
	r.Source.Headers(w.set)
	if r.Trace != "" {
		w.set(bus.HeaderTrace, r.Trace)
	}
}

// appendWire appends the body of a row's message.
func appendWire(dst []byte, r *store.Row) []byte {
	ev := bus.Event{
		Seq: r.Seq, Session: r.Key.Session, Workspace: r.Key.Workspace, RecordedAt: r.RecordedAt,
		StoredAt: r.Origin.Time / int64(time.Millisecond), Type: r.Type, Data: r.Data,
	}
	return ev.AppendJSON(dst)
}

func (w *eventWriter) set(name, value string) {
	i := w.n
	if w.names[i] != name {
		w.names[i], w.other = name, true
	}
	w.values[i] = value
	w.n++
}

// name returns a name that no other message has.
func (w *eventWriter) name() string {
	w.named++
	return w.chain + "." + strconv.FormatUint(w.named, 36)
}

// kept returns a copy of the message that message has returned last, for nats.go
// to keep.
func (w *eventWriter) kept() *nats.Msg {
	out := &nats.Msg{Subject: w.msg.Subject, Header: make(nats.Header, w.n), Data: bytes.Clone(w.msg.Data)}
	values := slices.Clone(w.values[:w.n])
	for i := range w.n {
		out.Header[w.names[i]] = values[i : i+1 : i+1]
	}
	return out
}
