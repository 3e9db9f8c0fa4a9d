package publisher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// Session opens a session and asks the bus where its chain stands, so that a
// worker that was started again goes on there. For that it publishes a message
// that saves nothing and waits until a materializer has come to it: what an
// earlier start got acknowledged counts, also if it is not materialized yet. It
// tries until that works or ctx ends; the error then holds ctx's cause and that
// of the latest attempt.
//
// A session is opened by one publisher at a time; the same one refuses with
// ErrOpen. One that was forgotten is ErrForgotten. [Session.Close] it when no more
// will happen in it.
//
// With an outbox, or Options.Unplaced, it returns at once, whether there is a
// connection or not. A session of which the outbox has something goes on with that.
// One that was found to be used by someone else, too, is ErrForked, and ErrConflict
// if a count has shown it: its messages stay in the outbox, and nothing is sent any
// more until someone has decided about them and taken the directory away. Of one that
// Run has opened by itself, and that has ended since, the error says why, once: the next
// call opens it anew, as after Close.
func (p *Publisher) Session(ctx context.Context, key bus.Key) (*Session, error) {
	if err := key.Check(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	if p.box != nil || p.o.Unplaced {
		s, err := p.openLater(key, true)
		if err != nil {
			return nil, fmt.Errorf("open session: %w", err)
		}
		return s, nil
	}
	s := p.session(key)
	if err := p.add(s); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		select {
		case <-p.closing:
			cancel(ErrClosed)
		case <-done:
		}
	})
	if err := s.begin(ctx); err != nil {
		s.stop(err)
		p.remove(s)
		return nil, fmt.Errorf("open session: %w", err)
	}
	p.start(s)
	return s, nil
}

// session makes a session that is not open.
func (p *Publisher) session(key bus.Key) *Session {
	return &Session{
		p: p, box: p.box, key: key,
		// Counts start from 1 with each opening, so its id is new, too.
		id:   p.id + "-" + strconv.FormatUint(p.opened.Add(1), 10),
		wake: make(chan struct{}, 1), closed: make(chan struct{}), place: make(chan struct{}), askWait: hintPatience,
	}
}

// start has Run start the session's loop.
func (p *Publisher) start(s *Session) {
	p.mu.Lock()
	p.ready = append(p.ready, s)
	p.mu.Unlock()
	wake(p.fresh)
}

// openLater opens a session without asking the bus. adopt says that a caller does, who
// then also gets one that the outbox has opened by itself.
func (p *Publisher) openLater(key bus.Key, adopt bool) (*Session, error) {
	p.mu.Lock()
	s, found := p.sessions[key], p.found[key]
	if s != nil {
		mine := adopt && !s.adopted
		s.adopted = s.adopted || adopt
		p.mu.Unlock()
		if !mine {
			return nil, ErrOpen
		}
		s.mu.Lock()
		err := s.err
		s.mu.Unlock()
		if err != nil {
			// Nobody gets it, so nobody can close it: the next call opens it anew.
			p.remove(s)
			return nil, err
		}
		return s, nil
	}
	p.mu.Unlock()
	if found != nil {
		if err := stopped(&found.Session, p.o.Outbox); err != nil {
			return nil, err
		}
	}
	s = p.session(key)
	s.open, s.adopted = true, adopt
	if found != nil {
		s.restore(&found.Session)
	}
	err := p.add(s)
	if err == nil {
		p.start(s)
		return s, nil
	}
	p.budget.release(costOf(s.waiting.items))
	if adopt && errors.Is(err, ErrOpen) {
		return p.openLater(key, adopt) // Run may have opened it meanwhile
	}
	return nil, err
}

// add registers the session and subscribes to its hints.
func (p *Publisher) add(s *Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closing:
		return ErrClosed
	default:
	}
	if p.sessions[s.key] != nil {
		return ErrOpen
	}
	subject := p.subjects.Done(s.key)
	before := p.nc.LastError()
	sub, err := p.nc.ChanSubscribe(subject, p.hints)
	if err != nil {
		return p.explain("subscribe to hints", subject, err, before)
	}
	s.sub = sub
	delete(p.found, s.key)
	p.sessions[s.key] = s
	p.bySubject[subject] = s
	return nil
}

func (p *Publisher) remove(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.key] == s {
		delete(p.sessions, s.key)
		delete(p.bySubject, p.subjects.Done(s.key))
	}
}

// begin publishes the fence and learns the position behind it.
func (s *Session) begin(ctx context.Context) error {
	s.count = 1
	m := nats.Msg{Subject: s.p.subjects.Ingest(s.key, bus.ClassSession), Header: identity(s.id, 1), Data: []byte(fence)}
	var b backoff
	var seq uint64
	for {
		var err error
		if seq, err = s.p.publish(ctx, m, nil); err == nil {
			break
		}
		if err := s.openAgain(ctx, err, b.next()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.lastSeq, s.trouble = seq, nil
	s.mu.Unlock()
	b.reset()
	s.awaitHint(ctx, seq, hintPatience/4)
	for {
		at, err := s.p.position(ctx, s.key)
		if err == nil && at.ingest >= seq {
			s.mu.Lock()
			s.placeLocked(at.chain)
			s.open, s.trouble = true, nil
			s.mu.Unlock()
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: the materializer is at INGEST %d, this session at %d", bus.ErrUnavailable, at.ingest, seq)
		}
		if err := s.openAgain(ctx, err, b.next()); err != nil {
			return err
		}
	}
}

// openAgain waits before another try, if one may help.
func (s *Session) openAgain(ctx context.Context, err error, d time.Duration) error {
	if final(err) {
		return err
	}
	if ctx.Err() == nil {
		s.mu.Lock()
		s.trouble = err
		s.mu.Unlock()
		s.p.note(ctx, s.key, err)
		if pause(ctx, d) {
			return nil
		}
	}
	return s.because(context.Cause(ctx))
}

// awaitHint waits until a hint says that the materializer has passed seq, for d
// at most: without Run nobody hears hints.
func (s *Session) awaitHint(ctx context.Context, seq uint64, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		s.mu.Lock()
		heard := s.heard
		s.mu.Unlock()
		if heard >= seq {
			return
		}
		select {
		case <-s.wake:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pause waits for d; it returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
