package materializer_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// batchOf returns the id of the atomic batch with which EVENTS took a number, "" if it
// took it alone.
func (w *world) batchOf(seq uint64) string {
	w.t.Helper()
	m, err := w.streams.Events.GetMsg(w.t.Context(), seq)
	require.NoError(w.t, err)
	return m.Header.Get("Nats-Batch-Id")
}

// eachWay runs a test with appends that wait for the one before, and with those that name it.
func eachWay(t *testing.T, run func(t *testing.T, waits bool)) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits=%t", waits), func(t *testing.T) { run(t, waits) })
	}
}

// A few facts are appended one by one, which costs fewer syncs than a batch; the facts
// of one message are not. Only where that was asked for do they have a header that halts
// a replicated stream.
func TestSeries_FewFacts(t *testing.T) { eachWay(t, testFewFacts) }

func testFewFacts(t *testing.T, waits bool) {
	w := newWorld(t)
	w.failMany(alpha, 3)
	n := w.node()
	n.waits = waits
	n.start(nil)
	n.catchUp()
	names := map[string]bool{}
	for seq := uint64(1); seq <= 3; seq++ {
		require.Empty(t, w.batchOf(seq))
		m, err := w.streams.Events.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		require.Equal(t, waits, m.Header.Get(jetstream.MsgIDHeader) == "")
		names[m.Header.Get(jetstream.MsgIDHeader)] = true
		if after := m.Header.Get(jetstream.ExpectedLastMsgIDHeader); after != "" {
			require.False(t, waits)
			require.True(t, names[after])
		}
	}
	s := newGenerator(rand.New(rand.NewPCG(1, 1)), w.subj).worker()
	for i := range 2 {
		at := int64(1)
		e := relayEvent{Format: 1, Ordinal: uint64(i + 1), RecordedAt: &at}
		e.Observation = fmt.Appendf(nil, `{"type":"elicitation_requested","data":{"request":{"id":"q%d","message":"m","fields":[]}}}`, i)
		s.seal(&e, s.previous(e.Ordinal))
		s.journal = append(s.journal, e)
	}
	w.say(s.key, bus.ClassProjection, fmt.Sprintf(`{"events":[%s,%s]}`, s.journal[0].text(), s.journal[1].text()))
	n.catchUp()
	require.NotEmpty(t, w.batchOf(4))
	require.Equal(t, w.batchOf(4), w.batchOf(5))
	w.check(n)
	n.stop()
}

// Another program that writes between two facts of a series takes one's place: the rest
// is not appended behind it before it has been followed.
func TestSeries_LosesRace(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) { testInBetween(t, 5, "sent", waits) }) // perhaps it is not taken yet
}

// A fact that is on its way behind one that is refused is refused as well, although
// EVENTS ends where it has to: else EVENTS had facts behind one that it lacks.
func TestSeries_NoneOvertakes(t *testing.T) {
	t.Parallel()
	testInBetween(t, 20, "projected", false) // not sent yet
}

// testInBetween has another program write to EVENTS when the seam is reached with the
// second of a few facts.
func testInBetween(t *testing.T, facts int, seam string, waits bool) {
	w := newWorld(t)
	w.failMany(alpha, facts)
	n := w.node()
	n.waits = waits
	var reached, foreign atomic.Uint64
	n.start(func(name string) error {
		if name != seam || reached.Add(1) != 2 {
			return nil
		}
		ack, err := w.js.PublishMsg(t.Context(), &nats.Msg{Subject: w.subj.Event(beta, bus.TypeError), Data: []byte(`{}`)})
		if err == nil {
			foreign.Store(ack.Sequence)
		}
		return err
	})
	n.catchUp()
	w.check(n, foreign.Load())
	n.stop()
	require.EqualValues(t, 1, n.stats.AppendsLost)
	require.Empty(t, n.asked())
}

// Two materializers that append the same few facts one by one lose and win among them,
// and give each once.
func TestSeries_TwoMaterializers(t *testing.T) {
	t.Parallel()
	contend(t, 4, 200)
}

// A crash in the middle of a series leaves a part of the facts: the rest follows.
func TestSeries_Crash(t *testing.T) { eachWay(t, testSeriesCrash) }

func testSeriesCrash(t *testing.T, waits bool) {
	w := newWorld(t)
	w.failMany(alpha, 5)
	n := w.node()
	n.waits = waits
	n.start(crashAt("sent", 3))
	require.ErrorIs(t, n.wait(), errCrash)
	// The third may have gone out only when the second was taken; nobody waits for that any more.
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.last(w.streams.Events) >= 2 })
	require.Less(t, w.last(w.streams.Events), uint64(5))
	n.start(nil)
	n.catchUp()
	require.EqualValues(t, 5, w.last(w.streams.Events))
	w.check(n)
	n.stop()
}
