package consumer_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// loop is a consumer or a follower that reads, and what it was given.
type loop struct {
	t      testing.TB
	cursor func() bus.Cursor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // what it has ended with, once done is closed

	mu     sync.Mutex
	events []bus.Event
}

// start lets run read until the test ends or cancels it; it notes what it is given.
func (w *world) start(cursor func() bus.Cursor, run func(ctx context.Context, note func(bus.Event)) error) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{t: w.t, cursor: cursor, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = run(ctx, func(ev bus.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, ev)
		})
	}()
	w.t.Cleanup(func() { cancel(); <-l.done })
	return l
}

// seen returns what it was given.
func (l *loop) seen() []bus.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// reach waits until it has taken or skipped all up to seq.
func (l *loop) reach(seq uint64) {
	l.t.Helper()
	skaldtest.Eventually(l.t, skaldtest.Timeout, func() bool {
		select {
		case <-l.done:
			return true
		default:
			return l.cursor().Seq >= seq
		}
	}, "it does not reach %d", seq)
	require.GreaterOrEqual(l.t, l.cursor().Seq, seq, "it has ended: %v", l.ended())
}

// begin waits until it has found its place.
func (l *loop) begin() {
	l.t.Helper()
	skaldtest.Eventually(l.t, skaldtest.Timeout, func() bool { return l.cursor().Epoch != "" })
}

func (l *loop) ended() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// wait waits for its end and returns its error.
func (l *loop) wait() error {
	l.t.Helper()
	select {
	case <-l.done:
		return l.err
	case <-time.After(skaldtest.Timeout):
		require.Fail(l.t, "it does not end")
		return nil
	}
}

// finish ends it as its caller does.
func (l *loop) finish() {
	l.t.Helper()
	l.cancel()
	require.NoError(l.t, l.wait())
}
