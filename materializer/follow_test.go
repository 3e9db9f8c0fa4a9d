package materializer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

var (
	alpha = bus.Key{Workspace: "w", Session: "alpha"}
	beta  = bus.Key{Workspace: "w", Session: "beta"}
)

// check compares a node that has caught up with a model that has heard nothing yet.
func (w *world) check(n *node, foreign ...uint64) {
	w.t.Helper()
	set := map[uint64]bool{}
	for _, f := range foreign {
		set[f] = true
	}
	w.compare(newModel(w.subj, w.streams.Horizon.Nanoseconds()), n, rand.New(rand.NewPCG(1, 1)), set)
}

// An append whose answer is lost is a question, and EVENTS' end is the answer: what
// it holds is followed, not appended again.
func TestFollow_AnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	n := w.node()
	n.url = p.url()
	var once atomic.Bool
	n.start(func(name string) error {
		if name == "projected" && once.CompareAndSwap(false, true) {
			p.silent.Store(true)
		}
		return nil
	})
	w.fail(alpha, "a")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return once.Load() && w.last(w.streams.Events) == 1 })
	w.fail(alpha, "b")
	p.cut()
	n.catchUp()
	w.check(n)
	require.NotZero(t, n.m.Stats().Questions)
	n.stop()
}

// plant writes a fact to EVENTS by hand, as a materializer would have.
func (w *world) plant(f happened) uint64 {
	w.t.Helper()
	n := w.last(w.streams.Events) + 1
	h := nats.Header{}
	f.origin.SetHeaders(h)
	ack, err := w.js.PublishMsg(w.t.Context(), &nats.Msg{Subject: w.subj.Event(f.key, f.typ), Header: h, Data: []byte(f.wire(n))})
	require.NoError(w.t, err)
	require.Equal(w.t, n, ack.Sequence)
	return n
}

// A row whose message INGEST does not hold, or holds with another time, is copied
// as it is: EVENTS decides, whatever the own projection says.
func TestFollow_LostOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.fail(alpha, "a")
	in := w.read(w.streams.Ingest, 0)
	lost := happened{key: beta, typ: "error", recorded: 1, data: `{"message":"lost","command_id":null}`}
	lost.origin = bus.Origin{Seq: 99, Time: 5}
	w.plant(lost)
	rolled := lost
	rolled.origin = bus.Origin{Seq: 1, Time: in[0].time - 1}
	w.plant(rolled)
	n.start(nil)
	n.catchUp()
	// Idle, it follows as well.
	lost.origin.Index = 1
	w.plant(lost)
	n.catchUp()
	rows := rawTable(t, n.path)
	require.Len(t, rows, 4)
	require.Contains(t, rows[0], "origin 99 5 0")
	require.Contains(t, rows[1], fmt.Sprintf("origin 1 %d 0", in[0].time-1))
	require.Contains(t, rows[2], fmt.Sprintf("origin 1 %d 0", in[0].time))
	require.Contains(t, rows[3], "origin 99 5 1")
	require.Empty(t, n.rejects(), "the message's own fact is there as well")
	n.stop()
}

// A message that no materializer wrote takes a number, is no row, and is counted:
// without an origin, with a body of another number, or of another session.
func TestCrash_EventsHoldsWhatNoMaterializerWrote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.fail(alpha, "a")
	n.start(nil)
	n.catchUp()
	ack, err := w.js.Publish(t.Context(), w.subj.Event(alpha, "error"), []byte(`{"seq":2}`))
	require.NoError(t, err)
	f := happened{key: alpha, typ: "error", data: `{}`, origin: bus.Origin{Seq: 1, Time: 1}}
	h := nats.Header{}
	f.origin.SetHeaders(h)
	for _, body := range []string{f.wire(9), (&happened{key: beta, typ: "error", data: `{}`}).wire(4)} {
		_, err := w.js.PublishMsg(t.Context(), &nats.Msg{Subject: w.subj.Event(alpha, "error"), Header: h, Data: []byte(body)})
		require.NoError(t, err)
	}
	w.fail(alpha, "b")
	n.catchUp()
	w.check(n, ack.Sequence, ack.Sequence+1, ack.Sequence+2)
	n.stop()
}

