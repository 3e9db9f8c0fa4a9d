package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher/outbox"
)

// Publisher sends what happens in any number of sessions over one connection.
// Make one with [New], run it once with [Publisher.Run]. It is safe for
// concurrent use.
type Publisher struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	o        Options
	subjects bus.Subjects
	id       string // of this start
	opened   atomic.Uint64
	budget   budget
	box      *outbox.Box  // nil without an outbox
	kept     atomic.Int64 // bytes of stored messages that can be sent again
	pageMost atomic.Int64 // bytes of a page, once INGEST has refused a larger one; 0 before

	slots   chan struct{} // a token for each message in flight
	asking  chan struct{} // a token for each question under way
	hints   chan *nats.Msg
	fresh   chan struct{} // says that a session waits to be started; holds one token
	started chan struct{} // closed when Run has opened what the outbox holds
	closing chan struct{} // closed when nothing more is accepted
	flushed chan struct{} // closed when Run may end
	ended   chan struct{} // closed when Run has ended

	mu        sync.Mutex
	running   bool
	sessions  map[bus.Key]*Session
	found     map[bus.Key]*left   // in the outbox, of sessions that are not open
	ready     []*Session          // opened, and their loops are not started
	bySubject map[string]*Session // by the subject of hints
	noted     map[error]time.Time // when a trouble was logged, by its kind
	closeOnce sync.Once
	flushOnce sync.Once
}

// New returns a publisher on nc, which stays the caller's and must outlive it. It
// sends and starts nothing; with an outbox it has to be closed, or run to its end.
// The error names the option that can not be used, or says why the outbox can not be
// opened: another process has it, or it is damaged. A missing connection panics.
//
// With an outbox nc may be one that was never connected, as nats.Connect gives it with
// nats.RetryOnFailedConnect.
func New(nc *nats.Conn, o Options) (*Publisher, error) {
	if nc == nil {
		panic("publisher.New: the connection is missing")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	subjects, err := bus.NewSubjects(o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("publisher options: %w", err)
	}
	// The bound of what is pending is that of the slots; what was given up
	// counts there until it has timed out.
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<20), jetstream.WithPublishAsyncTimeout(o.AckTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	p := &Publisher{
		nc: nc, js: js, o: o, subjects: subjects, id: bus.NewID(),
		budget:    budget{maxMessages: o.MaxPendingMessages, maxBytes: o.MaxPendingBytes},
		slots:     make(chan struct{}, maxInFlight),
		asking:    make(chan struct{}, maxAsking),
		hints:     make(chan *nats.Msg, hintBuffer),
		fresh:     make(chan struct{}, 1),
		started:   make(chan struct{}),
		closing:   make(chan struct{}),
		flushed:   make(chan struct{}),
		ended:     make(chan struct{}),
		sessions:  make(map[bus.Key]*Session),
		bySubject: make(map[string]*Session),
		noted:     make(map[error]time.Time),
		found:     make(map[bus.Key]*left),
	}
	if o.Outbox == "" {
		return p, nil
	}
	if p.box, err = outbox.Open(o.Outbox, outbox.Options{Logger: o.Logger}); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	for _, s := range p.box.Sessions() {
		p.found[s.Key] = &left{Session: s, err: stopped(&s, o.Outbox)}
	}
	return p, nil
}

// Run sends until ctx ends or [Publisher.Close] is called, and returns when
// nothing runs any more. When ctx ends, nothing more is accepted, and what was
// accepted is still sent for Options.StopTimeout. The error is nil if all of it
// is stored, else an *[UnconfirmedError]; a connection that is closed under it
// ends Run, too, with an error that is ErrClosed. It can be called once.
func (p *Publisher) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.running {
		p.mu.Unlock()
		return ErrRunning
	}
	p.running = true
	p.mu.Unlock()
	defer close(p.ended)
	// Not ended with ctx: what was accepted is still sent.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	changed := p.nc.StatusChanged(nats.CLOSED, nats.CONNECTED)
	defer p.nc.RemoveStatusListener(changed)
	var wg sync.WaitGroup
	wg.Go(func() { p.listen(inner) })
	if p.box != nil {
		wg.Go(func() { p.tend(inner) })
	}
	wake(p.fresh)
	err := p.resume(ctx)
	close(p.started)
	if err == nil {
		err = p.serve(ctx, inner, changed, &wg)
	}
	p.refuse()
	cancel()
	wg.Wait()
	p.js.CleanupPublisher()
	return errors.Join(err, p.stopAll(), p.unconfirmed())
}

