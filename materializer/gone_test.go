package materializer_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// Rows were pruned, EVENTS was lost and made again from the table, and then the store is
// lost, too, and no checkpoint was ever written. The new store reads messages from INGEST
// whose facts were pruned: they had numbers, so nothing is rejected that somebody could
// send again, and what comes twice is a duplicate. Killed at its first commit, and begun
// again, it is the same.
func TestFollow_PrunedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before uint64
		left   int
	}{
		"some":                    {4, 5},
		"up to a forgotten one's": {5, 4},
		"all":                     {1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			say := func(from, to int) {
				for i := from; i <= to; i++ {
					w.fail(beta, fmt.Sprint(i), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(i))
					w.fail(alpha, fmt.Sprint(i), bus.HeaderEventID, fmt.Sprint(i))
				}
			}
			say(1, 2)
			gamma := bus.Key{Workspace: "w", Session: "gamma"}
			w.fail(gamma, "forgotten") // 5
			say(3, 4)
			n.catchUp()
			w.forget(gamma)
			n.catchUp()
			w.sayAll([]*nats.Msg{{Subject: w.subj.IngestAdmin(), Data: fmt.Appendf(nil, `{"op":"prune","before_seq":%d}`, c.before)}})
			n.finish()
			require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS"))
			d, _ := n.repair(false, 99)
			require.Equal(t, materializer.RepairRebuild, d.Action)
			w.events()

			b := w.node()
			b.start(crashAt("committed", 1))
			require.ErrorIs(t, b.wait(), errCrash)
			b.start(nil)
			b.catchUp()
			require.Empty(t, b.rejects())
			require.Equal(t, rawTable(t, n.path), rawTable(t, b.path))
			require.Len(t, rawTable(t, b.path), c.left)
			say(1, 4) // again
			w.fail(beta, "after", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "5")
			b.catchUp()
			b.sound()
			require.Len(t, rawTable(t, b.path), c.left+1)
			require.Empty(t, b.rejects())
			b.stop()
			n.start(nil)
			n.finish()
			require.Equal(t, rawTable(t, n.path), rawTable(t, b.path))
		})
	}
}

// Somebody has deleted messages from EVENTS, one of them below a foreign one. A new store
// reports them, and keeps no payload: sent again, what was seen would get a second number.
func TestFollow_DeletedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.catchUp()
	_, err := w.js.Publish(t.Context(), "skald.ev.w.x.error", []byte("foreign"))
	require.NoError(t, err)
	w.failMany(beta, 3)
	n.finish()
	for _, seq := range []uint64{1, 3, 6} {
		require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), seq))
	}
	b := w.node()
	b.start(nil)
	b.catchUp()
	list, err := b.st.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 3)
	for i, said := range []string{"numbers from 1 to 1 ", "numbers from 3 to 4 ", "numbers from 6 to 6 "} {
		require.Equal(t, bus.ReasonNotInEvents, list[i].Reason)
		require.Contains(t, list[i].Detail, said)
		require.False(t, list[i].Kept)
		require.NotZero(t, list[i].Size)
	}
	b.stop()
}
