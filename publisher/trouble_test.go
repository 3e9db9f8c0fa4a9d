package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// storedSoon waits for the receipt, for d, and returns the error.
func storedSoon(t testing.TB, r *publisher.Receipt, d time.Duration) error {
	t.Helper()
	_, err := r.Stored(within(t, d))
	return err
}

// says waits until the session says that it is up against target.
func says(t testing.TB, s *publisher.Session, target error) {
	t.Helper()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return errors.Is(s.Err(), target) }, target)
}

// Connections that are cut again and again cost no message and double none.
func TestTrouble_ConnectionCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	px := skaldtest.NewProxy(t, w.server.Addr().String())
	p := w.publisherAt(px.URL(), publisher.Options{AckTimeout: 2 * time.Second}) // longer than a busy machine takes
	sessions := []*publisher.Session{p.open(key("a")), p.open(key("b")), p.open(key("c"))}
	const n = 600
	for i := range n {
		for j, s := range sessions {
			id := fmt.Sprint(i)
			if (i+j)%7 == 0 {
				_, err := s.Error(within(t, skaldtest.Timeout), id, "")
				require.NoError(t, err)
			} else {
				observe(t, s, id)
			}
		}
		if i%100 == 50 {
			px.Cut()
		}
	}
	p.shut()
	require.Zero(t, w.settle().Rejects)
	for _, k := range []string{"a", "b", "c"} {
		require.Equal(t, names("", n), w.ids(key(k)))
	}
}

// A server that stops in the middle is waited for; what is accepted meanwhile
// follows, in order and once.
func TestTrouble_ServerRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{AckTimeout: time.Second})
	s := p.open(key("s"))
	const n = 300
	var last *publisher.Receipt
	for i := range n {
		switch i {
		case 100:
			w.stopServer()
		case 200:
			says(t, s, publisher.ErrDisconnected)
			_, err := last.Stored(within(t, 50*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, publisher.ErrDisconnected)
			w.startServer()
		}
		if i%10 == 0 {
			var err error
			last, err = s.Error(within(t, skaldtest.Timeout), fmt.Sprint(i), "")
			require.NoError(t, err)
		} else {
			last = observe(t, s, fmt.Sprint(i))
		}
	}
	materialized(t, last)
	require.NoError(t, s.Err())
	require.Equal(t, names("", n), w.ids(key("s")))
	require.Zero(t, w.settle().Rejects)
	p.shut()
}

// A full INGEST is said to be full, and when it has room again all goes on.
func TestTrouble_FullStream(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	w.create(bus.StreamOptions{IngestBytes: 64 << 10})
	w.startNode()
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	text := strings.Repeat("x", 4000)
	var last *publisher.Receipt
	for range 30 {
		var err error
		last, err = s.Error(ctx, text, "")
		require.NoError(t, err)
	}
	says(t, s, publisher.ErrFull)
	err := storedSoon(t, last, 20*time.Millisecond)
	require.ErrorIs(t, err, publisher.ErrFull)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, s.Flush(within(t, 20*time.Millisecond)), publisher.ErrFull)

	cfg := w.streams.Ingest.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	_, err = w.js.UpdateStream(ctx, cfg)
	require.NoError(t, err)
	materialized(t, last)
	require.NoError(t, s.Flush(ctx))
	require.NoError(t, s.Err())
	require.Len(t, w.ids(key("s")), 30)
}

// Without streams, and without a materializer, opening says which is missing, and
// works once both are there.
func TestTrouble_NoStreamNoService(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	p := w.publisher(publisher.Options{})
	require.ErrorIs(t, p.refuses(key("s"), publisher.ErrNoStream), context.DeadlineExceeded)
	w.create(bus.StreamOptions{})
	p.refuses(key("s"), publisher.ErrNoService)
	w.startNode()
	s := p.open(key("s"))
	materialized(t, observe(t, s, "a"))

	require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_INGEST"))
	r := observe(t, s, "b")
	says(t, s, publisher.ErrNoStream)
	require.ErrorIs(t, storedSoon(t, r, 20*time.Millisecond), publisher.ErrNoStream)
}

