package materializer_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// INGEST was trimmed by hand beyond the newest checkpoint. A store that knows more than
// that one reads on behind what nobody has read, and reports it. A new store takes the
// checkpoint, takes the rows that came after it over from EVENTS, and reports that.
func TestComeBack_ShortCheckpoint(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.failMany(alpha, 10)
	w.fail(beta, "is read")
	w.fail(beta, "comes after the hole")
	w.heard()
	w.n.stop()
	w.failMany(alpha, 3)
	hole := w.last(w.streams.Ingest) - 1
	require.NoError(t, w.streams.Ingest.DeleteMsg(t.Context(), hole))
	w.n.start(nil)
	w.n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.n.m.Stats().Checkpoints == 1 }, "the hole makes one due")
	short := w.checkpoints()[0].Position
	require.GreaterOrEqual(t, short, hole)
	w.failMany(beta, 10)
	w.n.catchUp()
	w.n.stop()

	w.failMany(alpha, 5)
	unread := w.last(w.streams.Ingest)
	require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(unread)))
	w.n.start(nil)
	w.n.gone(1, bus.ReasonIngestTrimmed)
	w.n.catchUp()
	require.EqualValues(t, 1+4, w.n.status().Holes)
	rows := rawTable(t, w.n.path)
	require.Len(t, rows, 10+2+2+10+1)
	// The store that went on owes a checkpoint of what is no longer in INGEST. Without that
	// one the new store has only the first.
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.n.m.Stats().Checkpoints > 0 }, "it is written")
	w.n.stop()
	for _, c := range w.checkpoints() {
		if c.Position > short {
			require.NoError(t, w.bucket().Objects().Delete(t.Context(), c.Name+"/manifest"))
		}
	}

	late := w.world.node()
	late.start(nil)
	late.catchUp()
	require.Equal(t, rows, rawTable(t, late.path))
	require.Len(t, late.rejectsOf(bus.ReasonTakenOver), 1, "only beta has rows after the checkpoint")
	require.Contains(t, late.rejectsOf(bus.ReasonIngestTrimmed)[0], fmt.Sprintf("messages %d to %d of INGEST are gone", short+1, unread-1))
	w.n.start(nil)
	w.fail(beta, "on")
	w.fail(alpha, "on")
	w.n.catchUp()
	late.catchUp()
	require.Equal(t, rawTable(t, w.n.path), rawTable(t, late.path))
	w.n.stop()
	late.stop()
}

// checkpointed returns a node that runs and makes no checkpoint but those of ten events of
// each of two sessions.
func (w *world) checkpointed() *node {
	w.t.Helper()
	n := w.trimmer()
	n.start(nil)
	w.failMany(alpha, 10)
	w.failMany(beta, 10)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	n.stop()
	n.trims = false
	n.start(nil)
	return n
}

// newStoreIs compares a new store with the node, which has so many rows, and stops both.
func (w *world) newStoreIs(n *node, rows int) {
	w.t.Helper()
	late := w.node()
	late.start(nil)
	late.catchUp()
	require.Len(w.t, rawTable(w.t, late.path), rows)
	require.Equal(w.t, n.lines(), late.lines())
	n.stop()
	late.stop()
}

// A session is forgotten after the newest checkpoint was made, and its messages are gone
// from EVENTS: a new store takes the checkpoint all the same.
func TestComeBack_ForgottenSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.checkpointed()
	w.failMany(alpha, 5)
	w.forget(beta)
	w.failMany(alpha, 5)
	n.catchUp()
	w.newStoreIs(n, 20)
}

// Rows were pruned after the newest checkpoint was made, and EVENTS was made again from the
// table since: a new store takes the checkpoint all the same.
func TestComeBack_PrunedSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.checkpointed()
	w.sayAll([]*nats.Msg{{Subject: w.subj.IngestAdmin(), Data: []byte(`{"op":"prune","before_seq":8}`)}})
	w.failMany(alpha, 5)
	n.catchUp()
	for seq := uint64(1); seq < 8; seq++ { // as a repair leaves it
		require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), seq))
	}
	w.newStoreIs(n, 18)
}
