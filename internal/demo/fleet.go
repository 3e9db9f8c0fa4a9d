package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

const (
	// DefaultSessions and DefaultRate are as much as a person can follow.
	DefaultSessions = 9
	DefaultRate     = 8.0
	// DefaultDowntime is how long nobody does a dead worker's work.
	DefaultDowntime = 2 * time.Second

	startTimeout = 30 * time.Second
	stopTimeout  = 8 * time.Second
)

var (
	errStart = errors.New("the bus has not answered within 30s")
	errStop  = errors.New("the bus has not confirmed everything within 8s")
)

// Options say what to play, and where.
type Options struct {
	// Dial connects to the bus's server under a name. Each worker has a
	// connection of its own, which Run closes. Required.
	Dial func(ctx context.Context, name string) (*nats.Conn, error)
	// Subjects are those of the bus. Required.
	Subjects bus.Subjects

	// Downtime is how long nobody does a dead worker's work. Defaults to
	// DefaultDowntime.
	Downtime time.Duration
	// Fact is called with each fact of the story's sessions as it gets its number,
	// in order. An error ends the story. Nil is not called.
	Fact func(bus.Event) error
	// For is how long to play. 0 is until ctx ends.
	For time.Duration
	// Logger takes what went wrong and is being mended. Nil discards.
	Logger *slog.Logger
	// Note is called with what happens to workers, one line. Calls may overlap
	// those of Fact. Nil is not called.
	Note func(string)
	// Rate is how many messages a second the fleet says in the mean. Defaults to
	// DefaultRate.
	Rate float64
	// Seed chooses the story.
	Seed uint64
	// Sessions is how many sessions the fleet has, 1 to MaxSessions. Defaults to
	// DefaultSessions.
	Sessions int
	// Steps ends the story after so many steps. 0 is no bound.
	Steps int
}

func (o Options) withDefaults() Options {
	if o.Downtime == 0 {
		o.Downtime = DefaultDowntime
	}
	if o.Fact == nil {
		o.Fact = func(bus.Event) error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Sessions == 0 {
		o.Sessions = DefaultSessions
	}
	return o
}

// maxRate is above what a story's sessions can say with one message of each in flight.
const maxRate = 100_000

// Check returns the *[bus.InvalidError] with which Run would refuse what o says, nil
// if it says nothing wrong.
func (o Options) Check() error {
	o = o.withDefaults()
	refuse := func(field, rule string, args ...any) error {
		return &bus.InvalidError{Field: field, Rule: fmt.Sprintf(rule, args...)}
	}
	switch {
	case !(o.Rate > 0 && o.Rate <= maxRate):
		return refuse("rate", "must be above 0 and at most %d, not %v", maxRate, o.Rate)
	case o.For < 0:
		return refuse("for", "must not be negative")
	case o.Downtime < 0:
		return refuse("downtime", "must not be negative")
	case o.Steps < 0:
		return refuse("steps", "must not be negative")
	}
	return checkSessions(o.Sessions)
}

// Summary is what a story came to.
type Summary struct {
	Took     time.Duration
	Said     int            // messages, a relay event being one
	Facts    map[string]int // by type
	Missing  map[string]int // by type: what should have come less what came; empty if all is well
	First    uint64         // the number of the first fact; 0 if there is none
	Last     uint64
	Killed   int       // workers
	Again    int       // observations that were sent again after that
	Resumed  int       // sessions that the bus knew from an earlier story; theirs are not in Missing
	Sessions []Session // of the story
}

// fleet is a story that is being played.
type fleet struct {
	o     Options
	story *Story

	mu       sync.Mutex
	sum      Summary
	expected map[bus.Key]map[string]int
	resumed  map[bus.Key]bool
}

// Run plays a story until its time is over or ctx ends, waits until what was said
// has come as facts, and returns what it came to. The end of ctx is no error.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.Dial == nil || o.Subjects.Prefix() == "" {
		panic("demo.Run: an option is missing")
	}
	if err := o.Check(); err != nil {
		return Summary{}, err
	}
	o = o.withDefaults()
	story, err := NewStory(o.Seed, o.Sessions)
	if err != nil {
		return Summary{}, err
	}
	natural, err := pace(o.Seed, o.Sessions)
	if err != nil {
		return Summary{}, err
	}
	f := &fleet{o: o, story: story, expected: map[bus.Key]map[string]int{}, resumed: map[bus.Key]bool{}}
	f.sum.Sessions = story.Sessions()
	for _, s := range f.sum.Sessions {
		f.expected[s.Key] = map[string]int{}
	}
	return f.run(ctx, o.Rate/natural)
}

