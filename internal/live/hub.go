package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// hubRows is how many rows the hub reads at a time.
	hubRows = store.MaxLimit
	// maxHistory is how many readers page the table at a time, of the connections
	// that a store reads with: pages that are asked for have to get their turn too.
	maxHistory = 2
	// Pauses after a read of the table that failed.
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
	// complainEvery is how often the log is told that the table can not be read.
	complainEvery = 5 * time.Second
)

// ErrStopped ends streams whose hub has stopped.
var ErrStopped = errors.New("live streams have stopped")

// Options are what a hub works with.
type Options struct {
	// Logger is told when the table can not be read. Nil discards.
	Logger *slog.Logger
	// Reader reads the table. Required.
	Reader *store.Reader

	queue int // maxQueue, unless a test lowers it
}

// Hub feeds live readers. Make one with [New], run it once with [Hub.Run], tell it of
// commits with [Hub.Committed], read with [Hub.Follow]. All but Run are safe for
// concurrent use.
type Hub struct {
	o       Options
	latest  atomic.Uint64 // the highest number that is committed
	wake    chan struct{} // holds one token; says that latest may be above pos
	history chan struct{} // a token for each reader that pages the table

	reads  atomic.Int64 // of the table, by the hub
	pages  atomic.Int64 // of the table, by readers
	behind atomic.Int64 // readers whose queue was full

	mu         sync.Mutex
	pos        uint64 // everything up to here was handed out
	stopped    bool
	readers    index
	complained time.Time
}

// Stats is what a hub has counted since it was made.
type Stats struct {
	Readers int   // on the hub now; those that page the table are not
	Reads   int64 // of the table for all readers
	Pages   int64 // of the table for one reader each
	Behind  int64 // times that a reader's queue was full
}

// New returns a hub that begins at the table's present end. It panics if the reader is
// missing.
func New(ctx context.Context, o Options) (*Hub, error) {
	if o.Reader == nil {
		panic("live.New: Options.Reader is missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.queue == 0 {
		o.queue = maxQueue
	}
	pos, err := o.Reader.Position(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin live streams: %w", err)
	}
	h := &Hub{o: o, pos: pos.EventsSeq, wake: make(chan struct{}, 1), history: make(chan struct{}, maxHistory)}
	h.latest.Store(pos.EventsSeq)
	return h, nil
}

// Committed tells the hub how far the table reaches. It does not block.
func (h *Hub) Committed(p store.Position) {
	h.latest.Store(p.EventsSeq)
	select {
	case h.wake <- struct{}{}:
	default: // a token that is still there says the same
	}
}

// Stats returns the counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Readers: h.readers.n, Reads: h.reads.Load(), Pages: h.pages.Load(), Behind: h.behind.Load()}
}

// Run feeds readers until ctx ends, then ends their streams with ErrStopped and
// returns nil. A table that can not be read ends the streams that are on the hub with
// the error, since they would wait in silence, and is tried again.
func (h *Hub) Run(ctx context.Context) error {
	pause := retryMin
	for {
		err := h.feed(ctx)
		switch {
		case ctx.Err() != nil:
			h.drop(ErrStopped, true)
			return nil
		case err != nil:
			h.complain(ctx, err)
			h.drop(err, false)
			again := time.NewTimer(pause)
			select {
			case <-again.C:
			case <-ctx.Done():
				again.Stop()
			}
			pause = min(2*pause, retryMax)
			continue
		}
		pause = retryMin
		select {
		case <-h.wake:
		case <-ctx.Done():
		}
	}
}

// feed hands out all rows that are committed.
func (h *Hub) feed(ctx context.Context) error {
	for {
		latest := h.latest.Load()
		h.mu.Lock()
		pos := h.pos
		if h.readers.n == 0 {
			h.pos = max(h.pos, latest) // nobody waits for it
			pos = h.pos
		}
		h.mu.Unlock()
		if pos >= latest {
			return nil
		}
		h.reads.Add(1)
		page, err := h.o.Reader.Page(ctx, store.PageQuery{After: &bus.Cursor{Seq: pos}, Limit: hubRows})
		var gone *store.CursorError
		switch {
		case errors.Is(err, bus.ErrCursorGone) && errors.As(err, &gone):
			h.skip(gone.Oldest)
		case err == nil && pos == 0 && page.Oldest > 1:
			h.skip(page.Oldest) // from the beginning is never gone, but readers may be beyond it
		case err != nil:
			return fmt.Errorf("read new rows after %d: %w", pos, err)
		case page.NextAfter <= pos:
			return nil // the table ends below what was committed: it was put back
		default:
			h.handOut(&page)
		}
	}
}

// skip goes on at the oldest row, since those before it were pruned before they were
// handed out. Readers find out by paging whether that concerns them.
func (h *Hub) skip(oldest uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers.each(func(s *sub) { h.lag(s) })
	h.pos = oldest - 1
}

func (h *Hub) handOut(page *store.Page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range page.Events {
		e := &page.Events[i]
		var framed *Event
		h.readers.match(e, func(s *sub) {
			if framed == nil {
				framed = newEvent(e)
			}
			if !s.push(framed, h.o.queue) {
				h.lag(s)
			}
		})
	}
	h.pos = max(h.pos, page.NextAfter)
}

// lag takes a reader off the hub, which goes on by paging. h.mu is held.
func (h *Hub) lag(s *sub) {
	h.behind.Add(1)
	h.readers.remove(s)
	s.end(errBehind)
}

// drop ends all readers that are on the hub, for good if it has stopped.
func (h *Hub) drop(err error, stopped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = h.stopped || stopped
	h.readers.each(func(s *sub) {
		h.readers.remove(s)
		s.end(err)
	})
}

// join puts a reader on the hub and returns the number above which its queue gets
// everything that passes its filter.
func (h *Hub) join(s *sub) (from uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return 0, ErrStopped
	}
	h.readers.add(s)
	return h.pos, nil
}

func (h *Hub) leave(s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers.remove(s)
}

// at returns how far the hub has handed out rows.
func (h *Hub) at() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pos
}

// complain logs an error, but not for each of a thousand readers.
func (h *Hub) complain(ctx context.Context, err error) {
	h.mu.Lock()
	due := time.Since(h.complained) > complainEvery
	if due {
		h.complained = time.Now()
	}
	h.mu.Unlock()
	if due {
		h.o.Logger.WarnContext(ctx, "live streams can not read the table; they end, and readers resume", slog.Any("err", err))
	}
}
