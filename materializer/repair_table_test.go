package materializer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
)

// Messages were deleted from EVENTS by hand: nothing needs a repair, and --rebuild
// brings them back, killed at any step and begun again.
func TestRepair_Rebuild(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T, w *world, k int) bool {
		n := w.node()
		n.start(nil)
		w.failMany(beta, 5)
		n.finish()
		c := w.events().Config
		c.Description, c.MaxAge = "the operator's own", 1000*3600*1e9
		_, err := w.js.UpdateStream(t.Context(), c)
		require.NoError(t, err)
		before := w.heardAll()
		require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), 3))
		d := n.diagnose(false)
		require.Equal(t, materializer.RepairNothing, d.Action)
		require.EqualValues(t, 1, d.Lacks)
		require.EqualValues(t, 3, d.FirstLacking)
		d, crashed := n.repair(true, k)
		require.Equal(t, materializer.RepairRebuild, d.Action)
		same(t, "EVENTS", before, w.heardAll())
		require.Equal(t, "the operator's own", w.events().Config.Description)
		require.True(t, w.events().Config.DenyPurge)
		n.start(nil)
		w.fail(beta, "after")
		n.catchUp()
		n.sound()
		n.stop()
		return crashed
	})
}

// A byte of a row, and a row, are lost in the table: EVENTS decides.
func TestRepair_TableDamaged(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"byte": `UPDATE events SET data = replace(data, 'message', 'massage') WHERE seq = 3`,
		"row":  `DELETE FROM events WHERE seq = 3`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			w.failMany(beta, 5)
			n.finish()
			n.sql(text)
			d, _ := n.repair(false, 99)
			require.Equal(t, materializer.RepairRenumber, d.Action)
			require.EqualValues(t, 3, d.Differs)
			require.Zero(t, d.Append)
			require.NotEqual(t, d.Epoch, d.NewEpoch, "somebody may have read it")
			n.start(nil)
			n.catchUp()
			n.sound()
			require.Len(t, rawTable(t, n.path), 5)
			n.stop()
		})
	}
}

// Both streams are gone, as with a JetStream directory that was removed: EVENTS comes
// back from the table, INGEST begins anew.
func TestCrash_EventsAndIngestGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	before := w.heardAll()
	w.whileStopped(func() { require.NoError(t, os.RemoveAll(filepath.Join(w.o.Dir, "jetstream"))) })
	d, _ := n.repair(false, 99)
	require.True(t, d.IngestMissing)
	same(t, "EVENTS", before, w.heardAll())
	in, err := w.js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	require.Equal(t, w.streams.Epoch, in.CachedInfo().Config.Metadata[bus.MetaEpoch])
	require.NotEqual(t, w.streams.IngestID, in.CachedInfo().Config.Metadata[bus.MetaIngestID])
}

// A long run of numbers without rows costs little: they are filled in batches and taken
// out with one request.
func TestRepair_LongHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(beta, "first")
	w.failMany(alpha, 3000)
	w.fail(beta, "last")
	n.catchUp()
	w.forget(alpha)
	// They are removed one by one.
	skaldtest.Eventually(t, 6*skaldtest.Timeout, func() bool { return w.messages() == 2 }, "the forgotten one's are not removed")
	n.finish()
	require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS"))
	n.repair(false, 99)
	info := w.events()
	require.EqualValues(t, 3002, info.State.LastSeq)
	require.EqualValues(t, 2, info.State.Msgs, fmt.Sprint(info.State))
	n.start(nil)
	n.catchUp()
	w.check(n)
	n.stop()
}

// Counts of sessions and of status that are wrong are counted anew.
func TestRepair_Recount(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"session": `UPDATE sessions SET event_count = 7, first_seq = 3, last_seq = 1 WHERE session_id = 'beta'`,
		"held":    `UPDATE sessions SET held_pages = 2`,
		"status":  `UPDATE position SET sessions = 9, held = 4, rejects = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			w.failMany(beta, 5)
			n.finish()
			n.sql(text)
			d, _ := n.repair(false, 99)
			require.Equal(t, materializer.RepairRecount, d.Action)
			require.Equal(t, d.Epoch, d.NewEpoch)
			n.start(nil)
			w.fail(beta, "after")
			n.catchUp()
			w.check(n)
			n.stop()
		})
	}
}
