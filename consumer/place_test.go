package consumer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A cursor beyond EVENTS' end is refused within a second and told the end, for a
// durable and without. What comes later is not missed in silence.
func TestRun_CursorAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 12)
	w.catchUp()
	for _, durable := range []string{"", "d"} {
		for _, seq := range []uint64{13, 5000, bus.MaxSeq} {
			skaldtest.InTime(t, time.Second, func() {
				r := w.read(w.js, consumer.Options{Durable: durable, From: from(seq)}, nil)
				err := r.wait()
				require.ErrorIs(t, err, bus.ErrCursorAhead)
				var at *consumer.CursorError
				require.ErrorAs(t, err, &at)
				require.Equal(t, consumer.CursorError{Err: bus.ErrCursorAhead, Cursor: bus.Cursor{Epoch: w.streams.Epoch, Seq: seq}, Epoch: w.streams.Epoch, First: 1, Last: 12}, *at)
				require.Zero(t, r.c.Stats().Interrupted, "it was not tried again")
			})
		}
	}
	require.Empty(t, w.consumers(), "nothing was made for a place that is not there")
}

// A cursor of another epoch is refused, and so is a durable that was made in one;
// with a cursor of the present one the durable goes on.
func TestRun_OtherEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	w.catchUp()
	r := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(5)
	r.finish()
	err := w.read(w.js, consumer.Options{From: &bus.Cursor{Epoch: "elsewhere", Seq: 3}}, nil).wait()
	require.ErrorIs(t, err, bus.ErrOtherEpoch)

	w.stop()
	w.setEpoch("later")
	err = w.read(w.js, consumer.Options{Durable: "d"}, nil).wait()
	require.ErrorIs(t, err, bus.ErrOtherEpoch)
	var at *consumer.CursorError
	require.ErrorAs(t, err, &at)
	require.Equal(t, bus.Cursor{Epoch: w.streams.Epoch, Seq: 5}, at.Cursor)
	require.Equal(t, "later", at.Epoch)

	r = w.read(w.js, consumer.Options{Durable: "d", From: &bus.Cursor{Epoch: "later", Seq: 2}}, nil)
	r.reach(5)
	r.finish()
	require.Equal(t, span(3, 5), r.seqs())
	r = w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.begin()
	r.finish()
	require.Empty(t, r.seqs())
}

// EVENTS is deleted and made again under running readers: each ends with an error
// instead of waiting for numbers that will never come.
func TestRun_StreamReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 20)
	w.catchUp()
	readers := []*reader{
		w.read(w.js, consumer.Options{}, nil),
		w.read(w.js, consumer.Options{Durable: "d"}, nil),
		w.read(w.js, consumer.Options{Workspace: "nobody", Newest: true}, nil),
	}
	for _, r := range readers {
		r.begin()
	}
	readers[0].reach(20)
	readers[1].reach(20)
	w.stop()
	for _, s := range []string{w.subj.EventsStream(), w.subj.IngestStream()} {
		require.NoError(t, w.js.DeleteStream(t.Context(), s))
	}
	again := skaldtest.Streams(t, w.js)
	require.NotEqual(t, w.streams.Epoch, again.Epoch)
	for i, r := range readers {
		require.ErrorIs(t, r.wait(), consumer.ErrStreamReplaced, i)
	}
	// The saved cursor of a reader that starts later tells it, too.
	cursor := readers[0].c.Cursor()
	require.ErrorIs(t, w.read(w.js, consumer.Options{From: &cursor}, nil).wait(), bus.ErrOtherEpoch)
}

// EVENTS is deleted for good, or was never there.
func TestRun_StreamMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	r, d := w.read(w.js, consumer.Options{}, nil), w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(3)
	d.reach(3)
	w.stop()
	require.NoError(t, w.js.DeleteStream(t.Context(), w.subj.EventsStream()))
	require.ErrorIs(t, r.wait(), bus.ErrStreamMissing)
	require.ErrorIs(t, d.wait(), bus.ErrStreamMissing)
	for _, durable := range []string{"", "d"} {
		skaldtest.InTime(t, time.Second, func() {
			r := w.read(w.js, consumer.Options{Durable: durable}, nil)
			require.ErrorIs(t, r.wait(), bus.ErrStreamMissing)
			require.Zero(t, r.c.Stats().Interrupted, "it was not tried again")
		})
	}
}

