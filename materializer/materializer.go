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
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Errors with which Run stops, since going on would break a promise. Each is
// wrapped with the numbers it concerns and what to do.
var (
	// ErrIngestBegins: INGEST no longer holds the message after the store's position.
	ErrIngestBegins = errors.New("INGEST does not reach back to the store's position")
	// ErrIngestReplaced: INGEST is another stream than the store has read so far.
	ErrIngestReplaced = errors.New("INGEST is not the stream that this store was reading")
	// ErrIngestBehind: INGEST ends below the store's position: it was rolled back.
	ErrIngestBehind = errors.New("INGEST ends below the store's position")
	// ErrEventsDiffer: the message under the number of the table's last row is not that row.
	ErrEventsDiffer = errors.New("EVENTS and the table differ")
	// ErrEventsGone: EVENTS is bounded and no longer holds the table's next numbers.
	ErrEventsGone = errors.New("EVENTS does not reach back to the table's end")
	// ErrRunning: Run was called a second time.
	ErrRunning = errors.New("materializer has run already")
)

// Options are what a materializer works with. All but Logger are required.
type Options struct {
	Conn     *nats.Conn
	JS       jetstream.JetStream // on Conn
	Logger   *slog.Logger        // nil discards
	Store    *store.Store        // adopted by the bus of Streams; this materializer is its only writer
	Streams  bus.Streams         // as bus.Subjects.Open found them
	Subjects bus.Subjects
}

// Materializer is the one writer of a store, and one of any number of writers of
// EVENTS. Make one with [New], run it once with [Materializer.Run].
type Materializer struct {
	o       Options
	log     *slog.Logger
	reader  *store.Reader
	epoch   []string // the value of Skald-Epoch
	running atomic.Bool

	committed   progress      // what the committer has made durable
	workerIdle  chan struct{} // says that the worker has nothing in hand; holds one token
	removalsDue chan struct{} // wakes the remover; holds one token
	health      health
	stats       stats

	// seam is called at each row of the crash table, with its name. An error is
	// taken for a crash: Run returns it and nothing more is written. Tests only.
	seam       func(name string) error
	stateBytes int64 // maxStateBytes, unless a test lowers it
}

// stats are counters since the start.
type stats struct {
	appendsWon, appendsLost, questions atomic.Int64
}

// Stats is what a materializer has counted since it started.
type Stats struct {
	AppendsWon  int64 // appends that EVENTS took
	AppendsLost int64 // appends refused since another materializer was first
	Questions   int64 // appends whose answer was lost or was another refusal
}

// New returns a materializer over the streams and the store. It reads and
// starts nothing. It panics if an option is missing.
func New(o Options) (*Materializer, error) {
	if o.Conn == nil || o.JS == nil || o.Store == nil || o.Streams.Ingest == nil || o.Streams.Events == nil || o.Subjects.Prefix() == "" {
		panic("materializer.New: an option is missing")
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Materializer{
		o:           o,
		log:         log,
		reader:      o.Store.Reader(),
		epoch:       []string{o.Streams.Epoch},
		workerIdle:  make(chan struct{}, 1),
		removalsDue: make(chan struct{}, 1),
		seam:        func(string) error { return nil },
		stateBytes:  maxStateBytes,
	}
	m.committed.init()
	m.health.init()
	return m, nil
}

// Stats returns the counters. Safe for concurrent use.
func (m *Materializer) Stats() Stats {
	return Stats{
		AppendsWon:  m.stats.appendsWon.Load(),
		AppendsLost: m.stats.appendsLost.Load(),
		Questions:   m.stats.questions.Load(),
	}
}

// Run materializes until ctx ends, then finishes the batch at hand, commits it
// and returns nil. An unwritable store, an unreachable server or a refusing
// EVENTS never end it: reading pauses, and it tries again with backoff. It
// returns an error only if going on would break a promise; then nothing runs
// any more. It can be called once.
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
	if err := m.verifyStart(ctx, pos); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	in := newIntake()
	units := make(chan *unit, maxUnitsInFlight)
	g.Go(func() error { return m.read(gctx, pos.IngestSeq, in) })
	g.Go(func() error { defer close(units); return m.newWorker(pos, in, units).run(gctx) })
	g.Go(func() error { return m.commitLoop(ctx, gctx, units) })
	g.Go(func() error { return m.removeLoop(gctx) })
	g.Go(func() error { return m.watch(gctx) })
	err = g.Wait()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
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
