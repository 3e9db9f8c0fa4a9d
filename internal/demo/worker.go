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
	"github.com/skaldbus/skald/publisher"
)

const (
	// kept is how many observations of a session's journal a worker keeps. It is
	// no less than what may wait for INGEST (maxPending), so that what a dead
	// worker had not got stored is there.
	kept       = 2 * maxPending
	maxPending = 1024
)

// worker supervises the sessions of one workspace, as a process of its own would.
type worker struct {
	id   string
	keys []bus.Key
	f    *fleet

	nc    *nats.Conn
	p     *publisher.Publisher
	ended chan error
	live  map[bus.Key]*live
}

// live is one open session.
type live struct {
	s       *publisher.Session
	journal []entry // the last observations; the last one is at ordinal
	ordinal uint64
	now     time.Time          // of what was said last
	last    *publisher.Receipt // of what was said last
	loose   *publisher.Receipt // of the last message without a chain
}

// entry is one observation of a journal, which gives the same digest again.
type entry struct {
	body    string
	command string
	at      time.Time
}

// start connects and opens the worker's sessions, all at once.
func (w *worker) start(ctx context.Context) error {
	nc, err := w.f.o.Dial(ctx, "skald demo worker of "+w.id)
	if err != nil {
		return fmt.Errorf("start worker of %s: %w", w.id, err)
	}
	p, err := publisher.New(nc, publisher.Options{Logger: w.f.o.Logger, MaxPendingMessages: maxPending, Prefix: w.f.o.Subjects.Prefix()})
	if err != nil {
		nc.Close()
		return fmt.Errorf("start worker of %s: %w", w.id, err)
	}
	w.nc, w.p, w.ended = nc, p, make(chan error, 1)
	go func() {
		defer close(w.ended)
		w.ended <- p.Run(context.WithoutCancel(ctx))
	}()
	opened := make([]*publisher.Session, len(w.keys))
	errs := make([]error, len(w.keys))
	var wg sync.WaitGroup
	for i, k := range w.keys {
		wg.Go(func() { opened[i], errs[i] = p.Session(ctx, k) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.die()
		return fmt.Errorf("start worker of %s: %w", w.id, err)
	}
	for i, k := range w.keys {
		if w.live[k] == nil {
			w.live[k] = &live{ordinal: opened[i].Position().Ordinal}
			if w.live[k].ordinal > 0 {
				w.f.known(k)
			}
		}
		w.live[k].s = opened[i]
	}
	return nil
}

// run plays the worker's steps until there are no more, and returns when all is
// stored.
func (w *worker) run(ctx context.Context, steps <-chan Step) error {
	var err error
	for step := range steps {
		if err != nil || ctx.Err() != nil {
			continue // the one who sends must not be left waiting
		}
		if step.Kind == Kill {
			err = w.replace(ctx)
		} else {
			err = w.play(ctx, step)
		}
	}
	if ctx.Err() != nil {
		err = nil // the story has been stopped, and what was said is still sent
	}
	return errors.Join(err, w.stop(ctx))
}

// stop sees that what was said is in the table, as far as that comes in time.
func (w *worker) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, errStop)
	defer cancel()
	var errs []error
	for _, l := range w.live {
		if l.last != nil {
			if _, err := l.last.Materialized(ctx); err != nil {
				errs = append(errs, err)
				break // the others had the same time
			}
		}
	}
	errs = append(errs, w.p.Close(ctx))
	<-w.ended
	w.nc.Close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop worker of %s: %w", w.id, err)
	}
	return nil
}