// What can not fit is refused at the call, and the small one after it lands.
func TestTrouble_TooLarge(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute, MaxPayload: 64 << 10})
	w.create(bus.StreamOptions{})
	w.startNode()
	s := w.publisher(publisher.Options{}).open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	large := `"` + strings.Repeat("x", 48<<10) + `"`
	_, err := s.Observe(ctx, []byte(`{"type":`+large+`}`), publisher.ObserveOptions{})
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	_, err = s.Activity(ctx, []byte(`{"a":`+large+`}`))
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	_, err = s.Error(ctx, large, "")
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	_, err = s.Append(ctx, bus.RelayEvent{Ordinal: 1, Observation: []byte(`{"type":` + large + `}`)})
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	materialized(t, observe(t, s, "small"))

	// The largest that is taken lands, whole.
	for size := 48 << 10; ; size -= 16 {
		r, err := s.Error(ctx, strings.Repeat("x", size), "")
		if errors.Is(err, publisher.ErrTooLarge) {
			continue
		}
		require.NoError(t, err)
		materialized(t, r)
		require.Greater(t, size, 47<<10)
		require.Len(t, w.ids(key("s"))[1], size)
		break
	}
	require.NoError(t, s.Err())
}

// INGEST may take less than the server: pages are made smaller, a message too
// large fails alone and its count is used again, an event too large ends its
// session, since what follows is chained to it.
func TestTrouble_StreamTakesLess(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	w.create(bus.StreamOptions{MaxPayload: 40 << 10}) // max_msg_size 24 KiB
	w.startNode()
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	w.stopNode()
	w.stopServer()
	var last *publisher.Receipt
	for i := range 100 { // together more than one page of this stream
		last = observe(t, s, fmt.Sprint(i, " ", strings.Repeat("x", 2000)))
	}
	big, err := s.Error(ctx, strings.Repeat("x", 30<<10), "")
	require.NoError(t, err)
	small, err := s.Error(ctx, "small", "")
	require.NoError(t, err)
	w.startServer()
	_, err = big.Stored(ctx)
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	_, err = small.Stored(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, s.Flush(ctx), publisher.ErrTooLarge)
	require.NoError(t, s.Flush(ctx), "said once")
	w.startNode()
	materialized(t, last)
	materialized(t, small)
	require.Len(t, w.ids(key("s")), 101)
	state, err := w.node.st.Reader().LoadState(ctx, key("s"))
	require.NoError(t, err)
	require.EqualValues(t, 2, state.Publishers.Seen[0].Count)
	require.Empty(t, state.Publishers.Seen[0].Missing)

	r, err := s.Observe(ctx, []byte(`{"type":"`+strings.Repeat("x", 30<<10)+`"}`), publisher.ObserveOptions{})
	require.NoError(t, err)
	_, err = r.Stored(ctx)
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	_, err = s.Observe(ctx, ended("x"), publisher.ObserveOptions{})
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	err = p.Close(ctx)
	var unconfirmed *publisher.UnconfirmedError
	require.ErrorAs(t, err, &unconfirmed)
	require.EqualValues(t, 101, unconfirmed.Sessions[0].FirstOrdinal)
	require.ErrorIs(t, err, publisher.ErrTooLarge)
}

// A refusal for want of permission is told as that, well before any time-out, and
// sessions that are permitted do not notice.
func TestTrouble_NotPermitted(t *testing.T) {
	t.Parallel()
	w := newWorldFor(t, `{ user: worker, password: w, permissions: {
      publish: ["skald.in.w.*.session", "skald.in.w.*.projection", "skald.in.w.free.error", "skald.api.w.position.*", "skald.api.w.outcome.*"]
      subscribe: ["_INBOX.>"] } }
  { user: mute, password: m, permissions: { publish: ["skald.in.>", "skald.api.>"], subscribe: ["mine.>"] } }`)
	p := w.publisher(publisher.Options{AckTimeout: time.Minute}, nats.UserInfo("worker", "w"))
	s, free := p.open(key("s")), p.open(key("free"))
	ctx := within(t, skaldtest.Timeout)

	r, err := s.Error(ctx, "e", "")
	require.NoError(t, err)
	says(t, s, publisher.ErrNotPermitted)
	err = storedSoon(t, r, 20*time.Millisecond)
	require.ErrorIs(t, err, publisher.ErrNotPermitted)
	require.NotErrorIs(t, err, publisher.ErrTimeout)
	// Hints are not permitted either, so this outcome was asked for.
	r, err = free.Error(ctx, "e", "")
	require.NoError(t, err)
	materialized(t, r)
	materialized(t, observe(t, free, "o"))
	require.Equal(t, []string{"e", "o"}, w.ids(key("free")))
	require.NoError(t, free.Err())

	p.refuses(bus.Key{Workspace: "other", Session: "s"}, publisher.ErrNotPermitted)
	err = p.Close(within(t, 20*time.Millisecond))
	require.ErrorIs(t, err, publisher.ErrNotPermitted)

	// Where answers may not be received, every attempt ends without one.
	mute := w.publisher(publisher.Options{AckTimeout: 100 * time.Millisecond}, nats.UserInfo("mute", "m"))
	mute.refuses(key("t"), publisher.ErrNotPermitted)
}

