package publisher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skaldbus/skald/bus"
)

// verdict is what became of a message, as a hint or an answer says.
type verdict struct {
	outcome string
	reason  bus.Reason
	detail  string
	seq     uint64 // in INGEST; 0 if not told
}

// hear takes a hint in. It may be late, or of another publisher's message.
func (s *Session) hear(ctx context.Context, h *hint) {
	s.mu.Lock()
	defer wake(s.wake)
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.heard = max(s.heard, h.IngestSeq)
	if !s.open {
		return // what it says is of an earlier start
	}
	if h.Frontier != nil {
		if at, ok := h.Frontier.position(); ok {
			s.advanceLocked(at)
		}
	}
	if s.err != nil {
		return
	}
	v := verdict{outcome: h.Outcome, reason: h.Reason, seq: h.IngestSeq}
	var m *message
	if h.Publisher == s.id {
		m = s.findLocked(func(m *message) bool { return m.count == h.PublisherSeq })
		if m == nil && v.reason == bus.ReasonConflict {
			// Of a message that is settled here: somebody else uses its count.
			s.endLocked(conflict(v))
			return
		}
	} else if h.EventID != "" {
		m = s.findLocked(func(m *message) bool { return m.eventID == h.EventID })
		if m != nil && h.Outcome == outcomeRejected && m.seq != h.IngestSeq {
			// Of another message under this id, or of this one before its acknowledgement.
			m, s.askAt = nil, time.Now()
		}
	} else if h.Publisher == "" {
		m = s.findLocked(func(m *message) bool { return m.page() && m.seq == h.IngestSeq })
		if m == nil && s.sending != nil && h.Outcome != outcomeApplied && h.IngestSeq > s.lastSeq && len(s.early) < maxEarly {
			// It may be of the message in flight, whose sequence is not known yet.
			s.early = append(s.early, *h)
		}
	}
	if m != nil {
		s.judgeLocked(m, v)
	}
	if len(s.sent) > 0 && !s.sent[0].page() && s.sent[0].stored && s.sent[0].seq < h.IngestSeq {
		// Passed over: with many messages in a commit only the newest are told of.
		s.askAt = time.Now()
	}
}

// advanceLocked takes in how far the bus has applied the session's chain.
func (s *Session) advanceLocked(at bus.ChainPosition) {
	if !s.placed {
		return
	}
	if at.Ordinal > s.end.Ordinal && !s.presumed {
		s.endLocked(fmt.Errorf("%w: the bus is at event %d, this publisher has made %d", ErrForked, at.Ordinal, s.end.Ordinal))
		return
	}
	if at.Ordinal <= s.applied.Ordinal {
		return // late, or of a store that is behind
	}
	if d, ok := s.digestLocked(at.Ordinal); ok && d != at.Digest {
		s.endLocked(fmt.Errorf("%w: at event %d the bus has digest %s, this publisher %s", ErrForked, at.Ordinal, at.Digest, d))
		return
	}
	s.applied = at
	s.askWait = hintPatience
	for _, m := range slices.Clone(s.sent) {
		if m.page() && m.last.Ordinal <= at.Ordinal {
			s.settleLocked(m)
		}
	}
	s.passLocked()
}

// judgeLocked acts on what became of m.
func (s *Session) judgeLocked(m *message, v verdict) {
	switch v.outcome {
	case outcomeApplied, outcomeDuplicate:
		if v.outcome == outcomeDuplicate && !m.sentMore && !m.unsure && !m.resumed {
			for _, r := range m.receipts {
				r.duplicate = true
			}
		}
		// A page's place in the chain decides, see advanceLocked.
		if !m.page() {
			if !m.stored {
				s.hintStoredLocked(m, v.seq)
			}
			s.settleLocked(m)
		}
	case outcomeHeld:
		s.sendAgainLocked(m.seq, false)
	case outcomeDropped:
		if !m.stored && v.seq > 0 {
			s.hintStoredLocked(m, v.seq) // the hint was faster than the acknowledgement
		}
		s.endLocked(ErrForgotten)
	case outcomeMissing:
		s.markLocked(m)
	case outcomeRejected:
		rejected := &RejectedError{Reason: v.reason, Detail: v.detail, IngestSeq: v.seq}
		switch {
		case v.reason == bus.ReasonAhead && m.page():
			s.sendAgainLocked(m.seq, true)
		case v.reason == bus.ReasonAhead:
			// Counts that never came stand before it: they are asked for.
			s.markLocked(m)
			s.askAt = time.Now()
		case v.reason == bus.ReasonConflict && m.count != 0:
			s.endLocked(conflict(v))
		case v.reason == bus.ReasonChain:
			s.endLocked(fmt.Errorf("%w: %w", ErrForked, rejected))
		case m.page():
			s.endLocked(rejected)
		default:
			s.failLocked(m, rejected)
		}
	}
}

