package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/bus"
)

const (
	// doubtFor is how long EVENTS may be missing, or end below what was read,
	// before Run believes it: a server that comes back may not have all at once,
	// and a materializer puts a lost end back.
	doubtFor = 10 * time.Second
	// quietFor is how long nothing comes until the server is asked whether
	// something should have; quietAgain is how often without an occasion.
	quietFor   = time.Second
	quietAgain = 30 * time.Second
)

// reading is one Run, or one following.
type reading struct {
	c      *Consumer
	handle Handler
	lease  *lease                      // nil without a durable
	table  *table                      // where history is paged from; nil if only EVENTS is read
	idle   func(context.Context) error // called when nothing has come for a while; may be nil

	begun bool
	// doubted is when what was read began to seem lost, zero since reading goes on.
	doubted time.Time
	// known is the number up to which nothing that we read can be missing: what
	// came last, or where EVENTS ended when nothing was left to come.
	known uint64
}

// follow reads until something final happens, and begins again after anything else.
func (f *reading) follow(ctx context.Context) error {
	var wait backoff
	for {
		before := f.c.Cursor()
		err := f.session(ctx)
		if errors.Is(err, errFarBehind) {
			continue // the next session pages
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var end final
		if errors.As(err, &end) {
			return end.err
		}
		if err := f.c.closed(); err != nil {
			return err
		}
		if doubtful(err) || !f.begun && errors.Is(err, errNoTable) {
			if f.doubted.IsZero() {
				f.doubted = time.Now()
			}
			if !f.begun && !errors.Is(err, errNoTable) || time.Since(f.doubted) > doubtFor {
				return err
			}
		} else {
			f.doubted = time.Time{}
		}
		if f.c.Cursor() != before || errors.Is(err, bus.ErrBehind) {
			wait.reset() // a store that is behind has made us wait
		}
		if f.begun {
			f.c.count(func(s *Stats) { s.Interrupted++ })
		}
		f.c.log.WarnContext(ctx, "reading EVENTS is interrupted", slog.Uint64("seq", f.c.Cursor().Seq), slog.Any("err", err))
		if wait.wait(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}

// doubtful reports whether an error may pass by itself or be for good.
func doubtful(err error) bool {
	return errors.Is(err, bus.ErrStreamMissing) || errors.Is(err, bus.ErrCursorAhead)
}

// session reads through one JetStream consumer, from its making to its end.
func (f *reading) session(ctx context.Context) error {
	v, err := f.c.look(ctx)
	if errors.Is(err, bus.ErrOtherBus) && !f.begun {
		return final{err}
	}
	if f.begun && (errors.Is(err, bus.ErrOtherBus) || err == nil && v.epoch != f.c.Cursor().Epoch) {
		return final{fmt.Errorf("%w: its epoch was %q and is %q", ErrStreamReplaced, f.c.Cursor().Epoch, v.epoch)}
	}
	if err != nil {
		return err
	}
	at := f.c.Cursor()
	if !f.begun {
		if at, err = f.begin(ctx, v); err != nil {
			return err
		}
		f.known = at.Seq
		if at.Seq == 0 && f.table == nil {
			f.known = v.first - 1
		}
	}
	if f.table != nil {
		if v, at, err = f.page(ctx, v, at); err != nil {
			return err
		}
	}
	switch {
	case at.Seq > v.last:
		return v.misplaced(bus.ErrCursorAhead, at)
	case f.table == nil && v.gone(f.known):
		return final{v.misplaced(bus.ErrCursorGone, at)}
	}
	if f.lease != nil && !f.lease.held() {
		return errLeaseLapsed
	}
	if f.c.durable != "" {
		if err := f.c.ensure(ctx, at); err != nil {
			return err
		}
	}
	s, err := f.c.open(ctx, at.Seq)
	if err != nil {
		return err
	}
	defer s.close()
	f.doubted = time.Time{}
	if !f.begun {
		f.c.begin(at)
		f.begun = true
	}
	return f.pump(ctx, s, v.bounded)
}

// begin returns behind what to begin.
func (f *reading) begin(ctx context.Context, v view) (bus.Cursor, error) {
	o := &f.c.o
	at := bus.Cursor{Epoch: v.epoch}
	if o.From != nil {
		if o.From.Epoch != "" && o.From.Epoch != v.epoch {
			return at, final{v.misplaced(bus.ErrOtherEpoch, *o.From)}
		}
		at.Seq = o.From.Seq
		return at, nil
	}
	if f.c.durable != "" {
		seq, ok, err := f.c.load(ctx, v)
		if at.Seq = seq; ok || err != nil {
			return at, err
		}
	}
	if o.Newest {
		at.Seq = v.last
	}
	return at, nil
}

// pump hands the source's messages to the handler until something ends it.
func (f *reading) pump(ctx context.Context, s *source, bounded bool) error {
	q := f.newQuiet(s)
	timer := time.NewTimer(quietFor)
	defer timer.Stop()
	for {
		var batch []item
		select {
		case it := <-s.items:
			batch = append(batch, it)
		case <-timer.C:
			if f.idle != nil {
				if err := f.idle(ctx); err != nil {
					return final{err}
				}
			}
			if err := q.check(ctx); err != nil {
				return err
			}
			timer.Reset(quietFor)
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more && len(batch) < prefetch; {
			select {
			case it := <-s.items:
				batch = append(batch, it)
			default:
				more = false
			}
		}
		if err := f.takeAll(ctx, batch, bounded); err != nil {
			return err
		}
		s.handled(batch)
		q.taken += uint64(len(batch)) // an error among them has ended it
		if f.table != nil && f.table.pays(batch[len(batch)-1].pending) {
			return errFarBehind
		}
		timer.Reset(quietFor)
	}
}

func (f *reading) takeAll(ctx context.Context, batch []item, bounded bool) error {
	// In a stream that old messages leave, a step in the numbers is looked at
	// after it came: what EVENTS held then tells whether the step may hide some.
	var v view
	if bounded && f.steps(batch) {
		var err error
		if v, err = f.c.look(ctx); err != nil {
			return err
		}
	}
	for _, it := range batch {
		if it.err != nil {
			return it.err
		}
		if it.seq <= f.c.Cursor().Seq {
			continue
		}
		if it.seq > f.known+1 && f.gone(v) {
			if f.table != nil {
				return errFarBehind
			}
			return final{v.misplaced(bus.ErrCursorGone, bus.Cursor{Epoch: v.epoch, Seq: f.known})}
		}
		if err := f.take(ctx, it); err != nil {
			return err
		}
		f.known = max(f.known, it.seq)
	}
	return nil
}

func (f *reading) steps(batch []item) bool {
	last := f.known
	for _, it := range batch {
		if it.err == nil && it.seq > last+1 {
			return true
		}
		last = max(last, it.seq)
	}
	return false
}

// gone reports whether numbers behind the known one may have left EVENTS by
// themselves. With a table, number 0 is a place like any other: the table has what
// EVENTS no longer holds.
func (f *reading) gone(v view) bool {
	if f.table != nil {
		return v.bounded && v.first > f.known+1
	}
	return v.gone(f.known)
}

// handled counts an event that the handler took.
func handled(s *Stats) { s.Handled++ }

// take hands one message to the handler, or skips it.
func (f *reading) take(ctx context.Context, it item) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// A process that was frozen must not go on with what it was given before.
	if f.lease != nil && !f.lease.held() {
		return errLeaseLapsed
	}
	count := handled
	if it.msg.Subject() == f.c.o.Subjects.Void() {
		count = func(s *Stats) { s.Void++ }
	} else if ev, ok := f.c.parse(it.seq, it.msg); !ok {
		count = func(s *Stats) { s.Foreign++ }
		f.c.log.WarnContext(ctx, "EVENTS holds a message that no materializer wrote", slog.Uint64("seq", it.seq), slog.String("subject", it.msg.Subject()))
	} else if err := f.handle(WithTrace(ctx, ev), ev); err != nil {
		return final{fmt.Errorf("handle event %d: %w", it.seq, err)}
	}
	f.c.advance(it.seq, count)
	return nil
}

// backoff doubles from 50 ms to 2 s: long enough that a refusing server is not
// hammered, short enough that coming back is not noticed as a pause.
type backoff struct{ d time.Duration }

func (b *backoff) wait(ctx context.Context) error {
	b.d = min(max(2*b.d, 50*time.Millisecond), 2*time.Second)
	return pause(ctx, b.d)
}

func (b *backoff) reset() { b.d = 0 }