// Started is closed when Run has begun, and has opened the sessions of which the outbox
// holds something: a Close that comes earlier does not wait for them.
func (p *Publisher) Started() <-chan struct{} { return p.started }

// stopAll ends all sessions and gives the outbox up.
func (p *Publisher) stopAll() error {
	for _, s := range p.all() {
		s.stop(ErrClosed)
	}
	if p.box == nil {
		return nil
	}
	if err := p.box.Close(); err != nil {
		return fmt.Errorf("close outbox: %w", err)
	}
	return nil
}

// serve starts sessions as they are opened, until Run has to end.
func (p *Publisher) serve(ctx, inner context.Context, changed <-chan nats.Status, wg *sync.WaitGroup) error {
	done := ctx.Done()
	for {
		if p.nc.IsClosed() {
			return fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionClosed)
		}
		select {
		case <-p.fresh:
			p.mu.Lock()
			ready := p.ready
			p.ready = nil
			p.mu.Unlock()
			for _, s := range ready {
				wg.Go(func() { s.run(inner) })
			}
		case <-changed:
			// What is not materialized may have to be sent again.
			for _, s := range p.all() {
				wake(s.wake)
			}
		case <-p.flushed:
			return nil
		case <-done:
			done = nil
			wg.Go(func() {
				flush, cancel := context.WithTimeoutCause(inner, p.o.StopTimeout, errors.New("publisher's stop time-out"))
				defer cancel()
				p.flush(flush)
			})
		}
	}
}

// Close accepts nothing more, waits until all that was accepted is stored or ctx
// ends, ends Run and waits for that. The error is nil if all of it is stored,
// else an *[UnconfirmedError]. What is stored and not yet materialized is
// INGEST's to keep and is not listed. With an outbox it waits until all is
// materialized, and what is not is listed and goes on when the outbox is opened again; so is
// what the outbox holds of sessions that are not open, for which it does not wait. It may be
// called more than once, and without Run. It does not close the connection.
func (p *Publisher) Close(ctx context.Context) error {
	if p.isRunning() {
		p.flush(ctx)
		<-p.ended
		return p.unconfirmed()
	}
	p.refuse()
	p.flushOnce.Do(func() { close(p.flushed) }) // a Run that comes now ends at once
	return errors.Join(p.stopAll(), p.unconfirmed())
}

// flush waits until everything is stored or ctx ends, and lets Run end.
func (p *Publisher) flush(ctx context.Context) {
	p.refuse()
	for _, s := range p.all() {
		// The first that has to give up has used up the time of all.
		if s.drain(ctx) != nil {
			break
		}
	}
	p.flushOnce.Do(func() { close(p.flushed) })
}

// isRunning reports whether Run was called.
func (p *Publisher) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func (p *Publisher) refuse() { p.closeOnce.Do(func() { close(p.closing) }) }

// all returns the sessions that are open.
func (p *Publisher) all() []*Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allLocked()
}

func (p *Publisher) allLocked() []*Session {
	out := make([]*Session, 0, len(p.sessions))
	for _, s := range p.sessions {
		out = append(out, s)
	}
	return out
}

// unconfirmed returns an *UnconfirmedError, nil if all is stored.
func (p *Publisher) unconfirmed() error {
	var e UnconfirmedError
	p.mu.Lock()
	open := p.allLocked()
	for k, l := range p.found {
		// One that has ended and was not closed is in both, and says it itself.
		if p.sessions[k] == nil && len(l.Entries) > 0 {
			e.Sessions = append(e.Sessions, l.unconfirmed())
		}
	}
	p.mu.Unlock()
	for _, s := range open {
		if u := s.unconfirmed(); u.Messages > 0 {
			e.Sessions = append(e.Sessions, u)
		}
	}
	if len(e.Sessions) == 0 {
		return nil
	}
	return &e
}

// note logs a trouble, at most one of a kind in noteEvery: all sessions of a
// connection have the same.
func (p *Publisher) note(ctx context.Context, k bus.Key, err error) {
	var kind error // nil: none of these
	for _, known := range []error{ErrDisconnected, ErrFull, ErrNoService, ErrNoStream, ErrNotPermitted, ErrRefused, ErrTimeout} {
		if errors.Is(err, known) {
			kind = known
			break
		}
	}
	p.mu.Lock()
	now := time.Now()
	last, ok := p.noted[kind]
	quiet := ok && now.Sub(last) < noteEvery
	if !quiet {
		p.noted[kind] = now
	}
	p.mu.Unlock()
	if !quiet {
		p.o.Logger.WarnContext(ctx, "publisher has to try again", slog.String("workspace", k.Workspace), slog.String("session", k.Session), slog.Any("err", err))
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