// conflict is the end of a session whose count someone else has used.
func conflict(v verdict) error {
	return fmt.Errorf("%w: %w: %w", ErrForked, ErrConflict, &RejectedError{Reason: bus.ReasonConflict, Detail: v.detail, IngestSeq: v.seq})
}

// hintStoredLocked notes that m is in INGEST although no acknowledgement came.
func (s *Session) hintStoredLocked(m *message, seq uint64) {
	m.seq, m.stored = seq, true
	for _, r := range m.receipts {
		r.seq, r.stored = seq, true
	}
	s.p.kept.Add(m.weight())
	s.unpendLocked(m)
}

// sendAgainLocked has those pages up to INGEST's sequence through sent again that
// the bus has not applied: it waits for one of them that INGEST has lost. ahead says that
// the bus does not hold them.
func (s *Session) sendAgainLocked(through uint64, ahead bool) {
	for _, m := range s.sent {
		if !m.page() || m.last.Ordinal <= s.applied.Ordinal {
			continue
		}
		if m.after.Ordinal > s.applied.Ordinal && s.presumed {
			// What is missing was never here: somebody else has to bring it.
			s.askErr = fmt.Errorf("%w: the bus waits for event %d, what was appended here begins with event %d", bus.ErrUnavailable, s.applied.Ordinal+1, s.start.Ordinal+1)
			if !ahead {
				return
			}
			break
		}
		if m.after.Ordinal > s.applied.Ordinal {
			s.endLocked(fmt.Errorf("%w: the bus waits for event %d, which is not kept any more", ErrLost, s.applied.Ordinal+1))
			return
		}
		break
	}
	for _, m := range s.sent {
		if m.page() && m.stored && m.seq <= through {
			s.markLocked(m)
		}
	}
	if s.again > 0 {
		// INGEST that loses what is sent again must not be flooded with it.
		s.retryAt = time.Now().Add(s.backoff.next())
	}
}

func (s *Session) markLocked(m *message) {
	if m.stored && !m.again && !m.settled && m != s.sending {
		m.again = true
		s.again++
	}
}

// settleLocked notes that m is materialized.
func (s *Session) settleLocked(m *message) {
	if !m.stored {
		// The chain has passed a page that is in flight.
		s.hintStoredLocked(m, 0)
	}
	s.dropLocked(m)
	s.releaseLocked(m)
	for _, r := range m.receipts {
		r.applied = true
		r.changedLocked()
	}
	s.askWait = hintPatience
}

// failLocked notes that m will never be materialized, and that the session goes on.
func (s *Session) failLocked(m *message, err error) {
	s.dropLocked(m)
	s.releaseLocked(m)
	for _, r := range m.receipts {
		r.err = err
		r.changedLocked()
		s.failureLocked(r, err)
	}
	s.idleLocked()
}

// dropLocked stops following m.
func (s *Session) dropLocked(m *message) {
	if i := slices.Index(s.sent, m); i == 0 {
		s.sent[0] = nil
		s.sent = s.sent[1:]
	} else if i > 0 {
		s.sent = slices.Delete(s.sent, i, i+1)
	}
	m.settled = true
	if m.stored {
		s.p.kept.Add(-m.weight())
	}
	if m.again {
		m.again = false
		s.again--
	}
	if len(s.sent) == 0 {
		s.sent = nil
	}
	if !s.openLocked() {
		s.askAt = time.Time{}
	}
	s.idleLocked()
}

// loosenLocked lets go of the session's oldest stored messages while more is kept
// than may be. Their receipts ask for themselves.
func (s *Session) loosenLocked() {
	for s.box == nil && len(s.sent) > 0 && (len(s.sent) > maxKept || s.p.kept.Load() > s.p.o.MaxUnmaterializedBytes) {
		m := s.sent[0]
		if !m.stored || m.again || m == s.sending {
			return
		}
		if m.page() {
			s.loose = place{chain: m.last, ingest: m.seq}
		}
		s.dropLocked(m)
		for _, r := range m.receipts {
			r.loose = true
			r.changedLocked()
		}
	}
}

// looseLocked reports whether pages that the session has let go of are not applied.
func (s *Session) looseLocked() bool { return s.loose.chain.Ordinal > s.applied.Ordinal }

// openLocked reports whether there is anything to ask for.
func (s *Session) openLocked() bool { return len(s.sent) > 0 || s.looseLocked() }

func (s *Session) findLocked(is func(*message) bool) *message {
	for _, m := range s.sent {
		if is(m) {
			return m
		}
	}
	return nil
}
