package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// view is what EVENTS says of itself at one moment.
type view struct {
	epoch   string
	first   uint64 // the lowest number held; last+1 if none
	last    uint64 // the highest number given
	bounded bool   // old messages leave by themselves, not only with a forgotten session
	single  bool   // there is one copy, so the consumer's is not behind this view's
}

// look asks for EVENTS. The errors are bus.ErrStreamMissing, bus.ErrOtherBus, or
// that the server does not answer.
func (c *Consumer) look(ctx context.Context) (view, error) {
	s, err := c.js.Stream(ctx, c.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return view{}, fmt.Errorf("%w: %s", bus.ErrStreamMissing, c.stream)
	}
	if err != nil {
		return view{}, fmt.Errorf("ask for %s: %w", c.stream, err)
	}
	info := s.CachedInfo()
	v := view{
		epoch:   info.Config.Metadata[bus.MetaEpoch],
		first:   max(info.State.FirstSeq, 1), // an untouched stream says 0
		last:    info.State.LastSeq,
		single:  info.Config.Replicas <= 1,
		bounded: info.Config.MaxAge > 0 || info.Config.MaxBytes > 0 || info.Config.MaxMsgs > 0,
	}
	if v.epoch == "" {
		return v, fmt.Errorf("%w: stream %s carries no metadata %s", bus.ErrOtherBus, c.stream, bus.MetaEpoch)
	}
	return v, nil
}

// misplaced returns the error of a cursor that this view gives no place.
func (v view) misplaced(err error, at bus.Cursor) error {
	return &CursorError{Err: err, Cursor: at, Epoch: v.epoch, First: v.first, Last: v.last}
}

// gone reports whether numbers after seq may have left by themselves. In an
// unbounded stream only a forgotten session leaves such a hole, and 0 means
// whatever is held.
func (v view) gone(seq uint64) bool { return v.bounded && seq > 0 && v.first > seq+1 }

// parse returns the event that a message of EVENTS is. ok is false of a message
// that no materializer wrote: without a well-formed origin, or with a body that
// says another number, session or type than sequence and subject do.
func (c *Consumer) parse(seq uint64, msg jetstream.Msg) (ev bus.Event, ok bool) {
	ev, _, ok = c.o.Subjects.ParseFact(seq, msg.Subject(), msg.Headers(), msg.Data())
	return ev, ok
}
