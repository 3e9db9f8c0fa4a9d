package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// Handler takes one event. Returning nil acknowledges it; an error ends Run, and
// the event comes again. ctx ends when Run has to stop, also since another process
// has taken the durable over; then the handler should return soon. It carries the
// event's trace context, see [WithTrace].
type Handler func(ctx context.Context, ev bus.Event) error

// Consumer follows EVENTS. Make one with [New], run it once with [Consumer.Run].
type Consumer struct {
	js      jetstream.JetStream
	o       Options
	log     *slog.Logger
	stream  string
	filters []string
	durable string // the JetStream consumer that keeps the position; "" if there is none
	running atomic.Bool

	mu sync.Mutex
	// cursor and stats are what callers may ask for. Only Run writes them.
	cursor bus.Cursor
	stats  Stats
}

// Stats are counts since Run began.
type Stats struct {
	Handled     int64 // events that the handler took
	Foreign     int64 // messages skipped since no materializer wrote them
	Void        int64 // messages skipped since they only take a number
	Interrupted int64 // times that reading broke off and began again
	Pages       int64 // pages that were read from the table; only a [Follower] reads any
}

// New returns a consumer of the options' events. It asks the server nothing. The
// error is a *[bus.InvalidError] that names the option.
func New(js jetstream.JetStream, o Options) (*Consumer, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("consumer options: %w", err)
	}
	if o.Session != "" && o.Workspace == "" {
		return nil, fmt.Errorf("consumer options: %w", &bus.InvalidError{
			Field: "session", Rule: "needs its workspace: several may have a session of one id",
		})
	}
	return newConsumer(js, o), nil
}

// newConsumer takes options that are complete and valid.
func newConsumer(js jetstream.JetStream, o Options) *Consumer {
	c := &Consumer{js: js, o: o, log: o.Logger, stream: o.Subjects.EventsStream(), filters: o.filters()}
	if o.Durable != "" {
		c.durable = DurableName(o.Durable)
		c.log = c.log.With(slog.String("durable", o.Durable))
	}
	return c
}

// Cursor returns how far Run has come: the number up to which every event of the
// filter was handled, and EVENTS' epoch. It is empty until Run has found EVENTS. In
// a handler it names the epoch, and a number below the event's. Safe for concurrent
// use.
func (c *Consumer) Cursor() bus.Cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor
}

// Stats returns the counts. Safe for concurrent use.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run calls handle for each event, one at a time and in the order of numbers,
// until ctx ends: then it returns nil, and the event at hand counts as handled
// only if handle returned nil for it. An unreachable or restarted server, or a
// JetStream consumer that someone deleted, never ends it: reading goes on behind
// the last number. It returns an error that wraps
//
//   - what handle returned,
//   - [bus.ErrCursorAhead], [bus.ErrCursorGone] or [bus.ErrOtherEpoch], in a *[CursorError],
//   - [ErrInUse] or [ErrDurableDiffers], of a durable,
//   - [bus.ErrStreamMissing], [ErrStreamReplaced], or [bus.ErrOtherBus] if the stream is not Skald's,
//   - [nats.ErrConnectionClosed], if the connection was closed.
//
// The package comment says when each comes. It can be called once.
func (c *Consumer) Run(ctx context.Context, handle Handler) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	err := c.run(ctx, handle)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *Consumer) run(ctx context.Context, handle Handler) error {
	f := &reading{c: c, handle: handle}
	if c.durable == "" {
		return f.follow(ctx)
	}
	l, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	f.lease = l
	leased, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { cancel(l.keep(leased)) })
	wg.Go(func() { c.keepSaved(leased, l) })
	// Also if handle panics: a goroutine left behind would hold the lease for good.
	defer func() {
		cancel(nil)
		wg.Wait()
		c.settle(l)
		l.release()
	}()
	return f.follow(leased)
}

// advance moves the cursor behind a message that was handled or skipped.
func (c *Consumer) advance(seq uint64, count func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor.Seq = seq
	count(&c.stats)
}

// begin sets the cursor that Run begins with.
func (c *Consumer) begin(at bus.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor = at
}

func (c *Consumer) count(count func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.stats)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closed returns an error if the connection is closed for good.
func (c *Consumer) closed() error {
	if c.js.Conn().IsClosed() {
		return nats.ErrConnectionClosed
	}
	return nil
}
