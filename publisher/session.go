package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// Session publishes what happens in one session, in the order of the calls: one
// message is in flight at a time, and none is sent before the one ahead of it is
// stored. Open it with [Publisher.Session]. It is safe for concurrent use; calls
// that run at the same time have no order between them.
type Session struct {
	p      *Publisher
	key    bus.Key
	id     string // of this opening, for counts
	sub    *nats.Subscription
	wake   chan struct{} // says that there may be something to do; holds one token
	closed chan struct{} // closed by Close
	once   sync.Once

	mu      sync.Mutex
	open    bool              // the position at the start is known
	start   bus.ChainPosition // where it stood when it was opened
	end     bus.ChainPosition // of the last event that was accepted
	applied bus.ChainPosition // the highest that the bus is known to have applied
	count   uint64            // the last count that was given out
	heard   uint64            // the highest INGEST sequence that a hint named
	lastSeq uint64            // of the last acknowledged message

	waiting  queue
	sent     []*message // in order of their forming; the last one may be in flight
	sending  *message   // in flight or to be tried again; nil if the next may go
	again    int        // how many of sent have to be sent again
	unstored int        // items that INGEST has not acknowledged
	tail     *Receipt   // of the item accepted last
	loose    place      // of the last page that was let go of, with its sequence in INGEST
	early    []hint     // of messages whose acknowledgement has not come

	backoff   backoff
	retryAt   time.Time
	askAt     time.Time // when to ask what became of what is stored; zero if nothing is
	askWait   time.Duration
	isAsking  bool
	trouble   error // of the latest attempt, nil if it worked
	askErr    error // of the latest question, nil if it was answered
	refused   error // the first message since the last Flush that can not be stored
	err       error // why the session has ended
	remainder Unconfirmed
	idle      chan struct{} // closed when all is stored; nil if nobody waits
}

// ObserveOptions say more about an observation.
type ObserveOptions struct {
	// CommandID is the command that the observation belongs to, empty if none.
	CommandID string
	// RecordedAt is the worker's time, ms are kept. The zero value is the time
	// of the call.
	RecordedAt time.Time
}

