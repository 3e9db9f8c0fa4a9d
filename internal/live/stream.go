package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Bounds of what one reader holds in memory.
const (
	// maxQueue is how many events wait for one reader.
	maxQueue = 512
	// maxQueueBytes bounds their frames, which readers share; one always fits.
	maxQueueBytes = 1 << 20
	// historyRows and historyBytes bound a page that a reader takes from the table.
	historyRows  = 200
	historyBytes = 256 << 10
)

// errBehind says that a reader's queue was full: it goes on in the table.
var errBehind = errors.New("reader is behind")

// sub is a reader's end at the hub.
type sub struct {
	q     store.PageQuery // the filters
	on    bool            // in the hub's index; under the hub's mutex
	ready chan struct{}   // holds one token; says that there is something to take

	mu    sync.Mutex
	queue []*Event
	bytes int
	err   error // why nothing more comes
}

// push adds an event, unless the queue is full.
func (s *sub) push(e *Event, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= most || len(s.queue) > 0 && s.bytes+len(e.Frame) > maxQueueBytes {
		return false
	}
	s.queue, s.bytes = append(s.queue, e), s.bytes+len(e.Frame)
	s.tell()
	return true
}

// end gives up the queue when the reader goes on in the table, and else says why
// nothing more comes behind it.
func (s *sub) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == errBehind {
		s.queue, s.bytes = nil, 0
	}
	s.err = err
	s.tell()
}

func (s *sub) tell() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take returns what waits. The error counts when nothing does.
func (s *sub) take() ([]*Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue
	s.queue, s.bytes = nil, 0
	return q, s.err
}

// Stream is one reader's place in the facts. It is not safe for concurrent use.
type Stream struct {
	hub   *Hub
	q     store.PageQuery
	at    uint64 // everything up to here was returned, or does not pass the filter
	sub   *sub   // nil while the reader is not on the hub
	until uint64 // with sub: what comes up to here comes from the table
}

// Follow returns a stream of the facts that pass the query's filters, from its cursor
// on, or from the table's end as head gives it if there is no cursor. The cursor is
// one that the table can follow. The caller closes the stream.
func (h *Hub) Follow(q store.PageQuery, head store.Head) *Stream {
	s := &Stream{hub: h, q: q, at: head.Latest}
	if q.After != nil {
		s.at = q.After.Seq
	}
	s.q.Limit, s.q.MaxBytes = historyRows, historyBytes
	return s
}

// Close takes the stream off its hub.
func (s *Stream) Close() { s.leave() }

// Next waits for the next events and returns at least one, in ascending order, or none
// if tick came first. The error is a *[store.CursorError] if rows that were not
// returned yet were pruned, ErrStopped if the hub has stopped, the cause of ctx, or
// that of a failed read; after it, the stream has ended.
func (s *Stream) Next(ctx context.Context, tick <-chan time.Time) ([]*Event, error) {
	for {
		if s.sub == nil && s.at >= s.hub.at() {
			if err := s.join(); err != nil {
				return nil, err
			}
		}
		if s.sub == nil || s.at < s.until {
			events, err := s.page(ctx)
			if len(events) > 0 || err != nil {
				return events, err
			}
			select {
			case <-tick:
				return nil, nil
			default:
			}
			continue
		}
		events, err := s.sub.take()
		for len(events) > 0 && events[0].Seq <= s.at {
			events = events[1:]
		}
		switch {
		case len(events) > 0:
			s.at = events[len(events)-1].Seq
			return events, nil
		case errors.Is(err, errBehind):
			s.sub = nil
			continue
		case err != nil:
			return nil, err
		}
		select {
		case <-s.sub.ready:
		case <-tick:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Stream) join() (err error) {
	sub := &sub{q: s.q, ready: make(chan struct{}, 1)}
	if s.until, err = s.hub.join(sub); err != nil {
		return err
	}
	s.sub = sub
	return nil
}

func (s *Stream) leave() {
	if s.sub != nil {
		s.hub.leave(s.sub)
		s.sub = nil
	}
}

// page takes the next rows from the table, when it is this reader's turn.
func (s *Stream) page(ctx context.Context) ([]*Event, error) {
	select {
	case s.hub.history <- struct{}{}:
		defer func() { <-s.hub.history }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.hub.pages.Add(1)
	q := s.q
	q.After = &bus.Cursor{Seq: s.at}
	page, err := s.hub.o.Reader.Page(ctx, q)
	var cursor *store.CursorError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &cursor):
		return nil, err
	case err != nil:
		s.hub.complain(ctx, err)
		return nil, fmt.Errorf("read history after %d: %w", s.at, err)
	}
	events := make([]*Event, len(page.Events))
	for i := range page.Events {
		events[i] = newEvent(&page.Events[i])
	}
	s.at = max(s.at, page.NextAfter)
	if len(page.Events) == 0 && page.NextAfter >= page.Latest && s.sub == nil {
		return nil, s.join()
	}
	return events, nil
}
