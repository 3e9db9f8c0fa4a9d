package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	mib = 1 << 20
	// memoryLag is how many messages serve may be behind before more are sent: it
	// is the memory of a bus that keeps up that is of interest.
	memoryLag = 20_000
)

// run is a child's resident size while it takes a number of messages.
type memoryRun struct {
	batches []time.Duration // when each batch was stored, from the beginning
	sizes   []int64         // after each batch
}

// mean returns the mean size in a quarter of the run, 1 to 4, in MiB.
func (r *memoryRun) mean(quarter int) float64 {
	n := len(r.sizes)
	part := r.sizes[n*(quarter-1)/4 : n*quarter/4]
	sum := int64(0)
	for _, s := range part {
		sum += s
	}
	return float64(sum) / float64(max(1, len(part))) / mib
}

func (r *memoryRun) take(c *child, began time.Time) error {
	size, err := c.resident()
	r.batches, r.sizes = append(r.batches, time.Since(began)), append(r.sizes, size)
	return err
}

// memoryFigure runs serve, then a server alone with the same streams and messages at
// the same times.
func memoryFigure(ctx context.Context, b *Bench) ([]Result, error) {
	b.note("%d events through serve, then the same messages into a server alone", b.Sizes.MemoryEvents)
	ours, err := b.serveMemory(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := b.serverMemory(ctx, ours)
	if err != nil {
		return nil, err
	}
	b.note("resident in the last quarter: serve %.0f MiB, a server alone %.0f MiB", ours.mean(4), bare.mean(4))
	return []Result{
		{Figure: "memory", Case: "serve less a server alone", Measured: ours.mean(4) - bare.mean(4), Unit: "MiB", Bar: Bar{Op: Below, Value: 200}},
		{Figure: "memory", Case: "last quarter of the run", Measured: ours.mean(4), Baseline: ours.mean(2), Unit: "MiB", BaselineOf: "second quarter", Bar: Bar{Op: AtMost, Value: 1.1, OfBaseline: true}},
	}, nil
}

func (b *Bench) serveMemory(ctx context.Context) (r *memoryRun, err error) {
	c, err := b.startServe(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	subjects, err := bus.NewSubjects("")
	if err != nil {
		return nil, err
	}
	events, err := c.js.Stream(ctx, subjects.EventsStream())
	if err != nil {
		return nil, fmt.Errorf("look at EVENTS: %w", err)
	}
	r = &memoryRun{}
	began := time.Now()
	err = storeAll(ctx, c.js, b.Sizes.MemoryEvents, func(i int) *nats.Msg {
		return message(subjects, ByCount, i, loadSessions)
	}, func(stored int) error {
		if err := waitFor(ctx, events, max(0, stored-memoryLag)); err != nil {
			return err
		}
		return r.take(c, began)
	})
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, events, b.Sizes.MemoryEvents); err != nil {
		return nil, err
	}
	return r, r.take(c, began)
}

// look is how often a stream is looked at while it is waited for.
const look = 2 * time.Millisecond

// waitFor waits until a stream has reached a sequence.
func waitFor(ctx context.Context, s jetstream.Stream, seq int) error {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at %s: %w", s.CachedInfo().Config.Name, err)
		}
		if info.State.LastSeq >= uint64(seq) {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serverMemory stores what serve had in its streams, batch by batch, each when serve
// had stored it.
func (b *Bench) serverMemory(ctx context.Context, like *memoryRun) (r *memoryRun, err error) {
	c, err := b.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	subjects, err := bus.NewSubjects("")
	if err != nil {
		return nil, err
	}
	streams, err := subjects.Open(ctx, c.js, bus.StreamOptions{MaxPayload: c.nc.MaxPayload()}, "")
	if err != nil {
		return nil, fmt.Errorf("make streams: %w", err)
	}
	r = &memoryRun{}
	began := time.Now()
	facts := 0
	err = storeAll(ctx, c.js, b.Sizes.MemoryEvents, func(i int) *nats.Msg {
		return message(subjects, ByCount, i, loadSessions)
	}, func(stored int) error {
		from := facts
		facts = stored
		err := storeAll(ctx, c.js, stored-from, func(i int) *nats.Msg { return fact(subjects, streams.Epoch, from+i) }, nil)
		if err != nil {
			return err
		}
		if d := time.Until(began.Add(like.batches[len(r.batches)])); d > 0 {
			time.Sleep(d) // serve's own pace
		}
		return r.take(c, began)
	})
	return r, err
}

// fact returns what EVENTS holds for the i-th message.
func fact(subjects bus.Subjects, epoch string, i int) *nats.Msg {
	in := message(subjects, ByCount, i, loadSessions)
	k := session(i % loadSessions)
	m := nats.NewMsg(subjects.Event(k, bus.TypeError))
	m.Header = nats.Header{
		bus.HeaderEpoch: {epoch}, bus.HeaderIngestSeq: {strconv.Itoa(i + 1)}, bus.HeaderIngestTime: {strconv.Itoa(loadEpoch*1_000_000 + i)}, bus.HeaderIndex: {"0"},
		bus.HeaderPublisher: in.Header[bus.HeaderPublisher], bus.HeaderPublisherSeq: in.Header[bus.HeaderPublisherSeq],
	}
	ev := bus.Event{Seq: uint64(i + 1), Session: k.Session, Workspace: k.Workspace, RecordedAt: int64(loadEpoch + i), StoredAt: int64(loadEpoch + i), Type: bus.TypeError, Data: in.Data}
	m.Data = ev.AppendJSON(nil)
	return m
}