// run starts the reader, then the workers, and plays at a speed: how much of the
// story's time passes in a second.
func (f *fleet) run(ctx context.Context, speed float64) (Summary, error) {
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r, err := f.newReader(ctx, stop)
	if err != nil {
		return Summary{}, err
	}
	workers, err := f.start(playing)
	if err != nil {
		r.close()
		return Summary{}, err
	}
	started := time.Now()
	var wg sync.WaitGroup
	inbox := map[string]chan Step{}
	errs := make([]error, len(workers))
	for i, w := range workers {
		steps := make(chan Step, 64)
		inbox[w.id] = steps
		wg.Go(func() {
			if errs[i] = w.run(playing, steps); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	f.play(playing, inbox, started, speed)
	for _, c := range inbox {
		close(c)
	}
	wg.Wait()
	if errors.Join(errs...) == nil {
		errs = append(errs, r.finish(ctx))
	}
	r.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum.Took = time.Since(started)
	f.sum.Resumed = len(f.resumed)
	f.sum.Missing = f.missingLocked(r.seen)
	return f.sum, errors.Join(errs...)
}

// start starts a worker for each workspace.
func (f *fleet) start(ctx context.Context) ([]*worker, error) {
	var workers []*worker
	for _, id := range f.story.Workers() {
		w := &worker{id: id, f: f, live: map[bus.Key]*live{}}
		for _, s := range f.sum.Sessions {
			if s.Key.Workspace == id {
				w.keys = append(w.keys, s.Key)
			}
		}
		err := w.start(ctx)
		if err != nil {
			for _, w := range workers {
				w.die()
			}
			return nil, err
		}
		workers = append(workers, w)
	}
	return workers, nil
}

// play hands each step to its worker when its time has come.
func (f *fleet) play(ctx context.Context, inbox map[string]chan Step, started time.Time, speed float64) {
	if f.o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, started.Add(f.o.For))
		defer cancel()
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for n := 0; f.o.Steps == 0 || n < f.o.Steps; n++ {
		step := f.story.Next()
		at := started.Add(time.Duration(float64(step.At) / speed))
		if d := time.Until(at); d > 0 {
			t.Reset(d)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
		select {
		case inbox[step.Worker] <- step:
		case <-ctx.Done():
			return
		}
	}
}

// said counts a step that a publisher has accepted.
func (f *fleet) said(step Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum.Said++
	for _, typ := range step.Gives {
		f.expected[step.Key][typ]++
	}
}

// known marks a session that an earlier story has left something in.
func (f *fleet) known(k bus.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resumed[k] = true
}

func (f *fleet) replaced(again int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum.Killed++
	f.sum.Again += again
}

func (f *fleet) note(format string, args ...any) { f.o.Note(fmt.Sprintf(format, args...)) }

// missingLocked compares what should have come with what came.
func (f *fleet) missingLocked(seen map[bus.Key]map[string]int) map[string]int {
	missing := map[string]int{}
	for k, want := range f.expected {
		if f.resumed[k] {
			continue
		}
		for typ, n := range want {
			missing[typ] += n
		}
		for typ, n := range seen[k] {
			missing[typ] -= n
		}
	}
	for typ, n := range missing {
		if n == 0 {
			delete(missing, typ)
		}
	}
	return missing
}