// A stream of that name that is not Skald's is not read.
func TestRun_OtherBus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stop()
	w.setEpoch("")
	require.ErrorIs(t, w.read(w.js, consumer.Options{}, nil).wait(), bus.ErrOtherBus)
}

// EVENTS loses its end and a materializer puts it back: a reader that had read it
// waits for that and goes on without a repeat.
func TestRun_EndPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 15)
	w.catchUp()
	r, d := w.read(w.js, consumer.Options{}, nil), w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(15)
	d.reach(15)
	early := w.copyEvents()
	w.fail(keyA, 5)
	r.reach(20)
	d.reach(20)
	w.catchUp()
	w.stop()
	w.restoreEvents(early)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return r.c.Stats().Interrupted > 0 && d.c.Stats().Interrupted > 0
	})
	w.materialize()
	w.fail(keyA, 5)
	w.catchUp()
	for _, r := range []*reader{r, d} {
		r.reach(25)
		r.finish()
		require.Equal(t, span(1, 25), r.seqs())
	}
}

// Each time that EVENTS ends too early has its own ten seconds: a reader that saw it put
// back before is as patient as any.
func TestRun_EndPutBackTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 15)
	w.catchUp()
	r := w.read(w.js, consumer.Options{}, nil)
	r.reach(15)
	early := w.copyEvents()
	var first time.Time
	for range 2 {
		w.fail(keyA, 5)
		r.reach(w.catchUp())
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return first.IsZero() || time.Since(first) > consumer.DoubtFor })
		w.stop()
		before := r.c.Stats().Interrupted
		w.restoreEvents(early)
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return r.c.Stats().Interrupted > before+1 || r.ended() != nil })
		require.NoError(t, r.ended())
		first = time.Now()
		w.materialize()
		w.fail(keyA, 5)
		r.reach(w.catchUp())
	}
	r.finish()
	require.Equal(t, span(1, 35), r.seqs())
}

// The same without a materializer: it is an error, not silence.
func TestRun_EndLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 15)
	w.catchUp()
	r := w.read(w.js, consumer.Options{}, nil)
	early := w.copyEvents()
	w.fail(keyA, 5)
	r.reach(20)
	w.stop()
	w.restoreEvents(early)
	require.ErrorIs(t, r.wait(), bus.ErrCursorAhead)
}

// Events that EVENTS' bounds have removed: a cursor before them is refused and told
// where to go on; the beginning is what is left; an event of the hole that a
// forgotten session left is none.
func TestRun_CursorGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 30)
	w.fail(keyB, 10)
	w.fail(keyA, 10)
	w.catchUp()
	r := w.read(w.js, consumer.Options{Durable: "d"}, func(_ context.Context, ev bus.Event) error {
		if ev.Seq == 11 {
			return errors.New("enough")
		}
		return nil
	})
	require.Error(t, r.wait())
	w.forget(keyB)
	w.catchUp()
	w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 20, jetstream.DiscardOld })

	for _, o := range []consumer.Options{{From: from(10)}, {Durable: "d"}, {Durable: "e", From: from(3)}} {
		err := w.read(w.js, o, nil).wait()
		require.ErrorIs(t, err, bus.ErrCursorGone)
		var at *consumer.CursorError
		require.ErrorAs(t, err, &at)
		require.EqualValues(t, 21, at.First)
		require.EqualValues(t, 50, at.Last)
		require.ErrorContains(t, err, "page the table from")
		require.ErrorContains(t, err, "go on from 20")
	}
	for after, want := range map[uint64][]uint64{
		0: append(span(21, 30), span(41, 50)...), 20: append(span(21, 30), span(41, 50)...), 35: span(41, 50),
	} {
		r := w.read(w.js, consumer.Options{From: from(after)}, nil)
		r.reach(50)
		r.finish()
		require.Equal(t, want, r.seqs())
	}
	r = w.read(w.js, consumer.Options{Durable: "d", From: from(20)}, nil)
	r.reach(50)
	r.finish()
	require.Len(t, r.seqs(), 20)
}

