package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// usage is which counts of this publisher the bus has seen.
type usage struct {
	count   uint64
	missing [][2]uint64
}

func (u *usage) has(count uint64) bool {
	return u != nil && count <= u.count && !slices.ContainsFunc(u.missing, func(r [2]uint64) bool { return r[0] <= count && count <= r[1] })
}

// needsPlaceLocked reports whether the bus has to be asked where the session stands
// before the next message can be sent.
func (s *Session) needsPlaceLocked() bool {
	if s.ask1st {
		return true
	}
	if s.placed {
		return false
	}
	return s.wanted || len(s.waiting.items) > 0 && s.waiting.items[0].observed && s.waiting.items[0].batch.Kept()
}

// seekPlace makes one attempt to learn where the session stands.
func (s *Session) seekPlace(ctx context.Context) {
	err := s.askPlace(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil || ctx.Err() != nil:
	case err == nil:
		s.workedLocked()
	case final(err):
		s.endLocked(err)
	default:
		s.trouble = err
		s.retryAt = time.Now().Add(s.backoff.next())
		s.p.note(ctx, s.key, err)
	}
}

// askPlace asks, for a session without a place behind a fence, see [Publisher.Session].
func (s *Session) askPlace(ctx context.Context) error {
	s.mu.Lock()
	resuming, fenceSeq, fenceAt := s.ask1st, s.fence, s.fenceAt
	s.mu.Unlock()
	if !resuming && fenceSeq == 0 {
		// Without a count: it may be stored twice, and saves nothing.
		m := nats.Msg{Subject: s.p.subjects.Ingest(s.key, bus.ClassSession), Data: []byte(fence)}
		seq, err := s.p.publish(ctx, m, nil)
		if err != nil {
			return err
		}
		s.mu.Lock()
		fenceSeq, fenceAt = seq, time.Now()
		s.fence, s.fenceAt = fenceSeq, fenceAt
		s.mu.Unlock()
		s.awaitHint(ctx, seq, hintPatience/4)
	}
	at, err := s.p.position(ctx, s.key)
	if resuming {
		if errors.Is(err, ErrNoService) || errors.Is(err, ErrTimeout) || errors.Is(err, bus.ErrUnavailable) {
			// INGEST is there, and the bus drops what it knows.
			s.mu.Lock()
			s.ask1st = false
			s.mu.Unlock()
			return nil
		}
		if err == nil {
			s.resumeAt(at)
		}
		return err
	}
	if err == nil && at.ingest >= fenceSeq {
		return s.placeAt(at.chain)
	}
	if time.Since(fenceAt) > maxAskWait {
		s.mu.Lock()
		s.fence = 0 // INGEST may have been set back
		s.mu.Unlock()
	}
	if err == nil {
		err = fmt.Errorf("%w: the materializer is at INGEST %d, this session at %d", bus.ErrUnavailable, at.ingest, fenceSeq)
	}
	return err
}

// placeLocked gives the session its place.
func (s *Session) placeLocked(at bus.ChainPosition) {
	s.start, s.end, s.applied = at, at, at
	if !s.placed {
		s.placed = true
		close(s.place)
	}
}

// placeAt gives the session its place in the chain, and what waits for it its own.
// It is kept before the first of it is sent: sent again after a crash it has to be
// the same.
func (s *Session) placeAt(at bus.ChainPosition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.placed {
		return nil
	}
	items := slices.Clone(s.waiting.items)
	end := at
	for i := range items {
		if it := &items[i]; it.observed {
			it.after = end
			it.body, end = chained(end, it.body, it.command, it.recordedAt)
			it.last, it.observed = end, false
		}
	}
	if s.box != nil {
		// The last of them may not be on disk yet.
		if err := s.batch.Wait(); err != nil {
			s.undoLocked()
			return fmt.Errorf("%w: %w", ErrNotKept, err)
		}
		state := s.stateLocked()
		state.Placed, state.End = true, end
		left := items[:0:0]
		for i := range items {
			if items[i].class == bus.ClassProjection {
				left = append(left, items[i])
			}
		}
		batch, err := s.box.Add(nil, state, entriesOf(left))
		if err == nil {
			err = batch.Wait()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotKept, err)
		}
	}
	s.placeLocked(at)
	s.end = end
	s.waiting.items = items
	for i := range items {
		if it := &items[i]; it.class == bus.ClassProjection {
			it.receipt.ordinal = it.last.Ordinal
			it.command = nil
		}
	}
	return nil
}

// resumeAt takes in where the bus stood when it was asked first. What an earlier
// process has sent and the bus has seen is not sent again.
func (s *Session) resumeAt(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.ask1st = false
	if s.presumed {
		if at.chain.Ordinal < s.start.Ordinal {
			s.applied = at.chain // the journal begins behind what the bus has
		} else if at.chain.Ordinal <= s.end.Ordinal {
			s.presumed = false
		}
	}
	s.advanceLocked(at.chain)
	if s.err != nil {
		return
	}
	s.used = at.used(s.id)
	kept := s.waiting.items[:0:0]
	for _, it := range s.waiting.items {
		if it.resumed && it.count != 0 && s.used.has(it.count) {
			m := newSingle(s.p.subjects.Ingest(s.key, it.class), s.id, it.count, it)
			s.sent = append(s.sent, m)
			s.hintStoredLocked(m, 0)
			s.askAt = time.Now()
			continue
		}
		kept = append(kept, it)
	}
	s.waiting.items = kept
}

// passLocked settles the events that wait and that the bus has applied.
func (s *Session) passLocked() {
	first := slices.IndexFunc(s.waiting.items, func(it item) bool { return it.class == bus.ClassProjection })
	if first < 0 || !s.passedLocked(&s.waiting.items[first]) {
		return
	}
	kept := s.waiting.items[:0:0]
	for _, it := range s.waiting.items {
		if !s.passedLocked(&it) {
			kept = append(kept, it)
			continue
		}
		s.unstored--
		s.p.budget.release(1, it.cost)
		if s.box != nil {
			s.box.Release(it.number)
		}
		it.receipt.stored, it.receipt.applied = true, true
		it.receipt.changedLocked()
	}
	s.waiting.items = kept
	s.idleLocked()
}

func (s *Session) passedLocked(it *item) bool {
	return it.class == bus.ClassProjection && it.ready() && it.last.Ordinal <= s.applied.Ordinal
}

// digestLocked returns the session's digest at an ordinal, where it is known.
func (s *Session) digestLocked(ordinal uint64) (bus.Digest, bool) {
	for _, known := range []bus.ChainPosition{s.end, s.applied, s.start} {
		if known.Ordinal == ordinal && s.placed {
			return known.Digest, true
		}
	}
	for _, m := range s.sent {
		switch {
		case !m.page() || m.last.Ordinal < ordinal:
		case m.last.Ordinal == ordinal:
			return m.last.Digest, true
		default:
			return digestIn(m.items, ordinal)
		}
	}
	return digestIn(s.waiting.items, ordinal)
}

func digestIn(items []item, ordinal uint64) (d bus.Digest, ok bool) {
	for i := range items {
		if it := &items[i]; it.class == bus.ClassProjection && !it.observed && it.last.Ordinal == ordinal {
			return it.last.Digest, true
		}
	}
	return d, false
}
