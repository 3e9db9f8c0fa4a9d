package materializer_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// EVENTS is set back to a copy from before a session was forgotten, and holds it again
// under the old numbers. It is removed once more, and nothing else changes.
func TestCrash_EventsSetBackToBeforeAForget(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.failMany(alpha, 5)
	c.say(3)
	c.n.start(nil)
	c.n.finish()
	old := c.stoppedCopy("SKALD_EVENTS")
	c.forget(alpha)
	c.n.start(nil)
	c.n.finish()
	require.EqualValues(t, 3, c.messages())
	c.setStreamBack("SKALD_EVENTS", old)
	require.EqualValues(t, 8, c.messages())
	c.n.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return c.messages() == 3 })
	c.n.finish()
	c.goOn()
}

// The process is killed between two steps of overwriting a session. What it said is in no
// file when the next one is done.
func TestCrash_BetweenTwoStepsOfOverwriting(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.n.trims = true
	for round := range 5 {
		c.confess(round)
	}
	c.n.start(nil)
	c.n.finish()
	c.confess(5)
	c.world.say(alpha, bus.ClassControl, `{"op":"forget","secure":true}`)
	c.say(3)
	for i, at := range []string{"removed from EVENTS", "checkpoint written", "overwritten in INGEST"} {
		c.n.trims = i > 0 // else the keeper may come to the later steps before the remover to its own
		c.killed(at, 1)
	}
	c.n.start(nil)
	c.n.erased()
	require.Empty(t, filesWith(t, c.o.Dir, []byte(secret)))
	require.Empty(t, filesWith(t, filepath.Dir(c.n.path), []byte(secret)))
	c.n.catchUp()
	c.hear()
	const others = 2*6 + 3 // beta's and the publisher's
	require.Len(t, rawTable(t, c.n.path), others)
	require.EqualValues(t, others, c.messages())
	require.Empty(t, c.n.wentBack())
	c.n.stop()
}
