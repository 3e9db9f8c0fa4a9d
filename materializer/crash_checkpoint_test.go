package materializer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// checkpointCrash kills the process at the point of its first or second checkpoint, and
// requires that the next start trims all the same, and that a new store comes back from
// what is there.
func checkpointCrash(t *testing.T, points ...string) {
	t.Parallel()
	for _, at := range points {
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprintf("%s %d", at, nth), func(t *testing.T) {
				t.Parallel()
				c := newCrash(t)
				c.n.trims = true
				c.say(3)
				p := part{Path: c.n.path, At: at, Nth: nth, Trims: true}
				r := c.play(p)
				for round := 0; r.runs(); round++ {
					c.mix(round)
					last := c.last(c.streams.Ingest)
					skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !r.runs() || c.begins() == last })
					require.Less(t, round, 5, "it does not come to that point")
				}
				r.isKilled()
				c.hear()
				c.n.start(nil)
				c.fail(alpha, "on")
				c.n.catchUp()
				c.trimmedTo(c.last(c.streams.Ingest))
				late := c.node()
				late.start(nil)
				late.catchUp()
				require.Equal(t, c.n.lines(), late.lines())
				late.stop()
				c.n.stop()
			})
		}
	}
}

// A checkpoint without its manifest does not count.
func TestCrash_InTheMiddleOfACheckpoint(t *testing.T) {
	checkpointCrash(t, "checkpoint: snapshot", "checkpoint: parts sent", "checkpoint: read back")
}

// A trim that was not made, or not heard of, is made next time.
func TestCrash_CheckpointWrittenNotTrimmed(t *testing.T) {
	checkpointCrash(t, "checkpoint written", "before trim", "trimmed")
}

// A new store's process is killed while it copies rows up to the checkpoint, before and
// after it has taken it.
func TestCrash_WhileRowsAreCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.start(nil)
	w.mix(0)
	w.failMany(beta, 2500)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	want := n.lines()
	for _, p := range []part{{At: "some rows copied", Nth: 1}, {At: "some rows copied", Nth: 2}, {At: "rows copied", Nth: 1}, {At: "checkpoint taken", Nth: 1}} {
		late := w.node()
		p.Path = late.path
		w.play(p).isKilled()
		late.start(nil)
		late.catchUp()
		require.Equal(t, want, late.lines(), p.At)
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return late.m.Ready() == nil })
		late.stop()
	}
	n.stop()
}
