package materializer_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// INGEST is set back to an earlier copy, again and again, to newer ones and to older
// ones, while the materializer runs and before it starts, with and without going on
// before anybody looks: what was read before is known by its chain, count, id or place,
// what is new is read, numbers stay, and each time is reported.
func TestCrash_IngestRolledBack(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		for _, overtaken := range []bool{true, false} {
			t.Run(fmt.Sprintf("running=%v,overtaken=%v", running, overtaken), func(t *testing.T) {
				t.Parallel()
				w := newRollback(t)
				w.n.start(nil)
				for i := range 3 {
					w.mix(100 + w.r.IntN(100))
					w.heard()
					if i < 2 {
						w.copyIngest()
					}
				}
				rows := rawTable(t, w.n.path)
				for nth := 1; nth <= 4; nth++ {
					if !running {
						w.n.stop()
					}
					w.setBack(w.older(nth), overtaken)
					if !running {
						w.n.start(nil)
					}
					w.n.gone(nth, bus.ReasonIngestRolledBack)
					w.mix(1 + w.r.IntN(150)) // with none, the next copy is what is there
					w.wentBack(bus.ReasonIngestRolledBack)
					w.n.saysLoss(fmt.Sprintf("%d to acknowledge", nth))
					w.copyIngest()
				}
				require.GreaterOrEqual(t, len(rawTable(t, w.n.path)), 1)
				require.NotEmpty(t, rows)
				w.n.stop()
				w.n.start(nil) // nothing more is found
				w.heard()
				require.Len(t, w.n.wentBack(), 4)
				w.n.stop()
			})
		}
	}
}

// INGEST is deleted and made anew, with another id or with the same one, while the
// materializer runs and before it starts.
func TestCrash_IngestRecreated(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"another", ""} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("id=%q,running=%v", id, running), func(t *testing.T) {
				t.Parallel()
				w := newRollback(t)
				w.n.start(nil)
				w.mix(200)
				w.heard()
				if !running {
					w.n.stop()
				}
				metadata, reason := map[string]string{}, bus.ReasonIngestRolledBack
				if id != "" {
					metadata[bus.MetaIngestID], reason = id, bus.ReasonIngestRecreated
				}
				w.recreate(w.streams.Ingest, metadata)
				if !running {
					w.n.start(nil)
				}
				w.n.gone(1, reason)
				w.mix(300)
				w.wentBack(reason)
				require.Equal(t, []back{{reason, 0}}, w.n.wentBack())
				w.n.saysLoss("it holds no message by which it is known")
				if id != "" {
					b, err := w.n.st.Bus(t.Context())
					require.NoError(t, err)
					require.Equal(t, id, b.IngestID)
				}
				w.n.stop()
			})
		}
	}
}

// The position's message alone is gone: reading goes back, and finds a hole.
func TestIngest_NewestGone(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.failMany(alpha, 10)
	w.heard()
	w.n.stop()
	require.NoError(t, w.streams.Ingest.DeleteMsg(t.Context(), 10))
	w.fail(beta, "after")
	w.n.start(nil)
	w.n.gone(1, bus.ReasonIngestRolledBack)
	w.n.gone(1, bus.ReasonIngestHole)
	w.wentBack(bus.ReasonIngestRolledBack)
	require.Len(t, rawTable(t, w.n.path), 11)
	w.n.stop()
}

// INGEST is set back while messages are in flight: they were said, and are committed
// before the store goes back. Sent again, they are known.
func TestIngest_RolledBackInFlight(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	hold, reached := make(chan struct{}), make(chan struct{})
	var commits atomic.Int64
	w.n.start(func(name string) error {
		if name == "before commit" && commits.Add(1) == 2 {
			close(reached)
			<-hold
		}
		return nil
	})
	w.fail(alpha, "before")
	w.n.catchUp()
	w.copyIngest()
	id := func(n int) []string {
		return []string{bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, strconv.Itoa(n)}
	}
	w.fail(alpha, "in flight", id(1)...)
	<-reached
	require.EqualValues(t, 2, w.last(w.streams.Events))
	w.setStreamBack("SKALD_INGEST", w.copies[0])
	close(hold)
	w.n.gone(1, bus.ReasonIngestRolledBack)
	w.fail(alpha, "in flight", id(1)...)
	w.fail(alpha, "new", id(2)...)
	w.n.catchUp()
	rows := rawTable(t, w.n.path)
	require.Len(t, rows, 3)
	require.Contains(t, rows[1], "in flight")
	require.Contains(t, rows[2], `"new"`)
	require.EqualValues(t, 3, w.last(w.streams.Events))
	require.EqualValues(t, 1, w.n.status().Duplicates)
	w.n.stop()
}

