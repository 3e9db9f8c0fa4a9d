package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// FollowOptions say which events to follow, from where, and who remembers how far.
type FollowOptions struct {
	// Subjects are those of the bus. Required.
	Subjects bus.Subjects
	// From is behind what to begin: number 0 is everything that the table retains.
	// With an epoch it is refused if numbers have changed meaning since. Defaults to
	// nil: what comes from now on.
	From *bus.Cursor
	// Logger hears of interruptions. Defaults to discarding.
	Logger *slog.Logger
	// Session is the one session to read; of any workspace, if Workspace is empty.
	// Defaults to all.
	Session string
	// Store keeps the place between two processes: what it holds wins over From, and
	// it is given the place every 200 ms while that moves, and at the end. So what a
	// process handled last before it was killed comes again: at least once. A reader
	// that saves its cursor with its own work gives From instead. Defaults to none.
	Store CursorStore
	// Types are the types of events to read, 32 at most; unknown ones are fine.
	// Defaults to all.
	Types []string
	// Workspace is the one workspace to read. Defaults to all.
	Workspace string
}

// Follower reads the facts behind a cursor: from the table, over the NATS service,
// while that is the only or the shorter way, then from EVENTS as they come. Make one
// with [Follow], and range over [Follower.Events].
type Follower struct {
	c       *Consumer
	f       *reading
	store   CursorStore
	loaded  bool
	saved   bus.Cursor
	savedAt time.Time
	running atomic.Bool
}

// errStopped is what ends reading when the caller has left the loop.
var errStopped = errors.New("the loop was left")

// Follow returns a follower of the options' events. It asks the server nothing. The
// error is a *[bus.InvalidError] that names the option.
func Follow(js jetstream.JetStream, o FollowOptions) (*Follower, error) {
	inner := Options{
		Subjects: o.Subjects, From: o.From, Logger: o.Logger, Newest: o.From == nil,
		Session: o.Session, Types: o.Types, Workspace: o.Workspace,
	}.withDefaults()
	if err := inner.validate(); err != nil {
		return nil, fmt.Errorf("follow options: %w", err)
	}
	c := newConsumer(js, inner)
	f := &reading{c: c, table: newTable(c)}
	return &Follower{c: c, f: f, store: o.Store}, nil
}

// Events returns the facts, one at a time and in the order of their numbers, until
// ctx ends. That the loop asks for the next one says that it is done with the one
// before; an event in whose body the loop is left counts as not handled, and comes
// again when Events is ranged over once more, which goes on where it was. Gaps in
// the numbers are normal.
//
// An unreachable or restarted server, a consumer that someone deleted, or a store
// that lags never ends the loop. An error does, as its last pair with an empty
// event. It wraps
//
//   - [bus.ErrCursorAhead], [bus.ErrCursorGone] or [bus.ErrOtherEpoch], in a *[CursorError]
//     that says from where to go on,
//   - [bus.ErrUnavailable], if at the beginning no table has answered for 10 s,
//   - [bus.ErrStreamMissing], [ErrStreamReplaced], or [bus.ErrOtherBus] if the stream is not Skald's,
//   - [nats.ErrConnectionClosed], if the connection was closed,
//   - what the cursor store returned,
//   - [ErrRunning], if it is ranged over already.
//
// At most one page, or 768 messages and 64 MiB of them, are kept ahead of the loop.
func (f *Follower) Events(ctx context.Context) iter.Seq2[bus.Event, error] {
	return func(yield func(bus.Event, error) bool) {
		if !f.running.CompareAndSwap(false, true) {
			yield(bus.Event{}, ErrRunning)
			return
		}
		defer f.running.Store(false)
		err := f.follow(ctx, yield)
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil && ctx.Err() == nil {
			yield(bus.Event{}, err)
		}
	}
}

func (f *Follower) follow(ctx context.Context, yield func(bus.Event, error) bool) error {
	if err := f.load(ctx); err != nil {
		return err
	}
	f.f.handle = func(ctx context.Context, ev bus.Event) error {
		// What came before this event is handled.
		if err := f.save(ctx); err != nil {
			return err
		}
		if !yield(ev, nil) {
			return errStopped
		}
		return nil
	}
	f.f.idle = f.save
	defer f.settle(ctx)
	return f.f.follow(ctx)
}

// Cursor returns how far the loop has come: the number up to which every event of
// the filter was handled, and the epoch. It is empty until the place is found. Safe
// for concurrent use.
func (f *Follower) Cursor() bus.Cursor { return f.c.Cursor() }

// At returns the cursor behind an event that the loop was given: what to save with
// its effect, and what to go on from.
func (f *Follower) At(ev bus.Event) bus.Cursor {
	return bus.Cursor{Epoch: f.c.Cursor().Epoch, Seq: ev.Seq}
}

// Stats returns the counts since the first range began. Safe for concurrent use.
func (f *Follower) Stats() Stats { return f.c.Stats() }

// load reads the place that the store keeps.
func (f *Follower) load(ctx context.Context) error {
	if f.store == nil || f.loaded {
		return nil
	}
	at, err := f.store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load cursor: %w", err)
	}
	if f.loaded = true; at != nil {
		f.c.o.From, f.c.o.Newest = at, false
		f.saved = *at
	}
	return nil
}

// save gives the store the place, if it has moved and was not given lately.
func (f *Follower) save(ctx context.Context) error {
	at := f.c.Cursor()
	if f.store == nil || at == f.saved || at.Epoch == "" || time.Since(f.savedAt) < saveEvery {
		return nil
	}
	if err := f.store.Save(ctx, at); err != nil {
		return fmt.Errorf("save cursor %s: %w", at, err)
	}
	f.saved, f.savedAt = at, time.Now()
	return nil
}

// settle saves for the last time; ctx may have ended.
func (f *Follower) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	f.savedAt = time.Time{}
	if err := f.save(ctx); err != nil {
		f.c.log.ErrorContext(ctx, "cursor is not saved", slog.Any("err", err))
	}
}