// The first sessions of an unbounded EVENTS are forgotten: its beginning moves, but
// nothing is gone.
func TestRun_ForgottenBeginning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 10)
	w.fail(keyB, 2)
	w.catchUp()
	w.forget(keyA)
	w.catchUp()
	r := w.read(w.js, consumer.Options{From: from(3)}, nil)
	r.reach(12)
	r.finish()
	require.Equal(t, span(11, 12), r.seqs())
}

// Events age out before a slow reader has them: it stops with an error before it
// handles what comes behind them. One that waits for a rare event is not concerned.
func TestRun_AgedOutUnderway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 50, jetstream.DiscardOld })
	rare := w.read(w.js, consumer.Options{Workspace: "v"}, nil)
	rare.begin()
	w.fail(keyA, 40)
	w.catchUp()
	blocked := make(chan struct{})
	slow := w.read(w.js, consumer.Options{}, func(_ context.Context, ev bus.Event) error {
		if ev.Seq == 1 {
			<-blocked
		}
		return nil
	})
	// What was sent to it ahead, in several steps, is still its own; then come
	// thousands, of which EVENTS keeps 50.
	w.fail(keyA, 3000)
	w.catchUp()
	close(blocked)
	err := slow.wait()
	require.ErrorIs(t, err, bus.ErrCursorGone)
	got := slow.seqs()
	require.Equal(t, span(1, uint64(len(got))), got, "nothing behind the hole is handled")
	rare.cancel()
	if err := rare.wait(); err != nil {
		// On a machine so busy that its reading was interrupted it can not be sure either.
		require.NotZero(t, rare.c.Stats().Interrupted)
		require.ErrorIs(t, err, bus.ErrCursorGone)
	}
}

// The place of a durable whose events are rare moves along with EVENTS, so that it
// is not gone when a bounded EVENTS has moved on.
func TestRun_RareInBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyC, 1)
	w.fail(keyA, 50)
	end := w.catchUp()
	r := w.read(w.js, consumer.Options{Durable: "d", Workspace: "v"}, nil)
	r.reach(end)
	r.finish()
	require.Equal(t, []uint64{1}, r.seqs())
	w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 10, jetstream.DiscardOld })
	r = w.read(w.js, consumer.Options{Durable: "d", Workspace: "v"}, nil)
	r.begin()
	w.fail(keyC, 1)
	r.reach(end + 1)
	r.finish()
	require.Equal(t, []uint64{end + 1}, r.seqs())
}

// eventsDir is where the server keeps EVENTS and its durables.
func (w *world) eventsDir() string {
	return filepath.Join(w.o.Dir, "jetstream", "$G", "streams", w.subj.EventsStream())
}

// copyEvents restarts the server, and copies EVENTS in between.
func (w *world) copyEvents() string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "events")
	w.restartAfter(func() { require.NoError(w.t, os.CopyFS(dir, os.DirFS(w.eventsDir()))) })
	return dir
}

// restoreEvents restarts the server, with the copy in the place of EVENTS.
func (w *world) restoreEvents(dir string) {
	w.t.Helper()
	w.restartAfter(func() {
		require.NoError(w.t, os.RemoveAll(w.eventsDir()))
		require.NoError(w.t, os.CopyFS(w.eventsDir(), os.DirFS(dir)))
	})
}

func (w *world) setEpoch(epoch string) {
	w.t.Helper()
	w.bound(func(c *jetstream.StreamConfig) {
		c.Metadata = map[string]string{bus.MetaContract: "1"}
		if epoch != "" {
			c.Metadata[bus.MetaEpoch] = epoch
		}
	})
}

// bound changes EVENTS' settings, as an operator does.
func (w *world) bound(change func(*jetstream.StreamConfig)) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), w.subj.EventsStream())
	require.NoError(w.t, err)
	cfg := s.CachedInfo().Config
	change(&cfg)
	_, err = w.js.UpdateStream(w.t.Context(), cfg)
	require.NoError(w.t, err)
}
