package materializer_test

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// A purge of what is materialized is what the trim does: nothing is wrong.
func TestIngest_PurgedBelow(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.mix(100)
	w.heard()
	require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(60)))
	w.mix(100)
	w.heard()
	w.n.stop()
	require.NoError(t, w.streams.Ingest.Purge(t.Context()))
	w.n.start(nil)
	w.mix(100)
	w.heard()
	require.Empty(t, w.n.wentBack())
	require.True(t, w.n.check("ingest_loss").OK)
	w.n.stop()
}

// INGEST is trimmed, by another store, between the question where it begins and the one for
// a message that was read long ago, which is gone then. It was taken for a stream that had
// been set back.
func TestIngest_TrimmedWhileItIsCompared(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.fail(alpha, "leaves a mark")
	w.n.catchUp()
	w.fail(alpha, "the position")
	w.n.finish()
	streams := w.streams
	streams.Ingest = &answered{Stream: w.streams.Ingest, late: func(call int64) {
		if call == 1 {
			require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(2)))
		}
	}}
	w.n.open()
	w.n.run(streams, nil)
	w.fail(alpha, "on")
	w.n.catchUp()
	require.EqualValues(t, 2, w.first(w.streams.Ingest))
	require.Len(t, rawTable(t, w.n.path), 3)
	require.Empty(t, w.n.wentBack())
	w.n.stop()
}

// A purge of what nobody has read is a loss, which is reported with its range; reading
// goes on behind it, also where nothing is left.
func TestCrash_IngestTrimmedAboveThePosition(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.failMany(alpha, 10)
	w.heard()
	w.n.stop()
	w.failMany(beta, 10)
	require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(16)))
	w.n.start(nil)
	w.n.gone(1, bus.ReasonIngestTrimmed)
	w.wentBack(bus.ReasonIngestTrimmed)
	w.n.saysLoss("INGEST begins at 16: messages 11 to 15 are gone without having been read")
	s, err := w.n.st.Reader().Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, s.Holes)
	w.n.stop()

	w.failMany(beta, 5)
	require.NoError(t, w.streams.Ingest.Purge(t.Context()))
	w.n.start(nil)
	w.n.gone(2, bus.ReasonIngestTrimmed)
	w.wentBack(bus.ReasonIngestTrimmed)
	require.Len(t, rawTable(t, w.n.path), 15)
	w.fail(alpha, "on")
	w.heard()
	w.n.stop()
}

// The purge comes while the materializer reads: what it has read is not lost.
func TestIngest_PurgedWhileReading(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	var once atomic.Bool
	w.n.start(func(name string) error {
		if name == "before commit" && once.CompareAndSwap(false, true) {
			return w.streams.Ingest.Purge(t.Context())
		}
		return nil
	})
	w.failMany(alpha, 100)
	w.n.catchUp()
	w.fail(beta, "after")
	w.n.catchUp()
	require.EqualValues(t, 101, int64(len(rawTable(t, w.n.path)))+w.n.status().Holes)
	if holes := w.n.status().Holes; holes > 0 {
		require.NotEmpty(t, w.n.rejectsOf(bus.ReasonIngestTrimmed))
	}
	w.n.stop()
}

func (n *node) status() store.Status {
	s, err := n.st.Reader().Status(n.w.t.Context())
	require.NoError(n.w.t, err)
	return s
}

// Another store has read what is gone, and there is no checkpoint: the rows are taken over
// from it, and that is reported.
func TestIngest_PurgedAboveOneOfTwo(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	late := w.world.node()
	late.start(nil)
	w.n.start(nil)
	w.failMany(alpha, 10)
	late.catchUp()
	late.stop()
	w.failMany(beta, 10)
	w.heard()
	require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(16)))
	w.fail(alpha, "after")
	w.heard()
	empty := w.world.node()
	for _, n := range []*node{late, empty} {
		n.start(nil)
		n.catchUp()
		require.Equal(t, rawTable(t, w.n.path), rawTable(t, n.path))
		require.Len(t, n.rejectsOf(bus.ReasonIngestTrimmed), 1)
		require.Contains(t, n.rejectsOf(bus.ReasonIngestTrimmed)[0], "to 15 of INGEST are gone and no checkpoint knows them")
		require.Len(t, n.rejectsOf(bus.ReasonTakenOver), map[*node]int{late: 1, empty: 2}[n])
		n.stop()
	}
	w.n.stop()
}