// The client library keeps the last refusal for as long as the connection lasts. A time-out
// of a permitted session, later and in the same workspace, is a time-out nevertheless.
func TestTrouble_OldRefusal(t *testing.T) {
	t.Parallel()
	w := newWorldFor(t, `{ user: worker, password: w, permissions: {
      publish: ["skald.in.w.*.error", "skald.api.w.>"]
      subscribe: ["_INBOX.>", "skald.done.w.*"] } }`)
	px := skaldtest.NewProxy(t, w.server.Addr().String())
	o := publisher.Options{Unplaced: true, AckTimeout: time.Second}
	p := w.publisherAt(px.URL(), o, nats.UserInfo("worker", "w"))
	refused, permitted := p.open(key("refused")), p.open(key("permitted"))
	ctx := within(t, skaldtest.Timeout)
	_, err := refused.Activity(ctx, []byte(`{}`)) // a class that is not permitted
	require.NoError(t, err)
	says(t, refused, publisher.ErrNotPermitted)
	require.Error(t, refused.Close(within(t, 10*time.Millisecond)))
	r, err := permitted.Error(ctx, "e", "")
	require.NoError(t, err)
	materialized(t, r)

	px.Hold(true)
	r, err = permitted.Error(ctx, "f", "")
	require.NoError(t, err)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return permitted.Err() != nil })
	require.ErrorIs(t, permitted.Err(), publisher.ErrTimeout)
	require.NotErrorIs(t, permitted.Err(), publisher.ErrNotPermitted)
	px.Hold(false)
	materialized(t, r)
	p.shut()
}

// A server that takes messages and does not answer is a time-out, not more.
func TestTrouble_Timeout(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	sub, err := w.nc.SubscribeSync("skald.in.>")
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	p := w.publisher(publisher.Options{AckTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := p.Session(ctx, key("s"))
		opened <- err
	}()
	// Each attempt has the same bytes.
	first, err := sub.NextMsg(skaldtest.Timeout)
	require.NoError(t, err)
	second, err := sub.NextMsg(skaldtest.Timeout)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-opened, publisher.ErrTimeout)
	require.Equal(t, first.Data, second.Data)
	require.Equal(t, first.Header, second.Header)
}

// A session that is forgotten ends, and can not be opened again.
func TestTrouble_Forgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	materialized(t, observe(t, s, "a"))
	skaldtest.Publish(t, w.js, key("s"), bus.ClassControl, `{"op":"forget"}`, nil)
	r := observe(t, s, "b")
	_, err := r.Materialized(within(t, skaldtest.Timeout))
	require.ErrorIs(t, err, publisher.ErrForgotten)
	_, err = s.Observe(within(t, skaldtest.Timeout), ended("c"), publisher.ObserveOptions{})
	require.ErrorIs(t, err, publisher.ErrForgotten)
	require.NoError(t, s.Close(within(t, skaldtest.Timeout)), "all was stored")
	_, err = p.Session(within(t, skaldtest.Timeout), key("s"))
	require.ErrorIs(t, err, publisher.ErrForgotten)
}

// Of two who write one session the one that comes second learns that it has
// forked, by the refusal of its page or by how far the chain has gone without it.
func TestTrouble_Forked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.publisher(publisher.Options{}).open(key("s"))
	two := w.publisher(publisher.Options{}).open(key("s"))
	three := w.publisher(publisher.Options{}).open(key("s"))
	idle, err := three.Error(within(t, skaldtest.Timeout), "e", "")
	require.NoError(t, err)
	materialized(t, idle)
	materialized(t, observe(t, one, "a"))
	says(t, three, publisher.ErrForked)
	says(t, two, publisher.ErrForked)
	_, err = two.Observe(within(t, skaldtest.Timeout), ended("b"), publisher.ObserveOptions{})
	require.ErrorIs(t, err, publisher.ErrForked)
	require.NoError(t, one.Err())
}

// The connection is the caller's; when it is closed under the publisher, nothing
// waits for ever.
func TestTrouble_ConnectionClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	w.stopServer()
	r := observe(t, s, "a")
	says(t, s, publisher.ErrDisconnected)
	p.nc.Close()
	err := <-p.done
	require.ErrorIs(t, err, publisher.ErrClosed)
	var unconfirmed *publisher.UnconfirmedError
	require.ErrorAs(t, err, &unconfirmed)
	_, err = r.Stored(within(t, skaldtest.Timeout))
	require.ErrorIs(t, err, publisher.ErrClosed)
	w.startServer()
}