// play says one step. The facts are expected from the moment in which it is said.
func (w *worker) play(ctx context.Context, step Step) error {
	l := w.live[step.Key]
	// What piled up while nobody did the work comes at once: without a time of its
	// own an activity could equal the one before, and be no fact.
	now := time.Now()
	if next := l.now.Add(time.Millisecond); now.Before(next) {
		now = next
	}
	l.now = now
	var r *publisher.Receipt
	var err error
	switch step.Kind {
	case Observe:
		e := entry{body: step.at(now), command: step.Command, at: now}
		if r, err = l.s.Observe(ctx, []byte(e.body), publisher.ObserveOptions{CommandID: e.command, RecordedAt: e.at}); err == nil {
			l.write(e)
		}
	case Activity:
		r, err = l.s.Activity(ctx, []byte(step.at(now)))
	case Fail:
		r, err = l.s.Error(ctx, step.Body, step.Command)
	case Record:
		r, err = l.s.Save(ctx, step.Record.save())
	}
	if err != nil {
		return fmt.Errorf("play %s/%s at %s: %w", step.Key.Workspace, step.Key.Session, step.At, err)
	}
	l.last = r
	if step.Kind != Observe {
		l.loose = r
	}
	w.f.said(step)
	return nil
}

func (l *live) write(e entry) {
	l.ordinal++
	if l.journal = append(l.journal, e); len(l.journal) > 2*kept {
		l.journal = append([]entry(nil), l.journal[kept:]...)
	}
}

func (r *record) save() publisher.Record {
	set := func(s string) (t publisher.Text) {
		if s != "" {
			t = publisher.Set(s)
		}
		return t
	}
	out := publisher.Record{Title: set(r.Title), State: set(r.State), LastError: set(r.LastError)}
	if r.ClearError {
		out.LastError = publisher.Clear()
	}
	return out
}

// replace kills the worker and starts another one in its place.
func (w *worker) replace(ctx context.Context) error {
	// A message without a chain whose acknowledgement is lost with its worker is
	// in doubt for good: the next worker has other counts. So the story's
	// workers do not die in that moment; real ones that may keep an outbox.
	for _, l := range w.live {
		if l.loose != nil {
			if _, err := l.loose.Stored(ctx); err != nil {
				return fmt.Errorf("kill worker of %s: %w", w.id, err)
			}
		}
	}
	unconfirmed := w.die()
	w.f.note("the worker of %s is killed, with %d messages unconfirmed", w.id, unconfirmed)
	t := time.NewTimer(w.f.o.Downtime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		t.Stop()
	}
	// Also when the story is being stopped: what the dead one had said is sent.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), startTimeout, errStart)
	defer cancel()
	if err := w.start(ctx); err != nil {
		return err
	}
	again := 0
	for k, l := range w.live {
		at := l.s.Position().Ordinal
		if at > l.ordinal || l.ordinal-at > uint64(len(l.journal)) {
			return fmt.Errorf("replace worker of %s: session %s stands at event %d, its journal holds %d of %d", w.id, k.Session, at, len(l.journal), l.ordinal)
		}
		// What was stored before is materialized: the opening has waited for it.
		l.last, l.loose = nil, nil
		missing := l.journal[len(l.journal)-int(l.ordinal-at):]
		for _, e := range missing {
			r, err := l.s.Observe(ctx, []byte(e.body), publisher.ObserveOptions{CommandID: e.command, RecordedAt: e.at})
			if err != nil {
				return fmt.Errorf("replace worker of %s: send the journal of %s: %w", w.id, k.Session, err)
			}
			l.last = r
		}
		again += len(missing)
	}
	w.f.replaced(again)
	w.f.note("another worker takes over %s: the bus knows where each session stands, %d observations had to be sent again", w.id, again)
	return nil
}

// die closes the connection under the worker and returns how much of what it had
// said was not confirmed.
func (w *worker) die() (unconfirmed int) {
	w.nc.Close()
	err := <-w.ended
	var u *publisher.UnconfirmedError
	if errors.As(err, &u) {
		for _, s := range u.Sessions {
			unconfirmed += s.Messages
		}
	}
	w.f.o.Logger.Debug("a worker has died", slog.String("workspace", w.id), slog.Any("err", err))
	return unconfirmed
}
