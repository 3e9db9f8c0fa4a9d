package materializer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
)

// EVENTS lost its end, and another program wrote something else there that is not as
// long as what was lost: putting only the rest back would leave two meanings of one
// number, with a last row that looks right.
func TestStop_EventsDifferBelowTheirEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.finish()
	old := w.stoppedCopy("SKALD_EVENTS")
	n.start(nil)
	w.fail(alpha, "b")
	w.fail(alpha, "c")
	n.finish()
	w.setStreamBack("SKALD_EVENTS", old)
	w.plant(happened{key: beta, typ: "error", data: `{}`, origin: bus.Origin{Seq: 9, Time: 9}})
	n.start(nil)
	require.ErrorIs(t, n.wait(), materializer.ErrEventsDiffer)
	require.EqualValues(t, 2, w.last(w.streams.Events), "nothing is put back on top")
}

// A bounded EVENTS has dropped what a new store would need: it stops and names the
// numbers, and neither serves a part of them as the whole nor appends them again.
func TestCrash_EventsBoundedAndAgedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(alpha, 5)
	n.finish()
	c := w.streams.Events.CachedInfo().Config
	c.MaxMsgs, c.Discard = 2, jetstream.DiscardOld
	_, err := w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)

	empty := w.node()
	empty.start(nil)
	err = empty.wait()
	require.ErrorIs(t, err, materializer.ErrEventsGone)
	require.ErrorContains(t, err, "begins at 4")
	require.EqualValues(t, 5, w.last(w.streams.Events))
	require.Empty(t, rawTable(t, empty.path))
}

// EVENTS keeps fewer messages than are appended before the store commits them: those that
// it has dropped are at hand, and the materializer, which looks at EVENTS meanwhile, does
// not stop for want of them.
func TestEventsBounded_AheadOfTheCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	c := w.streams.Events.CachedInfo().Config
	c.MaxMsgs, c.Discard = 1, jetstream.DiscardOld
	_, err := w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	n.start(func(name string) error {
		if name == "before commit" {
			<-hold
		}
		return nil
	})
	looked := func() time.Time { return n.m.Lag().At }
	w.failMany(alpha, 100)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		info, err := w.streams.Events.Info(context.Background())
		return err == nil && info.State.FirstSeq > 2
	}, "EVENTS has dropped what is not committed")
	for range 2 { // the first one may have begun before that
		before := looked()
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return looked().After(before) }, "it does not look at EVENTS any more")
	}
	release()
	n.catchUp()
	require.Len(t, rawTable(t, n.path), 100)
	n.stop()
}

// The end of EVENTS is gone, and no removal has written down what it came from. A
// store that had not come so far can not know whether facts of its next message were
// among it: it waits, says so, and goes on once EVENTS does.
func TestPause_EndUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(alpha, 3)
	n.finish()
	for _, seq := range []uint64{2, 3} {
		require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), seq))
	}
	empty := w.node()
	empty.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(empty.check("events").Detail, "EVENTS 1 to 3 are gone") ||
			strings.Contains(empty.check("events").Detail, "EVENTS 2 to 3 are gone")
	}, "health does not say that it waits")
	require.EqualValues(t, 3, w.last(w.streams.Events), "nothing was appended")

	n.start(nil) // it has all rows, and so knows
	w.fail(alpha, "on")
	n.catchUp()
	empty.catchUp()
	require.EqualValues(t, 4, w.last(w.streams.Events), "no fact has a second number")
	n.stop()
	empty.stop()
}

// Health says that publishers are refused, and that a setting was changed under
// which a promise does not hold.
func TestHealth_StreamSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	well := func(check string) func() bool { return func() bool { return n.check(check).OK } }
	skaldtest.Eventually(t, skaldtest.Timeout, well("ingest_space"))
	skaldtest.Eventually(t, skaldtest.Timeout, well("streams"))

	c := w.streams.Ingest.CachedInfo().Config
	c.MaxBytes = 1 << 20 // less than one message of the largest size
	_, err := w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(n.check("ingest_space").Detail, "INGEST is full")
	})
	c = w.streams.Events.CachedInfo().Config
	c.AllowDirect = true
	_, err = w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(n.check("streams").Detail, "allow_direct")
	})
	n.stop()
}

// A few small messages may touch states of many MiB each. They are taken in several
// attempts, each of which keeps a bounded part of them in memory.
func TestBigStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	const sessions, size = 20, 64 << 10
	n.bound = sessions / 3 * size // half of them are more
	n.start(nil)
	key := func(i int) bus.Key { return bus.Key{Workspace: "w", Session: fmt.Sprint("big-", i)} }
	for i := range sessions {
		w.say(key(i), bus.ClassActivity, `{"activity":{"x":"`+strings.Repeat("x", size)+`"}}`)
	}
	n.finish()
	for i := range sessions {
		w.fail(key(i), "small")
	}
	var reads, attempts atomic.Int64
	n.start(func(at string) error {
		switch at {
		case "read":
			if reads.Add(1) == 1 {
				// So that the rest is taken at once, however slowly it comes.
				skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.delivered() })
			}
		case "projected":
			attempts.Add(1)
		}
		return nil
	})
	n.catchUp()
	require.Greater(t, attempts.Load(), reads.Load())
	n.stop()
	require.Len(t, rawTable(t, n.path), 2*sessions)
}

// delivered reports whether INGEST's consumers have sent all there is.
func (w *world) delivered() bool {
	all := w.streams.Ingest.ListConsumers(w.t.Context())
	for c := range all.Info() {
		if c.NumPending > 0 {
			return false
		}
	}
	return all.Err() == nil
}
