package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher/outbox"
)

// Session publishes what happens in one session, in the order of the calls: one
// message is in flight at a time, and none is sent before the one ahead of it is
// stored. Open it with [Publisher.Session]. It is safe for concurrent use; calls
// that run at the same time have no order between them.
type Session struct {
	p      *Publisher
	box    *outbox.Box // nil without an outbox
	key    bus.Key
	id     string // for counts: of this opening, with an outbox of the first one
	sub    *nats.Subscription
	wake   chan struct{} // says that there may be something to do; holds one token
	closed chan struct{} // closed by Close
	once   sync.Once

	mu      sync.Mutex
	open    bool              // the position at the start is known, or not needed to send
	start   bus.ChainPosition // where it stood when it was opened
	end     bus.ChainPosition // of the last event that was accepted
	applied bus.ChainPosition // the highest that the bus is known to have applied
	count   uint64            // the last count that was given out
	heard   uint64            // the highest INGEST sequence that a hint named
	lastSeq uint64            // of the last acknowledged message

	placed   bool          // end is known
	presumed bool          // end follows from a journal, and the bus may know more of it
	ask1st   bool          // the bus is to be asked where it stands before anything is sent
	adopted  bool          // a caller has opened it; otherwise the outbox has
	wanted   bool          // somebody waits for the place
	place    chan struct{} // closed when placed is set, or the session has ended
	fence    uint64        // INGEST sequence behind which the place is to be known, 0 if none
	fenceAt  time.Time     // when it was stored
	used     *usage        // the counts that the bus knew when it was asked first
	batch    *outbox.Batch // what was added to the outbox last
	failures []Failure     // not told yet
	connects uint64        // how often the connection had come back when something was chosen last
	aside    bool          // of sent one is neither stored nor in flight

	waiting  queue
	sent     []*message // in order of their forming; the last one may be in flight
	sending  *message   // in flight or to be tried again; nil if the next may go
	again    int        // how many of sent have to be sent again
	unstored int        // items that INGEST has not acknowledged
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

// Position returns the chain position of the last event that was accepted: a worker
// goes on with the observation after that ordinal, and so says none twice.
//
// With an outbox that holds the session it is what this or an earlier process on the
// directory has had accepted, also without a connection. Else, while the bus has not been
// asked (see [Options].Unplaced), it is zero.
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
// With an outbox it returns when the observation is on disk, and ErrNotKept says
// that it could not be brought there.
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
	trace := traceOf(ctx)
	err = s.accept(ctx, 1, len(compact)+len(command)+eventFrame+pageFrame, func() error {
		s.presumed = false // what follows is chained to the end: nothing else may be there
		if !s.placed {
			s.pushLocked(item{
				class: bus.ClassProjection, body: compact, command: command, recordedAt: o.RecordedAt.UnixMilli(),
				observed: true, cost: int64(len(compact)+len(command)) + eventFrame + overhead, receipt: r, trace: trace,
			})
			return nil
		}
		event, next := chained(s.end, compact, command, o.RecordedAt.UnixMilli())
		r.ordinal = next.Ordinal
		s.pushEventLocked(event, next, r, trace)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return r, nil
}

// eventFrame is more than a relay event has besides observation and command id.
const eventFrame = 288

// Activity tells what the session is doing now, one JSON object. It gives an
// event if the object's bytes differ from the last ones. Errors are those of Observe.
func (s *Session) Activity(ctx context.Context, object []byte) (*Receipt, error) {
	body, err := activityBody(object, time.Now())
	return s.say(ctx, "activity", Message{Class: bus.ClassActivity, Body: body}, err)
}

// Error reports an error outside the chain. commandID is the command that it
// belongs to, empty if none. Errors are those of Observe.
func (s *Session) Error(ctx context.Context, message, commandID string) (*Receipt, error) {
	body, err := errorBody(message, commandID, time.Now())
	return s.say(ctx, "error", Message{Class: bus.ClassError, Body: body}, err)
}

// Save saves the session's record. Errors are those of Observe.
func (s *Session) Save(ctx context.Context, record Record) (*Receipt, error) {
	body, err := record.appendBody(nil, time.Now())
	return s.say(ctx, "save", Message{Class: bus.ClassSession, Body: body}, err)
}

func (p *Publisher) fits(size int) error {
	if most := p.MaxBody(); size > most {
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
// pushes gives its room back when it is stored, with an outbox when it is settled;
// the difference to size goes back at once. push is called again if what it has
// built on turns out not to be kept.
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
	var pushed int
	var cost int64
	var batch *outbox.Batch
	err := s.closedLocked()
	for again := err == nil; again; {
		s.undoLocked()
		before := len(s.waiting.items)
		err = push()
		pushed, cost = costOf(s.waiting.items[before:])
		s.unstored += pushed
		if batch, again = nil, false; pushed > 0 && err == nil {
			batch, again, err = s.keepLocked(before)
		}
		if err != nil {
			pushed, cost = 0, 0
		}
	}
	s.mu.Unlock()
	s.p.budget.release(n-pushed, size-cost)
	if err == nil {
		err = s.kept(batch)
	}
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

func (s *Session) pushEventLocked(event []byte, next bus.ChainPosition, r *Receipt, trace traceContext) {
	s.pushLocked(item{
		class: bus.ClassProjection, body: event, after: s.end, last: next,
		cost: int64(len(event)) + overhead, receipt: r, trace: trace,
	})
	s.end = next
}

func (s *Session) pushLocked(it item) {
	it.acceptedAt = time.Now().UnixMilli()
	if s.box != nil && it.class != bus.ClassProjection && it.eventID == "" {
		// Given now, so that it stands in the outbox.
		s.count++
		it.count = s.count
		it.receipt.count = it.count
	}
	s.waiting.push(it)
}
