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
		m, place, ask, wait, ok := s.next(time.Now())
		s.tell()
		if ask {
			// Beside the sending, which must not wait for a service.
			questions.Go(func() { s.ask(ctx) })
		}
		switch {
		case !ok:
			s.sayEnded(ctx)
			return
		case place:
			s.seekPlace(ctx)
		case m != nil:
			s.attempt(ctx, m)
		case !s.rest(ctx, wait):
			return
		}
	}
}

// sayEnded logs why the session has ended, unless it was closed.
func (s *Session) sayEnded(ctx context.Context) {
	s.tell()
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

// next says what to do: send m, ask where the session stands, ask what became of what
// is stored, or wait, for ever if wait is 0. ok is false when the session has ended.
func (s *Session) next(now time.Time) (m *message, place, ask bool, wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, false, false, 0, false
	}
	if d := s.retryAt.Sub(now); d > 0 {
		wait = d
	} else if place = s.needsPlaceLocked() && s.sending == nil; !place {
		m = s.chooseLocked()
	}
	if !s.askAt.IsZero() && !s.isAsking {
		if d := s.askAt.Sub(now); d <= 0 {
			s.isAsking, ask = true, true
		} else if wait == 0 || d < wait {
			wait = d
		}
	}
	return m, place, ask, wait, true
}

// chooseLocked returns the message to send now, nil if there is none: the one that
// is tried again, then what INGEST has lost, then what waits.
func (s *Session) chooseLocked() *message {
	if n := s.p.nc.Stats().Reconnects; s.box != nil && n != s.connects {
		s.connects = n
		s.againLocked()
	}
	if s.sending != nil && s.sending.settled {
		s.sending = nil // a hint was faster than the acknowledgement
	}
	if s.sending != nil {
		return s.sending
	}
	if s.again > 0 || s.aside {
		for _, m := range s.sent {
			if m.again || !m.stored {
				s.sending = m
				return m
			}
		}
		s.aside = false
	}
	if len(s.waiting.items) == 0 {
		return nil
	}
	n, size := s.waiting.page(s.pageLimit())
	if n == 0 {
		return nil
	}
	items := s.waiting.take(n)
	if class := items[0].class; class == bus.ClassProjection {
		s.sending = newPage(s.p.subjects.Ingest(s.key, class), items, size)
	} else {
		count := items[0].count
		if count == 0 && items[0].eventID == "" {
			s.count++
			count = s.count
			items[0].receipt.count = count
		}
		s.sending = newSingle(s.p.subjects.Ingest(s.key, class), s.id, count, items[0])
	}
	s.sent = append(s.sent, s.sending)
	return s.sending
}

// cameBack reports whether the connection was lost and came back since a message was
// chosen: with an outbox another one may come first now, see againLocked.
func (s *Session) cameBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box != nil && s.p.nc.Stats().Reconnects != s.connects
}

// againLocked has all sent again that is not known to be materialized, in its order
// and before anything new: the connection was lost, so the server may have been set
// back to where it does not have it, and messages without a chain would be applied
// in the order in which they come.
func (s *Session) againLocked() {
	s.aside = s.sending != nil
	s.sending = nil
	for _, m := range s.sent {
		s.markLocked(m)
	}
}

// pageLimit is the most bytes of a page with more than one event.
func (s *Session) pageLimit() int {
	most := s.p.MaxBody()
	if learned := int(s.p.pageMost.Load()); learned > 0 {
		most = min(most, learned)
	}
	return most
}

// attempt sends m once and notes what came of it.
func (s *Session) attempt(ctx context.Context, m *message) {
	if s.mustAsk(m) && !s.askBefore(ctx, m) {
		return
	}
	seq, err := s.p.publish(ctx, m.msg, s)
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
	case errors.Is(err, errCameBack):
		// What comes first now is chosen anew.
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
		if !m.pending {
			s.unstored += len(m.items)
		}
		s.waiting.unshift(m.items)
	case m.page():
		s.endLocked(err)
	default:
		if s.box == nil && m.count == s.count && m.count != 0 && !m.unsure && !m.stored {
			s.count-- // it was never stored, so it is free
		}
		if s.refused == nil {
			s.refused = err
		}
		if s.box != nil && m.count != 0 && !m.unsure && !m.stored && !m.filler {
			s.fillLocked(m, err)
			return
		}
		s.failLocked(m, err)
	}
}

// fillLocked has a message that saves nothing sent under the count of one that
// INGEST will not take: the next ones have theirs already, and the bus bears only so
// many counts that never come.
func (s *Session) fillLocked(m *message, err error) {
	for _, r := range m.receipts {
		r.err = err
		r.changedLocked()
		s.failureLocked(r, err)
	}
	m.receipts, m.filler, m.class = nil, true, bus.ClassSession
	m.msg.Subject = s.p.subjects.Ingest(s.key, m.class)
	m.msg.Data = []byte(fence)
	s.sending = m
}

// storedLocked notes that INGEST has acknowledged m.
func (s *Session) storedLocked(m *message, seq uint64) {
	first := !m.stored
	anew := seq <= s.lastSeq
	m.seq, m.stored = seq, true
	m.sentMore = m.sentMore || !first || m.unsure || m.resumed
	m.ackedAt = time.Now()
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

// unpendLocked notes that m's items are stored or never will be. Without an outbox
// their room is given back.
func (s *Session) unpendLocked(m *message) {
	if m.pending {
		m.pending = false
		s.unstored -= len(m.items)
	}
	if s.box == nil {
		s.p.budget.release(costOf(m.items))
		m.items = nil
	}
}