// Position returns the chain position of the last event that was accepted: a
// worker with a journal goes on with the event after it.
func (s *Session) Position() bus.ChainPosition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Observe makes observation, one JSON object, the next event of the session's
// chain, in format 1. The bytes are kept as they are but for white space between
// tokens, and copied. It blocks while the publisher is full; accepted is not yet
// stored, see [Receipt].
//
// A *[bus.InvalidError] or ErrTooLarge refuses the observation and leaves the
// chain as it was, and so does the end of ctx. With ErrForked, ErrForgotten,
// ErrLost, ErrTooLarge of an earlier message, or ErrClosed the session has ended.
func (s *Session) Observe(ctx context.Context, observation []byte, o ObserveOptions) (*Receipt, error) {
	now := time.Now()
	compact, err := compactObject("observation", observation, pageLevels)
	if err == nil {
		err = checkText("command_id", o.CommandID)
	}
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	var command []byte
	if o.CommandID != "" {
		command = bus.AppendQuoted(nil, o.CommandID)
	}
	if o.RecordedAt.IsZero() {
		o.RecordedAt = now
	}
	r := &Receipt{s: s}
	err = s.accept(ctx, 1, len(compact)+len(command)+eventFrame+pageFrame, func() error {
		event, next := chained(s.end, compact, command, o.RecordedAt.UnixMilli())
		r.ordinal = next.Ordinal
		s.pushEventLocked(event, next, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return r, nil
}

// eventFrame is more than a relay event has besides observation and command id.
const eventFrame = 288

// Append takes relay events out of a journal, of either format, as they are: with
// their ordinals, times and digests, which are checked. Format 0 counts as 1. All
// are accepted or none; what lies at or below the position at which the session
// was opened is skipped. The receipt is the last event's and stands for all of
// them; if all are skipped it is that of an event which is materialized. A journal
// whose digests are not those of the bus is ErrForked; other errors are those of
// Observe.
func (s *Session) Append(ctx context.Context, events ...bus.RelayEvent) (*Receipt, error) {
	if len(events) == 0 {
		return nil, fmt.Errorf("append: %w", &bus.InvalidError{Reason: bus.ReasonPage, Field: "events", Rule: "must not be empty"})
	}
	if len(events) > bus.MaxPageEvents {
		// More would have to fit into the budget at once.
		return nil, fmt.Errorf("append: %w", &bus.InvalidError{Reason: bus.ReasonPage, Field: "events", Rule: fmt.Sprintf("must be at most %d", bus.MaxPageEvents)})
	}
	for len(events) > 1 && events[0].Ordinal < s.start.Ordinal {
		events = events[1:]
	}
	if e := &events[0]; e.Ordinal <= s.start.Ordinal {
		if d, ok := bus.ParseDigest(e.Digest); e.Ordinal == s.start.Ordinal && (!ok || d != s.start.Digest) {
			return nil, fmt.Errorf("append: event %d: %w: its digest is %.64s, the bus has %s", e.Ordinal, ErrForked, e.Digest, s.start.Digest)
		}
		if len(events) == 1 {
			return &Receipt{s: s, ordinal: e.Ordinal, stored: true, applied: true}, nil
		}
		events = events[1:]
	}
	size := 0
	for i := range events {
		n := len(events[i].Observation) + len(events[i].CommandID) + eventFrame
		if err := s.p.fits(n + pageFrame); err != nil {
			return nil, fmt.Errorf("append: event %d: %w", events[i].Ordinal, err)
		}
		size += n
	}
	r := &Receipt{s: s, ordinal: events[len(events)-1].Ordinal}
	err := s.acceptMany(ctx, len(events), int64(size), func() error {
		// All are checked before the first is taken.
		bodies, at := make([][]byte, len(events)), s.end
		places := make([]bus.ChainPosition, len(events))
		for i := range events {
			var err error
			if bodies[i], at, err = readyMade(at, events[i]); err != nil {
				return err
			}
			places[i] = at
		}
		for i := range events {
			one := r
			if i < len(events)-1 {
				one = &Receipt{s: s, ordinal: events[i].Ordinal}
			}
			s.pushEventLocked(bodies[i], places[i], one)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	return r, nil
}

// Activity tells what the session is doing now, one JSON object. It gives an
// event if the object's bytes differ from the last ones. Errors are those of Observe.
func (s *Session) Activity(ctx context.Context, object []byte) (*Receipt, error) {
	body, err := activityBody(object, time.Now())
	return s.say(ctx, "activity", bus.ClassActivity, body, err)
}

// Error reports an error outside the chain. commandID is the command that it
// belongs to, empty if none. Errors are those of Observe.
func (s *Session) Error(ctx context.Context, message, commandID string) (*Receipt, error) {
	body, err := errorBody(message, commandID, time.Now())
	return s.say(ctx, "error", bus.ClassError, body, err)
}

// Save saves the session's record. Errors are those of Observe.
func (s *Session) Save(ctx context.Context, record Record) (*Receipt, error) {
	body, err := record.appendBody(nil, time.Now())
	return s.say(ctx, "save", bus.ClassSession, body, err)
}

// say accepts a message without a chain, whose body may have failed.
func (s *Session) say(ctx context.Context, doing string, class bus.Class, body []byte, err error) (*Receipt, error) {
	r := &Receipt{s: s}
	if err == nil {
		err = s.accept(ctx, 1, len(body), func() error {
			s.pushLocked(item{class: class, body: body, cost: int64(len(body)) + overhead, receipt: r})
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return r, nil
}

func (p *Publisher) fits(size int) error {
	if most := p.limit(); size > most {
		return fmt.Errorf("%w: %d bytes, this server takes %d", ErrTooLarge, size, most)
	}
	return nil
}

func (s *Session) accept(ctx context.Context, n, size int, push func() error) error {
	if err := s.p.fits(size); err != nil {
		return err
	}
	return s.acceptMany(ctx, n, int64(size), push)
}

// acceptMany waits for room and calls push with the session locked. What push
// pushes gives its room back when it is stored; the difference to size goes back
// at once.
func (s *Session) acceptMany(ctx context.Context, n int, size int64, push func() error) error {
	size += int64(n) * overhead
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := s.p.budget.acquire(ctx, s.p.closing, n, size); err != nil {
		if !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("wait for room: %w", s.because(err))
		}
		return err
	}
	s.mu.Lock()
	err := s.closedLocked()
	before := len(s.waiting.items)
	if err == nil {
		err = push()
	}
	pushed, cost := costOf(s.waiting.items[before:])
	s.unstored += pushed
	s.mu.Unlock()
	s.p.budget.release(n-pushed, size-cost)
	wake(s.wake)
	return err
}

// closedLocked reports why the session takes nothing more, nil if it does.
func (s *Session) closedLocked() error {
	select {
	case <-s.p.closing:
	case <-s.closed:
	default:
		return s.err
	}
	if s.err != nil {
		return s.err
	}
	return ErrClosed
}

func (s *Session) pushEventLocked(event []byte, next bus.ChainPosition, r *Receipt) {
	s.pushLocked(item{
		class: bus.ClassProjection, body: event, after: s.end, last: next,
		cost: int64(len(event)) + overhead, receipt: r,
	})
	s.end = next
}

func (s *Session) pushLocked(it item) {
	s.waiting.push(it)
	s.tail = it.receipt
}
