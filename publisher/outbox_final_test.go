package publisher_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// A message that INGEST will not take is told of and given up, and those behind it,
// which have their counts, are no worse for it.
func TestOutbox_TooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.streams.Ingest.CachedInfo().Config
	cfg.MaxMsgSize = 2000
	_, err := w.js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	var mu sync.Mutex
	var failed []publisher.Failure
	p := w.publisher(publisher.Options{Outbox: t.TempDir(), OnFailed: func(f publisher.Failure) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, f)
	}})
	s := p.open(key("s"))
	big := string(make([]byte, 3000))
	for range 70 { // more than a session bears counts that never come
		_, err := s.Error(t.Context(), big, "")
		require.NoError(t, err)
	}
	r, err := s.Error(t.Context(), "small", "")
	require.NoError(t, err)
	materialized(t, r)
	p.shut()
	require.Equal(t, []string{"small"}, w.ids(key("s")))
	require.Len(t, failed, 70)
	require.ErrorIs(t, failed[0].Err, publisher.ErrTooLarge)
}

// What is rejected or dropped is final: it leaves the outbox and is told.
func TestOutbox_TellsOfFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed := make(chan publisher.Failure, 10)
	p := w.publisher(publisher.Options{Outbox: t.TempDir(), OnFailed: func(f publisher.Failure) { failed <- f }})
	s := p.open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	message := func(v string) publisher.Message {
		return publisher.Message{Class: bus.ClassActivity, EventID: "e-1", Body: []byte(`{"activity":{"v":` + v + `}}`)}
	}
	receipts, err := s.Publish(ctx, message("1"), message("1"), message("2"))
	require.NoError(t, err)
	materialized(t, receipts[0])
	require.True(t, materialized(t, receipts[1]).Duplicate)
	_, err = receipts[2].Materialized(ctx)
	var rejected *publisher.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, bus.ReasonConflict, rejected.Reason)
	f := <-failed
	require.Equal(t, "e-1", f.EventID)
	require.ErrorIs(t, f.Err, publisher.ErrRejected)
	require.NoError(t, s.Err())

	w.stopNode()
	r, err := s.Publish(ctx, publisher.Message{Class: bus.ClassControl, Body: []byte(`{"op":"forget"}`)})
	require.NoError(t, err)
	_, err = s.Error(ctx, "late", "")
	require.NoError(t, err)
	w.startNode()
	_ = r
	for errors.Is(f.Err, publisher.ErrRejected) {
		f = <-failed
	}
	require.ErrorIs(t, f.Err, publisher.ErrForgotten)
	p.shut()
}

// A session that the outbox has opened by itself ends while nobody has it. Whoever opens it
// then learns why, and is not told for ever after that it is open: nobody could close it.
func TestOutbox_OpenWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed := make(chan publisher.Failure, 10)
	o := publisher.Options{Outbox: t.TempDir(), OnFailed: func(f publisher.Failure) { failed <- f }}
	ctx := within(t, skaldtest.Timeout)
	idle, s := w.idle(o, key("s"))
	say(t, s, []string{"one"})
	require.Error(t, idle.Close(ctx))
	skaldtest.Publish(t, w.js, key("s"), bus.ClassControl, `{"op":"forget"}`, nil)
	w.settle()

	p := w.publisher(o)
	require.ErrorIs(t, (<-failed).Err, publisher.ErrForgotten)
	_, err := p.Session(ctx, key("s"))
	require.ErrorIs(t, err, publisher.ErrForgotten)
	s = p.open(key("s"))
	_, err = p.Session(ctx, key("s"))
	require.ErrorIs(t, err, publisher.ErrOpen, "now somebody has it")
	require.NoError(t, s.Close(ctx))
	p.shut()
}

// Event ids that are older than half of the horizon are asked about before they are sent
// again, and are not sent if the bus has them.
func TestOutbox_AsksForOldIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := publisher.Options{Outbox: t.TempDir(), IDHorizon: time.Nanosecond}
	p := w.publisher(o)
	s := p.open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	m := publisher.Message{Class: bus.ClassError, EventID: "e-1", Body: []byte(`{"message":"old"}`)}
	receipts, err := s.Publish(ctx, m)
	require.NoError(t, err)
	o.Outbox = copyOf(t, o.Outbox)
	materialized(t, receipts[0])
	last := w.settle().IngestSeq

	p = w.publisher(o)
	require.NoError(t, p.open(key("s")).Flush(ctx))
	p.shut()
	require.Equal(t, last, w.settle().IngestSeq, "it was asked about and not sent")
	require.Equal(t, []string{"old"}, w.ids(key("s")))
}

// A journal that is appended again from its beginning, before the bus was asked, adds
// what is new and nothing else.
func TestOutbox_AppendsAJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var j, fork journal
	var events, other []bus.RelayEvent
	for i := range 31 {
		events = append(events, j.next(1, fmt.Sprint("e", i)))
		other = append(other, fork.next(1, fmt.Sprint("e", i)))
		if i == 28 {
			fork.next(1, "another") // takes the place of e29
			other = append(other, fork.events[29])
		}
	}
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	r, err := s.Append(t.Context(), events[:20]...)
	require.NoError(t, err)
	materialized(t, r)
	p.shut()

	o := publisher.Options{Outbox: t.TempDir()}
	for _, through := range []int{10, 25, 30} {
		p := w.publisher(o)
		s := p.open(key("s"))
		r, err := s.Append(t.Context(), events[:through]...)
		require.NoError(t, err)
		materialized(t, r)
		p.shut()
	}
	require.Len(t, w.ids(key("s")), 30)
	require.Zero(t, w.settle().Rejects)

	forked := w.publisher(o)
	_, err = forked.open(key("s")).Append(t.Context(), other...)
	require.ErrorIs(t, err, publisher.ErrForked)
}
