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
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Errors with which Run stops, since going on would break a promise. Each is
// wrapped with the numbers it concerns and what to do.
var (
	// ErrIngestBegins: INGEST no longer holds the message after the store's position, and
	// another store has read it.
	ErrIngestBegins = errors.New("INGEST does not reach back to the store's position")
	// ErrEventsDiffer: the message under the number of the table's last row is not that row.
	ErrEventsDiffer = errors.New("EVENTS and the table differ")
	// ErrEventsGone: EVENTS is bounded and no longer holds the table's next numbers.
	ErrEventsGone = errors.New("EVENTS does not reach back to the table's end")
	// ErrRunning: Run was called a second time.
	ErrRunning = errors.New("materializer has run already")
)

// Options are what a materializer works with. Conn, JS, Store, Streams and Subjects are required.
type Options struct {
	// AppendMessages is the most facts that are appended to EVENTS as one atomic batch.
	// The server must allow as many, or facts that need more are never taken. 0 is 1,000,
	// which every server allows whose configuration does not say otherwise.
	AppendMessages int
	// ChainAppends sends a fact to EVENTS while the one before is not answered yet, where
	// few wait. Each then names the one before, in the header Nats-Expected-Last-Msg-Id, so
	// that none is taken behind one that was refused. Only for a server that keeps one copy
	// of EVENTS and always will: with the header a wrong guess halts a replicated stream.
	ChainAppends bool
	// Committed is called after each commit with the position that it led to, in the
	// goroutine that commits, which waits for it. Nil tells nobody.
	Committed func(store.Position)

	Conn *nats.Conn
	// IngestKeep is how long INGEST keeps messages that nobody needs any more, at most
	// MaxIngestKeep. It is read if Trim is set; 0 removes them as soon as that is safe.
	IngestKeep time.Duration
	JS         jetstream.JetStream // on Conn
	Label      string              // of the store, for people who list those of a bus
	Logger     *slog.Logger        // nil discards
	// MaxLag is from which age of the oldest message that is not committed Health says
	// so. 0 sets no bound.
	MaxLag time.Duration
	// MayLose says why the server may lose what it has acknowledged, "" if it does not.
	// It is logged once other stores are registered, which would have to wait then.
	MayLose string
	// Observer is told what is done. Nil tells nobody.
	Observer Observer

	Store    *store.Store // adopted by the bus of Streams; this materializer is its only writer
	Streams  bus.Streams  // as bus.Subjects.Open found them
	Subjects bus.Subjects
	// Tracer is given a span for each commit with messages of sampled traces, as the
	// package comment says. Nil makes none.
	Tracer trace.Tracer
	// Trim lets the materializer remove INGEST's beginning: what is in table and EVENTS,
	// in two checkpoints, and read by all registered stores.
	Trim bool
}

// Materializer is the one writer of a store, and one of any number of writers of
// EVENTS. Make one with [New], run it once with [Materializer.Run].
type Materializer struct {
	o       Options
	log     *slog.Logger
	reader  *store.Reader
	out     *eventWriter // the worker's
	costs   appendCosts  // the worker's
	running atomic.Bool

	committed   progress      // what the committer has made durable
	atHand      atomic.Uint64 // EVENTS' number up to which the worker has all; the worker's, for others
	workerIdle  chan struct{} // says that the worker has nothing in hand; holds one token
	removalsDue chan struct{} // wakes the remover; holds one token
	lookAgain   atomic.Bool   // EVENTS may hold forgotten sessions again
	connection  connection
	health      health
	stats       stats
	lag         atomic.Pointer[Lag] // the watcher's; nil before it has seen any

	run          string // of this one, in the registry
	registration registration
	gate         gate                   // the worker's
	begun        bool                   // a new store has looked for a checkpoint
	notServing   atomic.Pointer[string] // why the store must not be read; nil if it may
	restoredTo   atomic.Pointer[uint64] // how far a restored store has to come; nil if it is none, or has
	working      atomic.Bool            // the stages run
	silent       atomic.Pointer[[]SilentStore]

	checkpointDue   chan struct{}   // wakes the keeper; holds one token
	checkpointTook  time.Duration   // the keeper's, as what follows
	damaged         map[string]bool // checkpoints that can not be read, by name
	keepEvery       time.Duration   // keepEvery, unless a test lowers it
	checkpointEvery time.Duration   // likewise
	checkpointRest  time.Duration   // likewise, a factor

	// seam is called at each row of the crash table, with its name. An error is
	// taken for a crash: Run returns it and nothing more is written. Tests only.
	seam       func(name string) error
	stateBytes int64 // maxStateBytes, unless a test lowers it

	// What notInEvents has not logged yet, and when it did last; the worker's.
	lostFacts  int
	lostLogged time.Time
	prunes     *[]prune // that INGEST holds; nil until somebody asks; the worker's

	// Of INGEST, as a round of the stages found it; written between rounds only.
	ingestID string
	// seen is the newest message that a check of INGEST has found as it was read. It
	// belongs to the watcher, and between rounds to resume.
	seen store.Mark
	// compared is when the watcher compared messages last.
	compared compared
}

// stats are counters since the start.
type stats struct {
	appendsWon, appendsLost, questions atomic.Int64
	checkpoints, trims, trimmed        atomic.Int64
}

