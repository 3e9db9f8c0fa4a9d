package publisher_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// lose publishes n events and as many errors while no materializer runs, one at a
// time, and removes from INGEST those messages whose index gone names, as a broker
// does that loses what it has acknowledged. It returns the receipts.
func lose(t *testing.T, w *world, s *publisher.Session, n int, gone func(i int) bool) []*publisher.Receipt {
	t.Helper()
	ctx := within(t, skaldtest.Timeout)
	var out []*publisher.Receipt
	for i := range n {
		var r *publisher.Receipt
		if i%2 == 0 {
			r = observe(t, s, fmt.Sprint(i))
		} else {
			var err error
			r, err = s.Error(ctx, fmt.Sprint(i), "")
			require.NoError(t, err)
		}
		seq, err := r.Stored(ctx)
		require.NoError(t, err)
		if gone(i) {
			require.NoError(t, w.streams.Ingest.DeleteMsg(ctx, seq))
		}
		out = append(out, r)
	}
	return out
}

// What INGEST loses after it has acknowledged it is sent again: of the chain from the
// place at which the bus waits, of other messages those that it misses.
func TestLoss_SentAgain(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(i int) bool{
		"one page":   func(i int) bool { return i == 10 },
		"one error":  func(i int) bool { return i == 11 },
		"the newest": func(i int) bool { return i >= 38 },
		"a range":    func(i int) bool { return i >= 5 && i < 20 },
		"all":        func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.publisher(publisher.Options{})
			s, other := p.open(key("s")), p.open(key("other"))
			w.stopNode()
			receipts := lose(t, w, s, 40, gone)
			// A later message, so that the materializer sees where INGEST goes on.
			last := observe(t, other, "o")
			w.startNode()
			materialized(t, last)
			for _, r := range receipts {
				materialized(t, r)
			}
			require.ElementsMatch(t, names("", 40), w.ids(key("s")))
			require.NoError(t, s.Err())
			p.shut()
		})
	}
}

// More pages than the bus holds before a gap are refused as ahead, and sent again
// behind what fills it.
func TestLoss_Ahead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	w.stopNode()
	const n = 300 // of which half are pages, with 64 that are held
	receipts := lose(t, w, s, n, func(i int) bool { return i == 0 })
	w.startNode()
	for _, r := range receipts {
		materialized(t, r)
	}
	require.ElementsMatch(t, names("", n), w.ids(key("s")))
	p.holdsNothing()
}

// Counts with more gaps than a session keeps are refused as ahead and sent again.
func TestLoss_CountsAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.publisher(publisher.Options{}).open(key("s"))
	w.stopNode()
	const n = 400
	receipts := lose(t, w, s, n, func(i int) bool { return i%4 == 1 }) // every second error
	w.startNode()
	for _, r := range receipts {
		materialized(t, r)
	}
	require.ElementsMatch(t, names("", n), w.ids(key("s")))
}

// What is let go of to keep within bounds is still followed by those who wait, and
// if it is needed again the session ends with a word for it.
func TestLoss_LetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{MaxUnmaterializedBytes: 1})
	s, unlucky := p.open(key("s")), p.open(key("unlucky"))
	w.stopNode()
	ctx := within(t, skaldtest.Timeout)
	receipts := lose(t, w, s, 10, func(int) bool { return false })
	lost := lose(t, w, unlucky, 2, func(int) bool { return true })
	after := observe(t, unlucky, "after")
	_, err := after.Stored(ctx)
	require.NoError(t, err)
	w.startNode()
	for _, r := range receipts {
		materialized(t, r)
	}
	require.Equal(t, names("", 10), w.ids(key("s")))
	for _, r := range append(lost, after) {
		_, err = r.Materialized(ctx)
		require.ErrorIs(t, err, publisher.ErrLost)
	}
	// The chain can not go on without the event that is gone.
	says(t, unlucky, publisher.ErrLost)
	_, err = unlucky.Error(ctx, "e", "")
	require.ErrorIs(t, err, publisher.ErrLost)
	require.Empty(t, w.ids(key("unlucky")))
}

// The bus may tell that it has dropped a message before its acknowledgement is there. It is
// stored all the same, and whoever waits for that alone hears of no error.
func TestTrouble_ForgottenBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{AckTimeout: 2 * skaldtest.Timeout})
	s := p.open(key("s"))
	materialized(t, observe(t, s, "a"))
	w.stopNode()
	in, err := w.js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	c := in.CachedInfo().Config
	c.NoAck = true
	_, err = w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	r, err := s.Error(t.Context(), "b", "")
	require.NoError(t, err)
	var msg *jetstream.RawStreamMsg
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		msg, err = in.GetLastMsgForSubject(context.Background(), "skald.in.w.s.error")
		return err == nil
	})
	require.NoError(t, w.nc.Publish("skald.done.w.s", fmt.Appendf(nil, `{"ingest_seq":%d,"outcome":"dropped","publisher":%q,"publisher_seq":%s}`,
		msg.Sequence, msg.Header.Get(bus.HeaderPublisher), msg.Header.Get(bus.HeaderPublisherSeq))))
	seq, err := r.Stored(within(t, skaldtest.Timeout))
	require.NoError(t, err)
	require.Equal(t, msg.Sequence, seq)
	_, err = r.Materialized(within(t, skaldtest.Timeout))
	require.ErrorIs(t, err, publisher.ErrForgotten)
	require.NoError(t, s.Close(within(t, skaldtest.Timeout)), "all was stored")
}