// Two stores that have read the same go back each by itself, whichever is first, and
// come to the same table.
func TestIngest_TwoStores(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	other := w.world.node()
	heard := newModel(w.subj, w.streams.Horizon.Nanoseconds())
	w.n.start(nil)
	other.start(nil)
	w.mix(150)
	w.heard()
	w.copyIngest()
	w.mix(150)
	w.heard()
	other.catchUp()
	w.compare(heard, other, w.r, nil)
	for nth := 1; nth <= 3; nth++ {
		w.setBack(w.older(nth), nth%2 == 0)
		w.mix(150)
		w.n.gone(nth, bus.ReasonIngestRolledBack)
		other.gone(nth, bus.ReasonIngestRolledBack)
		w.wentBack(bus.ReasonIngestRolledBack)
		other.catchUp()
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(other.wentBack()) >= nth })
		heard.back(bus.ReasonIngestRolledBack, other.wentBack()[nth-1].seq)
		w.compare(heard, other, w.r, nil)
		same(t, "what the stores remember", w.n.states(w.m.sessions), other.states(w.m.sessions))
		require.Empty(t, w.n.rejectsOf(bus.ReasonNotInEvents))
		require.Empty(t, other.rejectsOf(bus.ReasonNotInEvents))
		w.copyIngest()
	}
	w.n.stop()
	other.stop()
}

// A store that is down while INGEST is set back and another one reads on follows what
// that one has appended, under sequences that were issued again.
func TestIngest_LateStore(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	late := w.world.node()
	w.n.start(nil)
	late.start(nil)
	w.failMany(alpha, 5)
	w.heard()
	w.copyIngest()
	w.failMany(beta, 5)
	w.heard()
	late.catchUp()
	late.stop()
	w.setBack(w.copies[0], false)
	w.n.gone(1, bus.ReasonIngestRolledBack)
	w.failMany(alpha, 8) // 6 to 13: two stores have read up to 10
	w.wentBack(bus.ReasonIngestRolledBack)
	late.start(nil)
	late.catchUp()
	require.Len(t, rawTable(t, w.n.path), 18)
	same(t, "the late store's table", rawTable(t, w.n.path), rawTable(t, late.path))
	same(t, "what the late store remembers", w.n.states(w.m.sessions), late.states(w.m.sessions))
	require.Empty(t, late.rejectsOf(bus.ReasonNotInEvents))
	w.n.stop()
	late.stop()
}

// Another store was faster: it has gone back, and EVENTS holds its facts of sequences
// that were issued again. They lie below the position, and are not taken for rows of
// what was read: they are followed with their messages.
func TestIngest_SequencesIssuedAgain(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	planted := make(chan struct{})
	plant := sync.OnceFunc(func() { close(planted) })
	defer plant()
	w.n.start(func(name string) error {
		if name == "going back" { // it is the slower one
			<-planted
		}
		return nil
	})
	w.failMany(alpha, 10)
	w.heard()
	w.recreate(w.streams.Ingest, nil)
	w.failMany(beta, 3)
	for i, msg := range w.read(w.streams.Ingest, 0)[:2] {
		w.plant(happened{key: beta, typ: "error", recorded: 1, data: fmt.Sprintf(`{"message":"%d","command_id":null}`, i), origin: bus.Origin{Seq: msg.seq, Time: msg.time}})
	}
	plant()
	w.n.gone(1, bus.ReasonIngestRolledBack)
	w.n.catchUp()
	require.Empty(t, w.n.rejectsOf(bus.ReasonNotInEvents))
	rows := rawTable(t, w.n.path)
	require.Len(t, rows, 13)
	require.Contains(t, rows[12], `{"message":"2",`)
	w.n.stop()
}

// INGEST is missing: the materializer waits and says so. What comes in its place is
// read if it is one of this bus.
func TestIngest_Missing(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.failMany(alpha, 5)
	w.heard()
	c := w.streams.Ingest.CachedInfo().Config
	require.NoError(t, w.js.DeleteStream(t.Context(), c.Name))
	says := func(what string) {
		t.Helper()
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return strings.Contains(w.n.check("streams").Detail, what) }, what)
	}
	says("stream INGEST is missing")

	bare := c
	bare.Metadata = map[string]string{}
	_, err := w.js.CreateStream(t.Context(), bare)
	require.NoError(t, err)
	says("metadata skald.ingest_id is missing")
	require.NoError(t, w.js.DeleteStream(t.Context(), c.Name))

	c.Metadata[bus.MetaIngestID] = "another"
	_, err = w.js.CreateStream(t.Context(), c)
	require.NoError(t, err)
	w.fail(beta, "on")
	w.n.gone(1, bus.ReasonIngestRecreated)
	w.wentBack(bus.ReasonIngestRecreated)

	require.NoError(t, w.js.DeleteStream(t.Context(), c.Name))
	c.Metadata[bus.MetaIngestID], c.Metadata[bus.MetaEpoch] = "a third", "of another bus"
	_, err = w.js.CreateStream(t.Context(), c)
	require.NoError(t, err)
	err = w.n.wait()
	require.ErrorIs(t, err, bus.ErrOtherBus)
	require.ErrorContains(t, err, "of another bus")
}
