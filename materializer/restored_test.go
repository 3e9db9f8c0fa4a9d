package materializer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/backup"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// backUp takes a backup of the node's store.
func (n *node) backUp() (dir string) {
	n.w.t.Helper()
	dir = filepath.Join(n.w.t.TempDir(), "backup")
	_, err := backup.Take(n.w.t.Context(), n.path, dir, backup.TakeOptions{})
	require.NoError(n.w.t, err)
	return dir
}

// comeFrom puts the store of a backup in the place of the stopped node's.
func (n *node) comeFrom(dir string) {
	n.w.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(n.w.t, os.RemoveAll(n.path+suffix))
	}
	_, err := backup.Restore(n.w.t.Context(), dir, filepath.Dir(n.path), backup.RestoreOptions{})
	require.NoError(n.w.t, err)
}

// refuses requires that a cursor of the epoch is refused by the running node.
func (n *node) refuses(epoch string, seq uint64) {
	n.w.t.Helper()
	_, err := n.st.Reader().Page(n.w.t.Context(), store.PageQuery{After: &bus.Cursor{Epoch: epoch, Seq: seq}, Limit: 10})
	require.ErrorIs(n.w.t, err, bus.ErrOtherEpoch)
}

// restored reports whether the stopped node's store is marked.
func (n *node) restored() bool {
	n.w.t.Helper()
	r, err := store.OpenReader(n.path)
	require.NoError(n.w.t, err)
	restored, err := r.Restored(n.w.t.Context())
	require.NoError(n.w.t, err)
	require.NoError(n.w.t, r.Close())
	return restored
}

// A store comes out of a backup, and EVENTS has lost what came after it: it is missing, it
// was set back to before the backup, or made anew and empty under its epoch. Readers have
// seen numbers 4 and 5, which may be given to other facts now. There is no start, and the
// repair, killed at any step and run again, puts the table's rows back under their numbers
// and a new epoch; a cursor of the old one is refused.
func TestCrash_StoreRestoredEventsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]struct {
		events func(w *world, old string)
		action materializer.RepairAction
		start  bool // serve would find a stream of its epoch
	}{
		"missing": {func(w *world, _ string) { require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS")) }, materializer.RepairRebuild, false},
		"set back": {func(w *world, old string) {
			w.setStreamBack("SKALD_EVENTS", old)
		}, materializer.RepairPutBack, true},
		"made anew": {func(w *world, _ string) { w.recreate(w.streams.Events, nil) }, materializer.RepairRebuild, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyStep(t, func(t *testing.T, w *world, k int) bool {
				n := w.node()
				n.start(nil)
				w.fail(beta, "first")
				n.finish()
				old := w.stoppedCopy("SKALD_EVENTS")
				n.start(nil)
				w.failMany(beta, 2)
				n.finish()
				dir := n.backUp()
				rows := w.numbered()
				n.start(nil)
				w.failMany(beta, 2)
				n.finish()
				oldEpoch := w.streams.Epoch

				n.comeFrom(dir)
				require.True(t, n.restored())
				lose.events(w, old)
				if lose.start {
					n.start(nil)
					require.ErrorIs(t, n.wait(), materializer.ErrRestored)
					require.True(t, n.restored())
				}
				d, crashed := n.repair(false, k)
				require.Equal(t, lose.action, d.Action)
				require.NotEqual(t, d.Epoch, d.NewEpoch)
				require.Contains(t, d.Found, "the store was restored")
				require.Contains(t, d.Effect(), d.NewEpoch)
				require.Equal(t, d.NewEpoch, w.events().Config.Metadata[bus.MetaEpoch])
				require.True(t, w.events().Config.DenyPurge)
				same(t, "EVENTS", rows, w.numbered())

				n.start(nil)
				w.fail(alpha, "other")
				n.catchUp()
				n.sound()
				n.refuses(oldEpoch, 2)
				n.refuses(oldEpoch, 5)
				n.stop()
				require.False(t, n.restored())
				in, err := w.streams.Ingest.Info(t.Context())
				require.NoError(t, err)
				require.Equal(t, d.NewEpoch, in.Config.Metadata[bus.MetaEpoch])
				return crashed
			})
		})
	}
}

// numbered returns EVENTS without the headers, which name the epoch in which each message
// was written.
func (w *world) numbered() (all []string) {
	w.t.Helper()
	for _, m := range w.readEvents() {
		all = append(all, fmt.Sprintf("%d %s %s", m.seq, m.subject, m.body))
	}
	return all
}

// A store comes out of a backup, and EVENTS is what it was: nothing is lost, the numbers
// and the epoch stay, and when the store has come as far as EVENTS it is a store like any
// other. Killed before that, it is still marked.
func TestRestored_EventsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	dir := n.backUp()
	n.start(nil)
	w.failMany(beta, 20)
	n.finish()
	before := w.heardAll()
	n.comeFrom(dir)
	require.Equal(t, materializer.RepairNothing, n.diagnose(false).Action)
	n.start(crashAt("before commit", 1))
	require.ErrorIs(t, n.wait(), errCrash)
	require.True(t, n.restored())
	n.start(nil)
	n.finish()
	require.False(t, n.restored())
	require.Equal(t, before, w.heardAll())

	// What is lost from now on is put back from a table that has it all.
	require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS"))
	d, _ := n.repair(false, 99)
	require.Equal(t, materializer.RepairRebuild, d.Action)
	require.Equal(t, d.Epoch, d.NewEpoch)
	same(t, "EVENTS", before, w.heardAll())
}

// EVENTS ends where the backup does: there is nothing to catch up with, and nothing lost.
func TestRestored_NothingSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	n.comeFrom(n.backUp())
	n.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		restored, err := n.st.Reader().Restored(t.Context())
		return err == nil && !restored
	})
	n.stop()
}

// EVENTS loses its end while a restored store still catches up with it: the store stops,
// and does not put its rows back.
func TestRestored_EventsLostMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(beta, "first")
	n.finish()
	old := w.stoppedCopy("SKALD_EVENTS")
	n.start(nil)
	w.failMany(beta, 2)
	n.catchUp()
	n.m.SetRestoredTo(10)
	w.setStreamBack("SKALD_EVENTS", old)
	w.fail(beta, "after")
	require.ErrorIs(t, n.wait(), materializer.ErrRestored)
	require.EqualValues(t, 1, w.last(w.streams.Events))
}

// Table and streams were set back together, and nothing here can tell. An operator who
// knows gives the numbers a new epoch; killed at any step, run again it ends right.
func TestRepair_NewEpoch(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T, w *world, k int) bool {
		n := w.node()
		n.start(nil)
		w.failMany(beta, 5)
		n.finish()
		before := w.heardAll()
		oldEpoch := w.streams.Epoch
		n.newEpoch = true
		d, crashed := n.repair(false, k)
		require.Equal(t, materializer.RepairNewEpoch, d.Action)
		require.NotEqual(t, d.Epoch, d.NewEpoch)
		require.Contains(t, d.Effect(), d.NewEpoch)
		require.Equal(t, d.NewEpoch, w.events().Config.Metadata[bus.MetaEpoch])
		same(t, "EVENTS", before, w.heardAll())
		n.start(nil)
		w.fail(beta, "after")
		n.catchUp()
		n.sound()
		n.refuses(oldEpoch, 5)
		n.stop()
		return crashed
	})
}
