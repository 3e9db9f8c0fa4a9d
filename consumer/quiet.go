package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/skaldbus/skald/bus"
)

// quiet looks whether something is missing while nothing comes. A message that is
// lost on its way is noticed by the next one; if there is no next one, nobody would
// send it again, since the server holds that it was delivered.
type quiet struct {
	f *reading
	s *source

	taken      uint64    // messages that were handed on
	asked      time.Time // when the server was asked last; zero if never
	received   uint64    // what had come by then
	reconnects uint64    // how often the connection had come back by then
	missing    bool      // the server had sent more than had come
	unbroken   uint64    // as reconnects, when it was known that nothing was left to come
}

func (f *reading) newQuiet(s *source) *quiet {
	reconnects := f.c.js.Conn().Stats().Reconnects
	return &quiet{f: f, s: s, reconnects: reconnects, unbroken: reconnects}
}

// check asks the server if there was an occasion to, or none for a while. It
// returns errLostDelivery if something is missing.
func (q *quiet) check(ctx context.Context) error {
	conn := q.f.c.js.Conn()
	received, reconnects := q.s.received.Load(), conn.Stats().Reconnects
	if received != q.taken {
		// It is not quiet: messages wait to be taken, and EVENTS' end below would be
		// taken for a place behind them.
		return nil
	}
	occasion := received != q.received || reconnects != q.reconnects || q.missing
	if !conn.IsConnected() || !occasion && time.Since(q.asked) < quietAgain {
		return nil
	}
	// EVENTS' end first: what has been delivered of it is asked for afterwards.
	v, err := q.f.c.look(ctx)
	if err != nil {
		return err
	}
	if v.epoch != q.f.c.Cursor().Epoch {
		return errOtherStream // a new session says which
	}
	if at := q.f.c.Cursor(); v.last < at.Seq {
		return v.misplaced(bus.ErrCursorAhead, at)
	}
	info, err := q.s.cons.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask for the consumer: %w", err)
	}
	same := received == q.received
	q.asked, q.received, q.reconnects = time.Now(), received, reconnects
	switch {
	case q.s.received.Load() != received:
		// Something came meanwhile, so the numbers can not be compared.
		q.missing = false
	case info.Delivered.Consumer > received:
		// It may be on its way. If it still is after another quiet while, it is lost.
		if q.missing && same {
			return errLostDelivery
		}
		q.missing = true
	default:
		q.missing = false
		if info.NumPending > 0 {
			return nil
		}
		if err := q.left(ctx, v, reconnects != q.unbroken); err != nil {
			return err
		}
		q.unbroken = reconnects
		q.f.known = max(q.f.known, v.last)
		// Without this a reader of rare events would find its place gone after
		// a restart, where EVENTS is bounded. On a replica that lags there may
		// be something for us before v.last yet.
		if v.single && v.last > q.f.c.Cursor().Seq {
			q.f.c.advance(v.last, func(*Stats) {})
		}
	}
	return nil
}

// left returns an error if nothing is left to come since it has left a bounded EVENTS
// before it was sent: nothing is sent to a connection that is lost. While that is there
// everything is sent as it comes, and who waits for rare events is not concerned; but to
// look into the table costs little.
func (q *quiet) left(ctx context.Context, v view, cut bool) error {
	if !v.bounded || q.f.table == nil && !cut {
		return nil
	}
	now, err := q.f.c.look(ctx) // after the consumer's numbers
	switch {
	case err != nil:
		return err
	case !q.f.gone(now):
		return nil
	case q.f.table != nil:
		return errFarBehind
	}
	return final{now.misplaced(bus.ErrCursorGone, bus.Cursor{Epoch: now.epoch, Seq: q.f.known})}
}
