package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

const (
	// maxBatchMessages and maxBatchBytes bound one batch of the worker. A batch
	// costs a write for each session it touches, so big ones are cheaper; it goes
	// to EVENTS in several atomic batches.
	maxBatchMessages = 4 * maxAppendMessages
	maxBatchBytes    = 8 << 20
	// maxReadBytes bounds what is read ahead of the worker. It exceeds the
	// largest payload limit that makes sense, so that any message fits.
	maxReadBytes    = 32 << 20
	maxReadMessages = 2 * maxBatchMessages
	// pullHeartbeat is how often the server shows that a pull is alive; two
	// missed ones and the consumer is made again.
	pullHeartbeat = 2 * time.Second
	pullExpiry    = 10 * time.Second
	// quietEvery is how long nothing has to come until the stream itself is asked.
	quietEvery = time.Second
)

// intake hands messages from the reader to the worker, bounded in number and
// bytes: a full intake blocks the reader, and so INGEST is not read further.
type intake struct {
	ch     chan *message
	bytes  *semaphore.Weighted
	newest *message // put last; the reader's
	first  *message // taken from ch and not processed yet; the worker's
}

func newIntake() *intake {
	return &intake{ch: make(chan *message, maxReadMessages), bytes: semaphore.NewWeighted(maxReadBytes)}
}

func (q *intake) put(ctx context.Context, m *message) error {
	if err := q.bytes.Acquire(ctx, min(m.size(), maxReadBytes)); err != nil {
		return err
	}
	select {
	case q.ch <- m:
		q.newest = m
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *intake) empty() bool { return q.first == nil && len(q.ch) == 0 }

// few reports whether less waits than is worth sending ahead.
func (q *intake) few() bool { return len(q.ch) < aheadMessages }

// take returns what has been read, at least one message unless ctx or idle ends
// the waiting, and at most a batch. It never waits for a batch to fill.
func (q *intake) take(ctx context.Context, idle <-chan time.Time) ([]*message, error) {
	first := q.first
	if first == nil {
		select {
		case first = <-q.ch:
		case <-idle:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	} else if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	q.first = nil
	batch := append(make([]*message, 0, min(len(q.ch)+1, maxBatchMessages)), first)
	bytes := batch[0].size()
	for len(batch) < maxBatchMessages && bytes < maxBatchBytes {
		select {
		case m := <-q.ch:
			batch = append(batch, m)
			bytes += m.size()
			continue
		default:
		}
		break
	}
	return batch, nil
}

// comesFirst waits until the append is answered or a message is at hand, and reports
// whether one is.
func (q *intake) comesFirst(p *appending) bool {
	if q.first == nil {
		q.first = p.answerOr(q.ch)
	}
	return q.first != nil
}

// done gives the batch's bytes free.
func (q *intake) done(batch []*message) {
	for _, m := range batch {
		q.bytes.Release(min(m.size(), maxReadBytes))
	}
}

// read puts INGEST's messages after the sequence last into the intake, in order
// and without a gap that is not one of the stream's, until ctx ends. When reading
// ends first, or INGEST turns out not to be what was read, it waits until all that was
// read is committed: that is what workers have said, wherever INGEST is now. It reads
// through a consumer of its own without acknowledgements: the store owns the
// position, so a consumer that is lost is simply made again behind the last
// message read.
func (m *Materializer) read(ctx, reading context.Context, last uint64, in *intake) error {
	var wait backoff
	for {
		before := last
		err := m.readOn(reading, &last, in)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if reading.Err() != nil {
			err = context.Cause(reading)
		}
		switch {
		case hasMoved(err):
			m.health.set(checkIngest, err.Error())
			if in.newest != nil {
				if err := m.committed.reach(ctx, in.newest.Seq); err != nil {
					return err
				}
			}
			return err
		case replaced(err):
			return err
		case last > before:
			wait.reset()
		}
		m.health.set(checkIngest, fmt.Sprintf("reading stops after message %d: %v", last, err))
		m.log.Warn("reading INGEST is interrupted", slog.Uint64("ingest_seq", last), slog.Any("err", err))
		if err := wait.wait(reading); ctx.Err() != nil {
			return err
		}
	}
}

func (m *Materializer) readOn(ctx context.Context, last *uint64, in *intake) error {
	c, err := m.o.Streams.Ingest.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:       "materializer",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       *last + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        -1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("create consumer: %w", err)
	}
	defer m.deleteConsumer(m.o.Streams.Ingest, c)
	// The server, or the stream, may be another one than before.
	if err := m.checkRead(ctx, *last, in); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Messages are handed to us one by one, on a goroutine of the subscription,
	// which buffers what was pulled. An iterator over them has a channel of fixed
	// size instead, and drops what does not fit.
	var read atomic.Uint64 // as last, for others
	var busy atomic.Bool   // a message is being handed on
	read.Store(*last)
	reading, err := c.Consume(func(msg jetstream.Msg) {
		if ctx.Err() != nil {
			return
		}
		busy.Store(true)
		if err := m.received(ctx, msg, last, in); err != nil {
			stop(err)
		}
		read.Store(*last)
		busy.Store(false)
	},
		jetstream.PullMaxMessagesWithBytesLimit(maxReadMessages, maxReadBytes),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { stop(err) }),
	)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	m.lookAgain.Store(true)
	wake(m.removalsDue)
	m.health.set(checkIngest, "")
	for quiet := read.Load(); ; {
		select {
		case <-time.After(quietEvery):
			now := read.Load()
			if now == quiet && !busy.Load() {
				if err := m.overlooked(ctx, now); err != nil && read.Load() == now && !busy.Load() {
					stop(err)
				}
			}
			quiet = now
			continue
		case <-ctx.Done():
		}
		reading.Stop()
		<-reading.Closed()
		return context.Cause(ctx)
	}
}

