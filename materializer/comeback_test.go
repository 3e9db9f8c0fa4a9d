package materializer_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/store"
)

func TestComeBack_NewStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.start(nil)
	for round := range 3 {
		w.mix(round)
		n.catchUp()
	}
	last := w.last(w.streams.Ingest)
	w.trimmedTo(last)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.m.Stats().Trimmed == int64(last-1) })
	require.Positive(t, n.m.Stats().Trims)
	require.GreaterOrEqual(t, n.m.Stats().Checkpoints, int64(2))

	late := w.node()
	late.start(nil)
	late.catchUp()
	require.Equal(t, n.lines(), late.lines())
	for round := range 3 {
		w.mixAgain(round)
	}
	w.mix(3)
	n.catchUp()
	late.catchUp()
	require.Equal(t, n.lines(), late.lines())
	st, err := late.st.Reader().Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 30, st.Duplicates)
	require.EqualValues(t, 15, st.Dropped)
	n.stop()
	late.stop()

	// All stores are lost, and one comes back from nothing.
	for _, e := range w.entries() {
		w.removeEntry(e)
	}
	alone := w.node()
	alone.start(nil)
	alone.catchUp()
	want := late
	want.start(nil)
	require.Equal(t, want.lines(), alone.lines())
	want.stop()
	alone.stop()
	left, err := os.ReadDir(filepath.Dir(alone.path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left beside the store")
}

func TestComeBack_BehindStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, away := w.trimmer(), w.node()
	n.start(nil)
	away.start(nil)
	w.mix(0)
	away.finish()
	w.mix(1)
	w.mix(2)
	n.catchUp()
	// It is registered, so nothing of what it needs goes.
	w.trimmedTo(18)
	for _, e := range w.entries() {
		if e.Number < w.last(w.streams.Events) {
			w.removeEntry(e)
		}
	}
	w.trimmedTo(w.last(w.streams.Ingest))
	away.start(nil)
	away.catchUp()
	require.Equal(t, n.lines(), away.lines())
	w.mixAgain(2)
	w.mix(3)
	n.catchUp()
	away.catchUp()
	require.Equal(t, n.lines(), away.lines())
	n.stop()
	away.stop()
}

func TestCrash_ACheckpointIsDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.start(nil)
	w.mix(0)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	w.mix(1)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	n.stop()
	list := w.checkpoints()
	require.Len(t, list, 2)
	obj := w.bucket().Objects()
	damage := func(c checkpoint.Checkpoint) {
		part := c.State.Parts[0].Name
		content, err := obj.GetBytes(t.Context(), part)
		require.NoError(t, err)
		_, err = obj.PutBytes(t.Context(), part, content[:len(content)-7])
		require.NoError(t, err)
	}
	damage(list[0])
	late := w.node()
	var log strings.Builder
	late.log = &log
	late.start(nil)
	late.catchUp()
	n.start(nil)
	require.Equal(t, n.lines(), late.lines())
	n.stop()
	late.stop()
	require.Contains(t, log.String(), "a checkpoint is damaged; an older one has to do")

	damage(list[1])
	none := w.node()
	none.start(nil)
	err := none.wait()
	require.ErrorIs(t, err, materializer.ErrIngestBegins)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, "are gone, it begins at")
	require.Empty(t, rawTable(t, none.path))
}

func TestComeBack_RowsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.start(nil)
	w.mix(0)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	n.stop()
	require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), w.read(w.streams.Events, 0)[1].seq))
	late := w.node()
	late.start(nil)
	err := late.wait()
	require.ErrorIs(t, err, store.ErrRowsMissing)
	require.ErrorContains(t, err, "and has")
}

func TestComeBack_IsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.start(nil)
	w.failMany(beta, 2500)
	n.catchUp()
	w.trimmedTo(w.last(w.streams.Ingest))
	n.stop()
	late := w.node()
	reached, goOn := make(chan struct{}), make(chan struct{})
	reach := sync.OnceFunc(func() { close(reached) }) // it may have to begin again
	late.start(func(name string) error {
		if name == "rows copied" {
			reach()
			<-goOn
		}
		return nil
	})
	<-reached
	err := late.m.Ready()
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "the store takes a checkpoint: 2500 of 2500 numbers are copied")
	require.Equal(t, materializer.Check{Name: "ingest", Detail: "the store takes a checkpoint: 2500 of 2500 numbers are copied"}, late.check("ingest"))
	close(goOn)
	late.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return late.m.Ready() == nil && late.check("ingest").OK })
	late.stop()
}