// newWorldBefore returns a world with one fact, which stays, and a copy of the store that a
// test goes back to.
func newWorldBefore(t *testing.T) (w *world, n *node, old string) {
	t.Helper()
	w = newWorld(t)
	n = w.node()
	w.fail(beta, "stays")
	n.start(nil)
	n.catchUp()
	n.stop()
	old = n.path + ".old"
	n.copyTo(old)
	return w, n, old
}

// The removal of a forgotten session takes EVENTS' last message. What that came from
// is written down first, so that a store from before does not append it again.
func TestFollow_EndRemoved(t *testing.T) {
	t.Parallel()
	w, n, old := newWorldBefore(t)

	w.fail(alpha, "goes")
	w.fail(alpha, "goes as well") // EVENTS then ends with a message later than the one before
	n.start(nil)
	n.catchUp()
	w.forget(alpha)
	n.catchUp()
	w.check(n)
	n.stop()
	bucket, err := w.js.ObjectStore(t.Context(), w.subj.StateBucket())
	require.NoError(t, err)
	_, err = bucket.GetInfo(t.Context(), "events-end/3")
	require.NoError(t, err)

	n.restore(old)
	n.start(nil)
	n.catchUp()
	require.EqualValues(t, 3, w.last(w.streams.Events))
	w.check(n)
	n.stop()

	empty := w.node()
	empty.start(nil)
	empty.catchUp()
	require.EqualValues(t, 3, w.last(w.streams.Events))
	w.check(empty)
	empty.stop()
}

// The last facts of EVENTS are removed, and messages that no materializer wrote come
// behind them, before that or after. A store from before still learns that they were there.
func TestFollow_EndRemovedBelowForeign(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before=%v", before), func(t *testing.T) {
			t.Parallel()
			w, n, old := newWorldBefore(t)

			foreign := func() {
				for range 2 {
					_, err := w.js.Publish(t.Context(), w.subj.Event(beta, "error"), []byte(`{"seq":1}`))
					require.NoError(t, err)
				}
			}
			w.failMany(alpha, 2)
			n.start(nil)
			n.catchUp()
			if before {
				foreign()
			}
			w.forget(alpha)
			n.catchUp()
			if !before {
				foreign()
			}
			n.finish()
			require.EqualValues(t, 5, w.last(w.streams.Events))

			n.restore(old)
			empty := w.node()
			for _, b := range []*node{n, empty} {
				b.start(nil)
				b.catchUp()
				require.EqualValues(t, 5, w.last(w.streams.Events))
				require.Empty(t, b.rejects())
				b.stop()
			}
			w.fail(beta, "goes on")
			for _, b := range []*node{n, empty} {
				b.start(nil)
				b.catchUp()
				w.check(b, 4, 5)
				b.stop()
			}
		})
	}
}

// A session is forgotten while its rows are in EVENTS only: they are followed, and
// leave both.
func TestFollow_ForgottenInEventsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.fail(alpha, "goes")
	w.fail(beta, "stays")
	n.start(w.crashBeforeCommit(2))
	require.ErrorIs(t, n.wait(), errCrash)
	require.EqualValues(t, 2, w.last(w.streams.Events))
	w.forget(alpha)
	n.start(nil)
	n.catchUp()
	w.check(n)
	require.Len(t, rawTable(t, n.path), 1)
	n.stop()
}

