package materializer

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// Headers of JetStream's atomic batches.
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// errLostRace marks an append that EVENTS refused since it has moved on.
var errLostRace = errors.New("another materializer was first")

// pending are facts that wait to be appended as one atomic batch.
type pending struct {
	msgs  []*nats.Msg // their rows stand at the end of the unit's
	bytes int
}

// makeRoom sends what is pending if facts fit into one batch, but not behind what is pending:
// the facts of one message stay together where they can.
func (a *attempt) makeRoom(facts []projection.Fact) error {
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
	return a.launch()
}

// enqueue gives the fact its number, which holds if the append is taken.
func (a *attempt) enqueue(m *message, index int, f *projection.Fact) error {
	p := &a.pending
	size := len(f.Data) + headerBytes
	if len(p.msgs) > 0 && (len(p.msgs) == maxAppendMessages || p.bytes+size > maxAppendBytes) {
		if err := a.launch(); err != nil {
			return err
		}
	}
	row := store.Row{
		Seq: a.end.seq + uint64(len(p.msgs)) + 1, Key: m.Key, Type: f.Type, RecordedAt: f.RecordedAt,
		Origin: bus.Origin{Seq: m.Seq, Time: m.Time, Index: index},
		Source: f.Source, Trace: m.trace, Data: f.Data,
	}
	if p.msgs == nil {
		p.msgs = make([]*nats.Msg, 0, min(maxAppendMessages, len(a.batch)))
	}
	p.msgs = append(p.msgs, a.m.eventMessage(&row))
	a.unit.commit.Rows = append(a.unit.commit.Rows, row)
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
	values := make([]string, 0, 6) // one allocation for the values of all headers
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	h[bus.HeaderEpoch] = m.epoch
	r.Origin.Headers(set)
	r.Source.Headers(set)
	if r.Trace != "" {
		set(bus.HeaderTrace, r.Trace)
	}
	return &nats.Msg{
		Subject: m.o.Subjects.Event(r.Key, r.Type),
		Header:  h,
		Data:    ev.AppendJSON(make([]byte, 0, len(r.Data)+256)),
	}
}

// launch sends what is pending to EVENTS, once the append before is answered: if
// that were refused, since another program has written, and what was written were
// as long, then this one would be taken, and EVENTS would end with facts that come
// after those which it lacks. The attempt goes on as if the append were taken; land
// has to hear that it was.
func (a *attempt) launch() error {
	p := &a.pending
	if len(p.msgs) == 0 {
		return nil
	}
	if a.newest != nil {
		if err := a.newest.wait(); err != nil {
			return err
		}
	}
	sent, err := a.m.startAppend(p.msgs, a.end.seq)
	if err != nil {
		return err
	}
	a.newest = sent
	a.appends = append(a.appends, sent)
	rows := a.unit.commit.Rows
	last := &rows[len(rows)-1]
	a.table = last.Seq
	a.end = end{seq: last.Seq, known: true, origin: last.Origin}
	a.pending = pending{}
	return crash(a.m.seam("sent"))
}

// land waits for the answers to the attempt's appends. When it returns nil,
// EVENTS holds the facts under the numbers that enqueue gave.
func (a *attempt) land() error {
	for len(a.appends) > 0 {
		if err := a.appends[0].wait(); err != nil {
			return err
		}
		a.appends = a.appends[1:]
		a.m.stats.appendsWon.Add(1)
		if err := crash(a.m.seam("appended")); err != nil {
			return err
		}
	}
	return nil
}

// appending is an append whose answer is awaited.
type appending struct {
	ack     jetstream.PubAckFuture
	last, n uint64
	sent    time.Time

	answered bool
	err      error // what wait has returned
}

// startAppend sends msgs to EVENTS as one atomic batch, to be taken if it still
// ends at the sequence last. We do this ourselves, on nats.go's asynchronous
// publish, since the library for atomic batches waits for each answer, and the
// next batch can be projected meanwhile.
func (m *Materializer) startAppend(msgs []*nats.Msg, last uint64) (*appending, error) {
	msgs[0].Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(last, 10)}
	n := len(msgs)
	if n > 1 {
		id := []string{bus.NewID()}
		for i, msg := range msgs {
			msg.Header[headerBatchID] = id
			msg.Header[headerBatchSeq] = []string{strconv.Itoa(i + 1)}
			if i == n-1 {
				msg.Header[headerBatchCommit] = []string{"1"}
				break
			}
			if err := m.o.Conn.PublishMsg(msg); err != nil {
				return nil, fmt.Errorf("append to EVENTS after %d: %w", last, err)
			}
		}
	}
	// No retries: they would come out of order. A lost answer is a question.
	ack, err := m.o.JS.PublishMsgAsync(msgs[n-1], jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, fmt.Errorf("append to EVENTS after %d: %w", last, err)
	}
	return &appending{ack: ack, last: last, n: uint64(n), sent: time.Now()}, nil
}

// wait returns nil if EVENTS took the append, errLostRace if it had moved on. Any
// other error is a question: the messages may be in EVENTS, or come to be. A stop
// does not cut the waiting short; an answer is worth it. Further calls return the
// same.
func (p *appending) wait() error {
	if !p.answered {
		p.answered, p.err = true, p.answer()
	}
	return p.err
}

func (p *appending) answer() error {
	timer := time.NewTimer(time.Until(p.sent.Add(appendTimeout)))
	defer timer.Stop()
	var err error
	select {
	case ack := <-p.ack.Ok():
		if want := p.last + p.n; ack.Sequence != want {
			return fmt.Errorf("append to EVENTS after %d: acknowledged with %d instead of %d", p.last, ack.Sequence, want)
		}
		return nil
	case err = <-p.ack.Err():
	case <-timer.C:
		err = fmt.Errorf("no answer within %s", appendTimeout)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == codeWrongLastSequence || api.ErrorCode == codeWrongLastSequenceIn) {
		err = errLostRace
	}
	return fmt.Errorf("append to EVENTS after %d: %w", p.last, err)
}
