package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

// reader hands out the story's facts as they get their numbers.
type reader struct {
	f      *fleet
	nc     *nats.Conn
	js     jetstream.JetStream
	c      *consumer.Consumer
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned; err is set then
	err    error

	seen map[bus.Key]map[string]int // of Run's goroutine until ended is closed
}

// lookAgain is how often the reader's place is looked at while it is waited for.
const lookAgain = 10 * time.Millisecond

// newReader starts a reader and waits until it has found its place: what is said
// from then on is not missed. onEnd is called when it ends, with the reason.
func (f *fleet) newReader(ctx context.Context, onEnd func(error)) (*reader, error) {
	nc, err := f.o.Dial(ctx, "skald demo reader")
	if err != nil {
		return nil, fmt.Errorf("start reader: %w", err)
	}
	r := &reader{f: f, nc: nc, ended: make(chan struct{}), seen: map[bus.Key]map[string]int{}}
	for k := range f.expected {
		r.seen[k] = map[string]int{}
	}
	if r.js, err = jetstream.New(nc); err == nil {
		r.c, err = consumer.New(r.js, consumer.Options{Subjects: f.o.Subjects, Newest: true, Logger: f.o.Logger})
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("start reader: %w", err)
	}
	var running context.Context
	running, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.ended)
		r.err = r.c.Run(running, r.take)
		onEnd(r.err)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errStart)
	defer cancel()
	if err := r.until(ctx, func() bool { return r.c.Cursor().Epoch != "" }); err != nil {
		r.close()
		return nil, fmt.Errorf("start reader: %w", err)
	}
	return r, nil
}

// take is the consumer's handler.
func (r *reader) take(_ context.Context, ev bus.Event) error {
	seen := r.seen[ev.Key()]
	if seen == nil {
		return nil // not of this story
	}
	seen[ev.Type]++
	r.f.counted(&ev)
	return r.f.o.Fact(ev)
}

// finish waits until everything has been read that EVENTS holds.
func (r *reader) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, errStop)
	defer cancel()
	events, err := r.js.Stream(ctx, r.f.o.Subjects.EventsStream())
	if err != nil {
		return fmt.Errorf("read the last facts: %w", err)
	}
	last := events.CachedInfo().State.LastSeq
	if err := r.until(ctx, func() bool { return r.c.Cursor().Seq >= last }); err != nil {
		return fmt.Errorf("read the last facts: %w", err)
	}
	return nil
}

// until waits for a condition of the reader.
func (r *reader) until(ctx context.Context, ok func() bool) error {
	t := time.NewTicker(lookAgain)
	defer t.Stop()
	for !ok() {
		select {
		case <-t.C:
		case <-r.ended:
			return r.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *reader) close() {
	r.cancel()
	<-r.ended
	r.nc.Close()
}

// counted counts a fact.
func (f *fleet) counted(ev *bus.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sum.Facts == nil {
		f.sum.Facts = map[string]int{}
	}
	f.sum.Facts[ev.Type]++
	if f.sum.First == 0 {
		f.sum.First = ev.Seq
	}
	f.sum.Last = ev.Seq
}
