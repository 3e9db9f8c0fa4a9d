package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher/outbox"
)

// What the outbox says of a session that must not go on by itself.
const (
	stoppedForked uint8 = 1 + iota
	stoppedConflict
)

// keepLocked hands what waits from an index on to the outbox. If again is set, what
// it was built on was not kept: it is taken back and has to be pushed anew.
func (s *Session) keepLocked(from int) (batch *outbox.Batch, again bool, err error) {
	if s.box == nil {
		return nil, false, nil
	}
	items := s.waiting.items[from:]
	entries := entriesOf(items)
	batch, err = s.box.Add(s.batch, s.stateLocked(), entries)
	if err != nil {
		s.popLocked(from)
		switch {
		case errors.Is(err, outbox.ErrStale):
			return nil, true, nil
		case errors.Is(err, outbox.ErrClosed):
			return nil, false, ErrClosed
		}
		return nil, false, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	for i := range items {
		items[i].number, items[i].batch = entries[i].Number, batch
	}
	s.batch = batch
	return batch, false, nil
}

// kept waits until the batch is on disk.
func (s *Session) kept(batch *outbox.Batch) error {
	err := batch.Wait()
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undoLocked()
	return fmt.Errorf("%w: %w", ErrNotKept, err)
}

// undoLocked takes back what could not be kept, and with it what was built on that.
func (s *Session) undoLocked() {
	if !s.batch.Failed() {
		return
	}
	s.batch = nil
	for i := range s.waiting.items {
		if s.waiting.items[i].batch.Failed() {
			undone := s.popLocked(i)
			for i := range undone {
				undone[i].receipt.err = ErrNotKept
				undone[i].receipt.changedLocked()
			}
			s.p.budget.release(costOf(undone))
			s.idleLocked()
			return
		}
	}
}

// popLocked takes off what waits from an index on and moves the session back to
// before it.
func (s *Session) popLocked(from int) []item {
	popped := append([]item(nil), s.waiting.items[from:]...)
	for i := len(popped) - 1; i >= 0; i-- {
		switch it := &popped[i]; {
		case it.observed:
		case it.class == bus.ClassProjection:
			s.end = it.after
		case it.count != 0:
			s.count = it.count - 1
		}
	}
	clear(s.waiting.items[from:])
	s.waiting.items = s.waiting.items[:from]
	s.unstored -= len(popped)
	return popped
}

// stateLocked is what the outbox has to know of the session.
func (s *Session) stateLocked() outbox.State {
	return outbox.State{
		Key: s.key, Publisher: s.id, Count: s.count, Placed: s.placed, End: s.end, Presumed: s.presumed,
		UsedAt: time.Now().UnixMilli(),
	}
}

// entry is the item as the outbox keeps it.
func (it *item) entry() outbox.Entry {
	e := outbox.Entry{Number: it.number, Class: it.class, AcceptedAt: it.acceptedAt, Body: it.body, Traceparent: it.trace.parent, Tracestate: it.trace.state}
	switch {
	case it.observed:
		e.Kind, e.Command, e.RecordedAt = outbox.Observed, it.command, it.recordedAt
	case it.class == bus.ClassProjection:
		e.Kind, e.After, e.Last = outbox.Chained, it.after, it.last
	case it.eventID != "":
		e.Kind, e.EventID = outbox.Named, it.eventID
	default:
		e.Kind, e.Count = outbox.Counted, it.count
	}
	return e
}

func entriesOf(items []item) []outbox.Entry {
	out := make([]outbox.Entry, len(items))
	for i := range items {
		out[i] = items[i].entry()
	}
	return out
}

// restore makes the session what the outbox has of it.
func (s *Session) restore(o *outbox.Session) {
	s.id, s.count, s.end, s.presumed = o.Publisher, o.Count, o.End, o.Presumed
	s.start, s.applied = o.End, o.End
	if o.Placed {
		s.placed = true
		close(s.place)
	}
	first := true
	for i := range o.Entries {
		e := &o.Entries[i]
		it := item{
			class: e.Class, body: e.Body, after: e.After, last: e.Last, cost: int64(len(e.Body)) + overhead,
			receipt: &Receipt{s: s, ordinal: e.Last.Ordinal, count: e.Count, eventID: e.EventID},
			count:   e.Count, eventID: e.EventID, acceptedAt: e.AcceptedAt, resumed: true, number: e.Number,
			observed: e.Kind == outbox.Observed, command: e.Command, recordedAt: e.RecordedAt,
			trace: traceContext{parent: e.Traceparent, state: e.Tracestate},
		}
		if e.Kind == outbox.Chained && first {
			s.start, s.applied, first = e.After, e.After, false
		}
		s.waiting.push(it)
	}
	s.unstored = len(o.Entries)
	s.ask1st = s.unstored > 0
	s.p.budget.take(costOf(s.waiting.items))
}

// leaveLocked hands what is not settled back to whoever opens the session next. It
// is called once, when the session ends.
func (s *Session) leaveLocked(err error, items []item) {
	if errors.Is(err, ErrForgotten) {
		for i := range items {
			s.failureLocked(items[i].receipt, err)
			s.box.Release(items[i].number)
		}
		items = nil
	}
	l := left{Session: outbox.Session{State: s.stateLocked(), Entries: entriesOf(items)}, err: s.remainder.Err}
	if errors.Is(err, ErrForked) {
		l.Stopped, l.Why = stoppedForked, err.Error()
		if errors.Is(err, ErrConflict) {
			l.Stopped = stoppedConflict
		}
		batch, err := s.box.Add(nil, l.State, nil)
		if err == nil {
			err = batch.Wait()
		}
		if err != nil {
			s.p.o.Logger.Error("outbox could not keep that a session has stopped", slog.String("workspace", s.key.Workspace), slog.String("session", s.key.Session), slog.Any("err", err))
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.found[s.key] = &l
}

// left is what the outbox has of a session that is not open.
type left struct {
	outbox.Session
	err error // why it is not materialized; nil if this process has not tried
}

// unconfirmed lists it.
func (l *left) unconfirmed() Unconfirmed {
	u := Unconfirmed{Key: l.Key, Err: l.err, Kept: true}
	for i := range l.Entries {
		u.add(l.Entries[i].Last.Ordinal)
	}
	return u
}

// stopped is the error of a session that the outbox says must not go on.
func stopped(o *outbox.Session, dir string) error {
	switch o.Stopped {
	case 0:
		return nil
	case stoppedConflict:
		return fmt.Errorf("%w: %w: it was stopped with %d messages in the outbox %s: %s", ErrForked, ErrConflict, len(o.Entries), dir, o.Why)
	}
	return fmt.Errorf("%w: it was stopped with %d messages in the outbox %s: %s", ErrForked, len(o.Entries), dir, o.Why)
}

// releaseLocked gives up the room of the message's items, and with an outbox their
// place in it.
func (s *Session) releaseLocked(m *message) {
	s.unpendLocked(m)
	if s.box == nil {
		return
	}
	for i := range m.items {
		s.box.Release(m.items[i].number)
	}
	s.p.budget.release(costOf(m.items))
	m.items = nil
}

// failureLocked notes that a message is final without being materialized.
func (s *Session) failureLocked(r *Receipt, err error) {
	if s.p.o.OnFailed != nil {
		s.failures = append(s.failures, Failure{Key: s.key, Ordinal: r.ordinal, EventID: r.eventID, Err: err})
	}
}

// tell tells of the failures.
func (s *Session) tell() {
	s.mu.Lock()
	failures := s.failures
	s.failures = nil
	s.mu.Unlock()
	for _, f := range failures {
		s.p.o.OnFailed(f)
	}
}

// resume opens what the outbox holds and nobody has opened.
func (p *Publisher) resume(ctx context.Context) error {
	p.mu.Lock()
	var keys []bus.Key
	for k, o := range p.found {
		switch {
		case o.Stopped != 0:
			p.o.Logger.ErrorContext(ctx, "outbox holds a stopped session", slog.String("workspace", k.Workspace), slog.String("session", k.Session),
				slog.Int("messages", len(o.Entries)), slog.String("why", o.Why))
		case len(o.Entries) > 0:
			keys = append(keys, k)
		}
	}
	p.mu.Unlock()
	for _, k := range keys {
		if _, err := p.openLater(k, false); err != nil && !errors.Is(err, ErrOpen) && !errors.Is(err, ErrClosed) {
			return fmt.Errorf("resume %q/%q from the outbox: %w", k.Workspace, k.Session, err)
		}
	}
	return nil
}

// tend keeps the outbox tidy until ctx ends.
func (p *Publisher) tend(ctx context.Context) {
	for pause(ctx, tendEvery) {
		if err := p.box.Tend(); err != nil {
			p.note(ctx, bus.Key{}, fmt.Errorf("tidy up the outbox: %w", err))
		}
	}
}