// A connection that breaks while EVENTS is followed loses what was on its way: a
// consumer without acknowledgements does not send it again. A row that was lost
// there looks like a number that is gone, and must not be passed as one.
func TestFollow_BrokenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.node()
	a.start(nil)
	const rows = 10_000
	w.failMany(alpha, rows)
	a.catchUp()

	b := w.node()
	broken := 0
	b.start(func(name string) error {
		if name == "read" && broken < 8 {
			broken++
			// While the worker follows: it has the messages at hand, and EVENTS'
			// rows are on their way.
			time.AfterFunc(3*time.Millisecond, func() { _ = b.nc.ForceReconnect() })
		}
		return nil
	})
	b.catchUp()
	same(t, "the follower's table", rawTable(t, a.path), rawTable(t, b.path))
	require.Len(t, rawTable(t, b.path), rows)
	a.stop()
	b.stop()
}

// hints are what a node's listeners hear.
func TestHints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sub, err := w.nc.SubscribeSync("skald.done.>")
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	w.fail(alpha, "a", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
	w.fail(alpha, "a", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
	w.say(alpha, bus.ClassError, `{`, bus.HeaderEventID, "id")
	w.say(alpha, bus.ClassProjection, `{"events":[]}`)
	w.forget(beta)
	w.fail(beta, "late")
	n := w.node()
	n.start(nil)
	zeros := strings.Repeat("0", 64)
	for _, want := range []string{
		`skald.done.w.alpha {"ingest_seq":1,"outcome":"applied","publisher":"p","publisher_seq":1}`,
		`skald.done.w.alpha {"ingest_seq":2,"outcome":"duplicate","publisher":"p","publisher_seq":1}`,
		`skald.done.w.alpha {"ingest_seq":3,"outcome":"rejected","reason":"bad_body","event_id":"id"}`,
		`skald.done.w.alpha {"ingest_seq":4,"outcome":"rejected","reason":"bad_page","frontier":{"ordinal":0,"digest":"` + zeros + `"}}`,
		`skald.done.w.beta {"ingest_seq":5,"outcome":"applied"}`,
		`skald.done.w.beta {"ingest_seq":6,"outcome":"dropped"}`,
	} {
		msg, err := sub.NextMsg(skaldtest.Timeout)
		require.NoError(t, err)
		require.Equal(t, want, msg.Subject+" "+string(msg.Data))
	}
	pos, err := n.st.Reader().Position(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 6, pos.IngestSeq, "a hint follows the commit")
	n.stop()
}

// A prune that reaches beyond EVENTS' end takes what came before it, and nothing
// that comes after it, whether or not that is committed with it.
func TestPrune_Ahead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	live := w.node()
	live.start(nil)
	w.fail(alpha, "before")
	live.catchUp()
	w.sayAll([]*nats.Msg{{Subject: w.subj.IngestAdmin(), Data: []byte(`{"op":"prune","before_seq":1000000}`)}})
	live.catchUp()
	w.fail(alpha, "after")
	live.catchUp()

	late := w.node()
	late.start(nil)
	late.catchUp()
	for _, n := range []*node{live, late} {
		require.Len(t, rawTable(t, n.path), 1)
		s, err := n.st.Reader().Status(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Oldest)
		n.stop()
	}
}

// An append that is refused, since a foreign message came between, must not be
// overtaken by the next one, which that message makes room for: EVENTS would end
// with facts behind the missing ones, and those could not be appended any more.
func TestFollow_RefusedAppendIsNotOvertaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	reads := 0
	n.start(func(name string) error {
		if name != "read" {
			return nil
		}
		if reads++; reads > 1 {
			return nil
		}
		// One message is at hand, and its number is taken by a foreign one. More are
		// read meanwhile, so that another batch follows without a pause.
		if _, err := w.js.Publish(context.Background(), w.subj.Event(beta, "error"), []byte(`{}`)); err != nil {
			return err
		}
		w.failMany(alpha, 100)
		for delivered := false; !delivered; {
			for c := range w.streams.Ingest.ListConsumers(context.Background()).Info() {
				delivered = c.NumPending == 0
			}
		}
		return nil
	})
	w.fail(alpha, "first")
	n.catchUp()
	w.check(n, 1)
	n.stop()
}
