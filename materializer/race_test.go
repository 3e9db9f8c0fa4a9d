package materializer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

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
	require.Zero(t, a.stats.Questions+b.stats.Questions)
}
