package publisher

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// Append takes relay events out of a journal, of either format, as they are: with
// their ordinals, times and digests, which are checked. Format 0 counts as 1. All
// are accepted or none; what lies at or below the position at which the session
// was opened, and with an outbox, or Options.Unplaced, at or below what was accepted, is
// skipped. The receipt is the last event's and stands for all of
// them; if all are skipped it is that of an event which is materialized. A journal
// whose digests are not those of the bus is ErrForked; other errors are those of
// Observe.
func (s *Session) Append(ctx context.Context, events ...bus.RelayEvent) (*Receipt, error) {
	if len(events) == 0 {
		return nil, fmt.Errorf("append: %w", &bus.InvalidError{Reason: bus.ReasonPage, Field: "events", Rule: "must not be empty"})
	}
	if len(events) > bus.MaxPageEvents {
		// More would have to fit into the budget at once.
		return nil, fmt.Errorf("append: %w", &bus.InvalidError{Reason: bus.ReasonPage, Field: "events", Rule: fmt.Sprintf("must be at most %d", bus.MaxPageEvents)})
	}
	if err := s.presume(ctx, &events[0]); err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	events, known, err := s.skip(events)
	if err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	if len(events) == 0 {
		return known, nil
	}
	size := 0
	for i := range events {
		n := len(events[i].Observation) + len(events[i].CommandID) + eventFrame
		if err := s.p.fits(n + pageFrame); err != nil {
			return nil, fmt.Errorf("append: event %d: %w", events[i].Ordinal, err)
		}
		size += n
	}
	r := &Receipt{s: s, ordinal: events[len(events)-1].Ordinal}
	trace := traceOf(ctx)
	err = s.acceptMany(ctx, len(events), int64(size), func() error {
		// All are checked before the first is taken.
		bodies, at := make([][]byte, len(events)), s.end
		places := make([]bus.ChainPosition, len(events))
		for i := range events {
			var err error
			if bodies[i], at, err = readyMade(at, events[i]); err != nil {
				return err
			}
			places[i] = at
		}
		for i := range events {
			one := r
			if i < len(events)-1 {
				one = &Receipt{s: s, ordinal: events[i].Ordinal}
			}
			s.pushEventLocked(bodies[i], places[i], one, trace)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	return r, nil
}

// skip takes off the front of events what is known already, and compares digests
// where they are. If nothing is left, known is the receipt for the last one.
func (s *Session) skip(events []bus.RelayEvent) (rest []bus.RelayEvent, known *Receipt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	through := s.start.Ordinal
	if s.box != nil || s.p.o.Unplaced {
		// A caller that was started again begins where it may have been.
		through = s.end.Ordinal
	}
	for i := range events {
		e := &events[i]
		if e.Ordinal > through {
			return events[i:], nil, nil
		}
		want, ok := s.digestLocked(e.Ordinal)
		if got, is := bus.ParseDigest(e.Digest); ok && (!is || got != want) {
			return nil, nil, fmt.Errorf("event %d: %w: its digest is %.64s, the session has %s", e.Ordinal, ErrForked, e.Digest, want)
		}
		known = s.receiptLocked(e.Ordinal)
	}
	return nil, known, nil
}

// receiptLocked returns the receipt of an accepted event; if it is not kept any more
// it is materialized.
func (s *Session) receiptLocked(ordinal uint64) *Receipt {
	for _, m := range s.sent {
		if m.page() && m.last.Ordinal >= ordinal {
			for _, r := range m.receipts {
				if r.ordinal >= ordinal {
					return r
				}
			}
		}
	}
	for i := range s.waiting.items {
		if r := s.waiting.items[i].receipt; r.ordinal >= ordinal {
			return r
		}
	}
	return &Receipt{s: s, ordinal: ordinal, stored: true, applied: true}
}

// presume gives a session whose place is not known the one that follows from its
// journal. Where none follows it waits until the bus has said.
func (s *Session) presume(ctx context.Context, first *bus.RelayEvent) error {
	s.mu.Lock()
	if s.placed {
		s.mu.Unlock()
		return nil
	}
	digest, ok := bus.ParseDigest(first.Previous)
	if ok = ok || first.Ordinal == 1; ok && first.Ordinal > 0 && !s.observedLocked() {
		if first.Ordinal == 1 {
			digest = bus.ChainPosition{}.Digest
		}
		s.placeLocked(bus.ChainPosition{Ordinal: first.Ordinal - 1, Digest: digest})
		s.presumed, s.ask1st = true, true
		s.mu.Unlock()
		return nil
	}
	s.wanted = true
	place := s.place
	s.mu.Unlock()
	wake(s.wake)
	select {
	case <-place:
	case <-ctx.Done():
		return fmt.Errorf("wait for the session's place: %w", s.because(context.Cause(ctx)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// observedLocked reports whether an observation waits for its place.
func (s *Session) observedLocked() bool {
	for i := range s.waiting.items {
		if s.waiting.items[i].observed {
			return true
		}
	}
	return false
}
