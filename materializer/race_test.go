package materializer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// asked returns why appends of the stopped node were questions, but for those that the
// server did not answer in time: how busy the machine is, is not the test's matter.
func (n *node) asked() (why []string) {
	for line := range strings.Lines(n.said.String()) {
		if strings.Contains(line, "appending to EVENTS is interrupted") && !strings.Contains(line, "no answer within") {
			why = append(why, line)
		}
	}
	return why
}

// Two materializers race for every append: whoever loses follows, both get their
// share, and both tables equal EVENTS and the model.
func TestRace_TwoMaterializers(t *testing.T) {
	const contested, share = 1000, 10
	w := newWorld(t)
	a, b := w.node(), w.node()
	a.start(nil)
	b.start(nil)
	done, err := w.nc.SubscribeSync("skald.done.>")
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	keys := []bus.Key{alpha, beta, {Workspace: "x", Session: "alpha"}}
	lost := func() int64 { return a.m.Stats().AppendsLost + b.m.Stats().AppendsLost }
	begin := time.Now()
	said := 0
	for ; lost() < contested; said++ {
		w.fail(keys[said%len(keys)], "m")
		for range 2 { // both have committed it, and wait for the next
			_, err := done.NextMsg(skaldtest.Timeout)
			require.NoError(t, err)
		}
		require.Less(t, said, 20*contested, "only %d appends were contested", lost())
	}
	took := time.Since(begin)
	a.catchUp()
	b.catchUp()
	w.check(a)
	w.check(b)
	a.stop()
	b.stop()
	t.Logf("%d messages in %s: a won %d and lost %d appends, b won %d and lost %d",
		said, took.Round(time.Millisecond), a.stats.AppendsWon, a.stats.AppendsLost, b.stats.AppendsWon, b.stats.AppendsLost)
	won := a.stats.AppendsWon + b.stats.AppendsWon
	require.GreaterOrEqual(t, a.stats.AppendsWon*share, won)
	require.GreaterOrEqual(t, b.stats.AppendsWon*share, won)
	require.Empty(t, append(a.asked(), b.asked()...))
}

// Batches of which most is sent before the append before them is answered: one that
// comes after a refused one is not committed.
func TestRace_Bursts(t *testing.T) {
	t.Parallel()
	contend(t, 2500, 60)
}

// contend lets two materializers append the same bursts of facts until some appends were
// contested, in fewer bursts than most, and compares what they come to.
func contend(t *testing.T, burst, most int) {
	t.Helper()
	const contested = 5
	w := newWorld(t)
	a, b := w.node(), w.node()
	a.start(nil)
	b.start(nil)
	lost := func() int64 { return a.m.Stats().AppendsLost + b.m.Stats().AppendsLost }
	rounds := 0
	for ; lost() < contested; rounds++ {
		require.Less(t, rounds, most, "only %d appends were contested", lost())
		w.failMany([]bus.Key{alpha, beta}[rounds%2], burst)
		a.catchUp()
		b.catchUp()
	}
	w.check(a)
	w.check(b)
	a.stop()
	b.stop()
	t.Logf("%d bursts: a lost %d appends, b lost %d", rounds, a.stats.AppendsLost, b.stats.AppendsLost)
	require.Empty(t, append(a.asked(), b.asked()...))
}