// overlooked returns an error if INGEST holds a message after the sequence last,
// which a quiet consumer should have sent: it has, but the message was lost on its
// way, and without acknowledgements nobody sends it again.
func (m *Materializer) overlooked(ctx context.Context, last uint64) error {
	switch _, err := m.getMsg(ctx, m.o.Streams.Ingest, last+1, true); {
	case err == nil:
		return errLostDelivery
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	default:
		return fmt.Errorf("look for messages after %d: %w", last, err)
	}
}

// received takes a message that the consumer delivered.
func (m *Materializer) received(ctx context.Context, msg jetstream.Msg, last *uint64, in *intake) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("message metadata: %w", err)
	}
	seq := meta.Sequence.Stream
	if seq <= *last {
		return nil
	}
	if seq > *last+1 {
		if err := m.hole(ctx, *last+1, seq-1); err != nil {
			return err
		}
	}
	if err := in.put(ctx, m.newMessage(msg, meta)); err != nil {
		return err
	}
	*last = seq
	return nil
}

// hole decides what it means that the consumer went on at to+1: nothing is ever
// removed from INGEST's middle, so either the consumer skipped what is there,
// and is made again, or the stream has lost what it acknowledged.
func (m *Materializer) hole(ctx context.Context, from, to uint64) error {
	switch next, err := m.getMsg(ctx, m.o.Streams.Ingest, from, true); {
	case err == nil && next.Sequence <= to:
		return fmt.Errorf("consumer skipped message %d", next.Sequence)
	case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("look for message %d: %w", from, err)
	}
	info, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return fmt.Errorf("look for the beginning of INGEST: %w", err)
	}
	if err := beginsBehind(info, from-1); err != nil {
		return err
	}
	// The worker reports it, with the message that comes next.
	m.log.Error("INGEST has lost messages that it had acknowledged", slog.Uint64("from", from), slog.Uint64("to", to))
	return nil
}

// deleteConsumer tidies up; the server does it by itself after a minute.
func (m *Materializer) deleteConsumer(s jetstream.Stream, c jetstream.Consumer) {
	if m.o.Conn.Status() != nats.CONNECTED {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.DeleteConsumer(ctx, c.CachedInfo().Name)
}
