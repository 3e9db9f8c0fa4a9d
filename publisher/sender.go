package publisher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
)

// run sends the session's messages, one at a time, until the session or ctx ends.
func (s *Session) run(ctx context.Context) {
	var questions sync.WaitGroup
	defer questions.Wait()
	for ctx.Err() == nil {
		m, ask, wait, ok := s.next(time.Now())
		if ask {
			// Beside the sending, which must not wait for a service.
			questions.Go(func() { s.ask(ctx) })
		}
		switch {
		case !ok:
			s.sayEnded(ctx)
			return
		case m != nil:
			s.attempt(ctx, m)
		case !s.rest(ctx, wait):
			return
		}
	}
}

// sayEnded logs why the session has ended, unless it was closed.
func (s *Session) sayEnded(ctx context.Context) {
	if err := s.Err(); !errors.Is(err, ErrClosed) {
		s.p.o.Logger.ErrorContext(ctx, "session has ended", slog.String("workspace", s.key.Workspace), slog.String("session", s.key.Session), slog.Any("err", err))
	}
}

// rest waits until there is something to do: for wait at most, if it is positive.
func (s *Session) rest(ctx context.Context, wait time.Duration) bool {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-s.wake:
	case <-due:
	case <-ctx.Done():
		return false
	}
	return true
}

// next says what to do: send m, ask what became of what is stored, or wait, for
// ever if wait is 0. ok is false when the session has ended.
func (s *Session) next(now time.Time) (m *message, ask bool, wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, false, 0, false
	}
	if d := s.retryAt.Sub(now); d > 0 {
		wait = d
	} else {
		m = s.chooseLocked()
	}
	if !s.askAt.IsZero() && !s.isAsking {
		if d := s.askAt.Sub(now); d <= 0 {
			s.isAsking, ask = true, true
		} else if wait == 0 || d < wait {
			wait = d
		}
	}
	return m, ask, wait, true
}

// chooseLocked returns the message to send now, nil if there is none: the one that
// is tried again, then what INGEST has lost, then what waits.
func (s *Session) chooseLocked() *message {
	if s.sending != nil && s.sending.settled {
		s.sending = nil // a hint was faster than the acknowledgement
	}
	if s.sending != nil {
		return s.sending
	}
	if s.again > 0 {
		for _, m := range s.sent {
			if m.again {
				s.sending = m
				return m
			}
		}
	}
	if len(s.waiting.items) == 0 {
		return nil
	}
	n, size := s.waiting.page(s.pageLimit())
	items := s.waiting.take(n)
	if class := items[0].class; class == bus.ClassProjection {
		s.sending = newPage(s.p.subjects.Ingest(s.key, class), items, size)
	} else {
		s.count++
		s.sending = newCounted(s.p.subjects.Ingest(s.key, class), s.id, s.count, items[0])
		items[0].receipt.count = s.count
	}
	s.sent = append(s.sent, s.sending)
	return s.sending
}

// pageLimit is the most bytes of a page with more than one event.
func (s *Session) pageLimit() int {
	most := s.p.limit()
	if learned := int(s.p.pageMost.Load()); learned > 0 {
		most = min(most, learned)
	}
	return most
}

// attempt sends m once and notes what came of it.
func (s *Session) attempt(ctx context.Context, m *message) {
	seq, err := s.p.publish(ctx, m.msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if m.settled {
		s.workedLocked()
		return
	}
	switch {
	case err == nil:
		s.sending = nil
		s.workedLocked()
		s.storedLocked(m, seq)
	case ctx.Err() != nil:
		m.unsure = true
	case errors.Is(err, ErrTooLarge):
		s.sending = nil
		s.workedLocked()
		s.tooLargeLocked(m, err)
	case errors.Is(err, ErrClosed):
		s.endLocked(err)
	default:
		m.unsure = m.unsure || errors.Is(err, ErrTimeout) || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrNotPermitted)
		s.trouble = err
		s.retryAt = time.Now().Add(s.backoff.next())
		s.p.note(ctx, s.key, err)
	}
}

func (s *Session) workedLocked() {
	s.trouble = nil
	s.retryAt = time.Time{}
	s.backoff.reset()
}

// tooLargeLocked deals with a message that INGEST will not take. A page is taken
// apart; INGEST's bound is not known beforehand, since workers need no permission
// to read the stream's settings. An event too large by itself ends the session: what
// follows is chained to it.
func (s *Session) tooLargeLocked(m *message, err error) {
	switch {
	case m.page() && len(m.items) > 1:
		s.p.pageMost.Store(int64(len(m.msg.Data) / 2))
		s.dropLocked(m)
		s.waiting.unshift(m.items)
	case m.page():
		s.endLocked(err)
	default:
		if m.count == s.count && !m.unsure && !m.stored {
			s.count-- // it was never stored, so it is free
		}
		if s.refused == nil {
			s.refused = err
		}
		s.failLocked(m, err)
	}
}

// storedLocked notes that INGEST has acknowledged m.
func (s *Session) storedLocked(m *message, seq uint64) {
	first := !m.stored
	anew := seq <= s.lastSeq
	m.seq, m.stored = seq, true
	s.lastSeq = seq
	for _, r := range m.receipts {
		r.seq, r.stored = seq, true
		r.changedLocked()
	}
	if first {
		s.p.kept.Add(m.weight())
		s.unpendLocked(m)
	}
	if m.again {
		m.again = false
		s.again--
	}
	if s.askAt.IsZero() {
		s.askAt = time.Now().Add(hintPatience)
	}
	if m.page() && m.last.Ordinal <= s.applied.Ordinal {
		s.settleLocked(m)
	}
	if anew {
		// INGEST was rolled back or made anew: what it had before may be gone.
		for _, m := range s.sent {
			if m.seq > seq {
				s.markLocked(m)
			}
		}
	}
	early := s.early
	s.early = nil
	for i := range early {
		if early[i].IngestSeq == seq && !m.settled && s.err == nil {
			s.judgeLocked(m, verdict{outcome: early[i].Outcome, reason: early[i].Reason, seq: seq})
		}
	}
	s.loosenLocked()
	s.idleLocked()
}

// unpendLocked gives back the room of m's items, which are stored or never will be.
func (s *Session) unpendLocked(m *message) {
	s.unstored -= len(m.items)
	s.p.budget.release(costOf(m.items))
	m.items = nil
}
