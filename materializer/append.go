package materializer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// maxAppendMessages is the most messages of one atomic batch: nats-server
	// 2.15 allows 1,000 (streamDefaultMaxAtomicBatchSize).
	maxAppendMessages = 1000
	maxAppendBytes    = 16 << 20
	// appendTimeout is how long an append may take before its outcome is a question.
	appendTimeout = 5 * time.Second
	// headerBytes is what a fact's headers weigh at most, with room to spare.
	headerBytes = 512
)

// Codes with which JetStream refuses an expected sequence: of a single message
// and of a batch, and of a replicated stream with other writes under way.
const (
	codeWrongLastSequence   = 10071
	codeWrongLastSequenceIn = 10164
)

// errLostRace marks an append that EVENTS refused since it has moved on.
var errLostRace = errors.New("another materializer was first")

// pending are facts that wait to be appended as one atomic batch.
type pending struct {
	msgs  []*nats.Msg
	rows  []store.Row
	bytes int
}

// makeRoom flushes if facts fit into one batch, but not behind what is pending:
// the facts of one message stay together where they can.
func (a *attempt) makeRoom(ctx context.Context, facts []projection.Fact) error {
	if len(a.pending.msgs) == 0 {
		return nil
	}
	bytes := 0
	for i := range facts {
		bytes += len(facts[i].Data) + headerBytes
	}
	if len(a.pending.msgs)+len(facts) <= maxAppendMessages && a.pending.bytes+bytes <= maxAppendBytes {
		return nil
	}
	return a.flush(ctx)
}

// enqueue gives the fact its number, which holds if the append is taken.
func (a *attempt) enqueue(ctx context.Context, m *message, index int, f *projection.Fact) error {
	p := &a.pending
	size := len(f.Data) + headerBytes
	if len(p.msgs) > 0 && (len(p.msgs) == maxAppendMessages || p.bytes+size > maxAppendBytes) {
		if err := a.flush(ctx); err != nil {
			return err
		}
	}
	row := store.Row{
		Seq: a.end.seq + uint64(len(p.msgs)) + 1, Key: m.Key, Type: f.Type, RecordedAt: f.RecordedAt,
		Origin: bus.Origin{Seq: m.Seq, Time: m.Time, Index: index},
		Source: f.Source, Trace: m.trace, Data: f.Data,
	}
	p.msgs = append(p.msgs, a.m.eventMessage(&row))
	p.rows = append(p.rows, row)
	p.bytes += size
	return nil
}

// eventMessage builds the EVENTS message of a row.
func (m *Materializer) eventMessage(r *store.Row) *nats.Msg {
	ev := bus.Event{
		Seq: r.Seq, Session: r.Key.Session, Workspace: r.Key.Workspace, RecordedAt: r.RecordedAt,
		StoredAt: r.Origin.Time / int64(time.Millisecond), Type: r.Type, Data: r.Data,
	}
	h := make(nats.Header, 8)
	h[bus.HeaderEpoch] = []string{m.o.Streams.Epoch}
	r.Origin.SetHeaders(h)
	r.Source.SetHeaders(h)
	if r.Trace != "" {
		h[bus.HeaderTrace] = []string{r.Trace}
	}
	return &nats.Msg{
		Subject: m.o.Subjects.Event(r.Key, r.Type),
		Header:  h,
		Data:    ev.AppendJSON(make([]byte, 0, len(r.Data)+256)),
	}
}

// flush appends what is pending. When it returns nil, EVENTS holds it under the
// numbers that enqueue gave.
func (a *attempt) flush(ctx context.Context) error {
	p := &a.pending
	if len(p.msgs) == 0 {
		return nil
	}
	if err := a.m.append(ctx, p.msgs, a.end.seq); err != nil {
		return err
	}
	a.m.stats.appendsWon.Add(1)
	a.m.health.set(checkEvents, "")
	last := p.rows[len(p.rows)-1]
	a.unit.commit.Rows = append(a.unit.commit.Rows, p.rows...)
	a.table = last.Seq
	a.end = end{seq: last.Seq, known: true, origin: last.Origin}
	a.pending = pending{}
	return crash(a.m.seam("appended"))
}

// append gives msgs to EVENTS as one, if it still ends at the sequence last. A
// refusal for that reason is errLostRace. Any other error is a question: the
// messages may be in EVENTS, or come to be.
func (m *Materializer) append(ctx context.Context, msgs []*nats.Msg, last uint64) error {
	// A stop does not cut an append short: its answer is worth the wait.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), appendTimeout,
		fmt.Errorf("append to EVENTS: no answer within %s", appendTimeout))
	defer cancel()
	msgs[0].Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(last, 10)}
	var seq uint64
	var err error
	if len(msgs) == 1 {
		var ack *jetstream.PubAck
		if ack, err = m.o.JS.PublishMsg(ctx, msgs[0], jetstream.WithRetryAttempts(0)); err == nil {
			seq = ack.Sequence
		}
	} else {
		var ack *jetstreamext.BatchAck
		if ack, err = jetstreamext.PublishMsgBatch(ctx, m.o.JS, msgs, jetstreamext.BatchFlowControl{}); err == nil {
			seq = ack.Sequence
		}
	}
	if err == nil {
		if seq != last+uint64(len(msgs)) {
			return fmt.Errorf("append to EVENTS after %d: acknowledged with %d instead of %d", last, seq, last+uint64(len(msgs)))
		}
		return nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == codeWrongLastSequence || api.ErrorCode == codeWrongLastSequenceIn) {
		return fmt.Errorf("append to EVENTS after %d: %w", last, errLostRace)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
		err = cause
	}
	return fmt.Errorf("append to EVENTS after %d: %w", last, err)
}
