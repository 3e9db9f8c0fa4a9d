package publisher

import (
	"context"
	"errors"
	"fmt"
)

// Flush waits until all that was accepted before the call is stored. The error is
// the first since the last Flush for which a message can not be stored, the reason
// why the session has ended, or, when ctx ends before, its cause and that of the
// latest attempt.
func (s *Session) Flush(ctx context.Context) error {
	s.mu.Lock()
	before := s.unstoredLocked()
	s.mu.Unlock()
	for _, r := range before {
		if err := r.wait(ctx, func() (bool, error) { return r.stored || r.err != nil, nil }); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refused
	s.refused = nil
	if err == nil && (s.remainder.Messages > 0 || !errors.Is(s.err, ErrClosed)) {
		err = s.err
	}
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// unstoredLocked returns the receipts of what is not stored. The last one does not stand
// for all: the outbox may fail to keep it, and the chain may pass it, while what was
// accepted before it still waits.
func (s *Session) unstoredLocked() []*Receipt {
	var out []*Receipt
	for _, m := range s.sent {
		if !m.stored {
			out = append(out, m.receipts...)
		}
	}
	for i := range s.waiting.items {
		out = append(out, s.waiting.items[i].receipt)
	}
	return out
}

// Err returns nil while all goes well, why the latest attempt to send has failed
// while it is tried again, or why the session has ended.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.trouble
}

// Close accepts nothing more for this session, waits until what was accepted is
// stored, with an outbox materialized, or ctx ends, and forgets the session, which
// can then be opened again. What is not is in an *[UnconfirmedError]; the outbox
// keeps it, and it is sent when the session or the outbox is opened again. Receipts of what is stored and
// not yet materialized end with ErrClosed. It may be called more than once.
func (s *Session) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.closed) })
	// Without Run nobody sends: there is nothing to wait for.
	if s.p.isRunning() {
		_ = s.drain(ctx) // what it says is in the remainder
	}
	s.stop(ErrClosed)
	s.p.remove(s)
	if u := s.unconfirmed(); u.Messages > 0 {
		return &UnconfirmedError{Sessions: []Unconfirmed{u}}
	}
	return nil
}

// drain waits until everything is stored, or the session has ended.
func (s *Session) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.err != nil || s.quietLocked() {
			s.mu.Unlock()
			return nil
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		select {
		case <-idle:
		case <-s.p.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// quietLocked reports whether all is stored; with an outbox, whether nothing is in it.
func (s *Session) quietLocked() bool {
	if s.box != nil {
		return len(s.sent) == 0 && len(s.waiting.items) == 0
	}
	return s.unstored == 0 && s.again == 0
}

// idleLocked tells those who wait in drain.
func (s *Session) idleLocked() {
	if s.idle != nil && (s.err != nil || s.quietLocked()) {
		close(s.idle)
		s.idle = nil
	}
}

// because adds to cause, for which a call gives up, what the session is up against.
func (s *Session) because(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.trouble != nil:
		return fmt.Errorf("%w: latest attempt: %w", cause, s.trouble)
	case s.askErr != nil:
		return fmt.Errorf("%w: latest question: %w", cause, s.askErr)
	}
	return cause
}

// unconfirmed returns what is not stored, which after the session's end is what it
// was then.
func (s *Session) unconfirmed() Unconfirmed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.remainder
	}
	return s.unconfirmedLocked()
}

func (s *Session) unconfirmedLocked() Unconfirmed {
	u := Unconfirmed{Key: s.key, Err: s.trouble, Kept: s.box != nil}
	for _, m := range s.sent {
		if m.stored && !m.again && s.box == nil {
			continue
		}
		for _, r := range m.receipts {
			u.add(r.ordinal)
		}
	}
	for i := range s.waiting.items {
		u.add(s.waiting.items[i].receipt.ordinal)
	}
	return u
}

// stop ends the session, see endLocked.
func (s *Session) stop(err error) {
	s.mu.Lock()
	s.endLocked(err)
	s.mu.Unlock()
	wake(s.wake)
}

// endLocked ends the session with err, for which all that is open fails. Only the
// first call counts.
func (s *Session) endLocked(err error) {
	if s.err != nil {
		return
	}
	if s.box != nil {
		// So that it is known what has been kept and what has not.
		_ = s.batch.Wait() // whose error is Failed
		s.undoLocked()
	}
	s.remainder = s.unconfirmedLocked()
	if s.box != nil && errors.Is(err, ErrForgotten) {
		s.remainder = Unconfirmed{Key: s.key} // all of it is final, and told
	}
	if s.remainder.Err == nil {
		s.remainder.Err = err
	}
	s.err = err
	waiting := s.waiting.take(len(s.waiting.items))
	var items []item
	for _, m := range s.sent {
		items = append(items, m.items...)
		m.settled = true
		if m.stored {
			s.p.kept.Add(-m.weight())
		}
		for _, r := range m.receipts {
			r.err = err
			r.changedLocked()
		}
	}
	items = append(items, waiting...)
	for i := range items {
		items[i].receipt.err = err
		items[i].receipt.changedLocked()
	}
	s.p.budget.release(costOf(items))
	if s.box != nil {
		s.leaveLocked(err, items)
	}
	if !s.placed {
		close(s.place) // whoever waits looks at err
		s.placed = true
	}
	s.sent, s.sending, s.early = nil, nil, nil
	s.unstored, s.again = 0, 0
	s.idleLocked()
	// An error means that the connection is closed, and the subscription with it.
	_ = s.sub.Unsubscribe()
}