// Stats is what a materializer has counted since it started.
type Stats struct {
	AppendsWon  int64 // appends that EVENTS took
	AppendsLost int64 // appends refused since another materializer was first
	Questions   int64 // appends whose answer was lost or was another refusal
	Checkpoints int64 // checkpoints written
	Trims       int64 // how often INGEST's beginning was removed
	Trimmed     int64 // sequences of INGEST that were removed
}

// New returns a materializer over the streams and the store. It reads and
// starts nothing. It panics if an option is missing.
func New(o Options) (*Materializer, error) {
	if o.Conn == nil || o.JS == nil || o.Store == nil || o.Streams.Ingest == nil || o.Streams.Events == nil || o.Subjects.Prefix() == "" {
		panic("materializer.New: an option is missing")
	}
	if o.IngestKeep < 0 || o.IngestKeep > MaxIngestKeep {
		return nil, &bus.InvalidError{Field: "ingest keep", Rule: "must be 0 to " + MaxIngestKeep.String()}
	}
	if o.AppendMessages < 0 {
		return nil, &bus.InvalidError{Field: "append messages", Rule: "must not be negative"}
	}
	if o.AppendMessages == 0 {
		o.AppendMessages = maxAppendMessages
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	m := &Materializer{
		o:           o,
		log:         log,
		reader:      o.Store.Reader(),
		workerIdle:  make(chan struct{}, 1),
		removalsDue: make(chan struct{}, 1),
		seam:        func(string) error { return nil },
		stateBytes:  maxStateBytes,

		run:             bus.NewID(),
		checkpointDue:   make(chan struct{}, 1),
		damaged:         make(map[string]bool),
		keepEvery:       keepEvery,
		checkpointEvery: checkpointEvery,
		checkpointRest:  checkpointRest,
	}
	m.out = newEventWriter(m)
	m.committed.init()
	m.health.init()
	m.connection.init(o.Conn)
	return m, nil
}

// Stats returns the counters. Safe for concurrent use.
func (m *Materializer) Stats() Stats {
	return Stats{
		AppendsWon:  m.stats.appendsWon.Load(),
		AppendsLost: m.stats.appendsLost.Load(),
		Questions:   m.stats.questions.Load(),
		Checkpoints: m.stats.checkpoints.Load(),
		Trims:       m.stats.trims.Load(),
		Trimmed:     m.stats.trimmed.Load(),
	}
}

// Run materializes until ctx ends, then finishes the batch at hand, commits it
// and returns nil. An unwritable store, an unreachable server or a refusing
// EVENTS never end it: reading pauses, and it tries again with backoff. An INGEST
// that was set back, made anew or trimmed is reported, and read again from what is
// known of it. It returns an error only if going on would break a promise; then
// nothing runs any more. It can be called once.
func (m *Materializer) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	pos, err := m.reader.Position(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the store's position: %w", err)
	}
	m.committed.set(pos)
	if pos.IngestSeq == 0 && pos.EventsSeq > 0 {
		m.stopServing("the store has rows and no position: it was taking a checkpoint")
	}
	if err := m.removeScratch(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	// The entry in the registry is written a last time when nothing is committed any more.
	registering, ended := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return m.registerLoop(registering) })
	g.Go(func() error { return m.keepLoop(gctx) })
	g.Go(func() error { return m.connection.run(gctx, m.o.Conn) })
	g.Go(func() error {
		defer ended()
		return m.rounds(ctx, gctx)
	})
	return g.Wait()
}

// rounds runs the stages in rounds until ctx ends: a round that ends since INGEST is not
// what it was is followed by another one. stop is the context of Run's caller.
func (m *Materializer) rounds(stop, ctx context.Context) error {
	var wait backoff
	for {
		pos, err := m.resume(ctx)
		if err == nil {
			m.health.set(checkStreams, "")
			m.notServing.Store(nil)
			m.working.Store(true)
			err = m.round(stop, ctx, pos)
			m.working.Store(false)
		}
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			return nil
		case ctx.Err() == nil && hasMoved(err):
			m.health.set(checkIngest, err.Error())
			m.log.Warn("reading INGEST ends here", slog.Any("err", err))
			if wait.wait(ctx) != nil {
				return nil
			}
		default:
			return err
		}
	}
}

// round runs the stages from pos on, until one of them ends.
func (m *Materializer) round(stop, ctx context.Context, pos store.Position) error {
	before, err := m.reader.Stretches(ctx)
	if err != nil {
		return fmt.Errorf("read what was read before: %w", err)
	}
	m.health.set(checkEvents, "")
	g, gctx := errgroup.WithContext(ctx)
	reading, stopReading := context.WithCancelCause(gctx)
	defer stopReading(nil)
	in := newIntake()
	units := newHandover()
	g.Go(func() error { return m.read(gctx, reading, pos.IngestSeq, in) })
	g.Go(func() error { defer close(units.ch); return m.newWorker(pos, before, in, units).run(gctx) })
	g.Go(func() error { return m.commitLoop(stop, gctx, units) })
	g.Go(func() error { return m.removeLoop(gctx) })
	g.Go(func() error { return m.watch(gctx, stopReading) })
	return g.Wait()
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

// wake puts a token into a channel that holds one. A token that is still there
// says the same.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// backoff doubles from 50 ms to 2 s: long enough that a refusing server is not
// hammered, short enough that recovery is not noticed as a pause.
type backoff struct{ d time.Duration }

func (b *backoff) wait(ctx context.Context) error {
	b.d = min(max(2*b.d, 50*time.Millisecond), 2*time.Second)
	return pause(ctx, b.d)
}

func (b *backoff) reset() { b.d = 0 }
