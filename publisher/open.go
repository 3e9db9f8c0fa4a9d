package publisher

import (
	"context"
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
func (p *Publisher) Session(ctx context.Context, key bus.Key) (*Session, error) {
	if err := key.Check(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	s := &Session{
		p: p, key: key,
		// Counts start from 1 with each opening, so its id is new, too.
		id:   p.id + "-" + strconv.FormatUint(p.opened.Add(1), 10),
		wake: make(chan struct{}, 1), closed: make(chan struct{}), askWait: hintPatience,
	}
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
	p.mu.Lock()
	p.ready = append(p.ready, s)
	p.mu.Unlock()
	wake(p.fresh)
	return s, nil
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
	sub, err := p.nc.ChanSubscribe(subject, p.hints)
	if err != nil {
		return p.explain("subscribe to hints", subject, err)
	}
	s.sub = sub
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
		if seq, err = s.p.publish(ctx, m); err == nil {
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
			s.start, s.end, s.applied, s.trouble = at.chain, at.chain, at.chain, nil
			s.open = true
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
