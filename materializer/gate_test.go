package materializer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

func TestRegister_SetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.finish()
	before := w.entries()
	require.Len(t, before, 1)
	old := w.stoppedCopy("KV_SKALD_STATE")
	n.start(nil)
	w.fail(alpha, "b")
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { e := w.listed(); return len(e) == 1 && e[0].Number == 2 })
	w.setStreamBack("KV_SKALD_STATE", old)
	w.fail(alpha, "c")
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { e := w.listed(); return len(e) == 1 && e[0].Number == 3 })
	require.Equal(t, before[0].ID, w.entries()[0].ID)
	n.stop()
}

// A stop while the entry is being written does not keep the last one from being written.
func TestRegister_StopWhileWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	n := w.node()
	n.url = p.url()
	n.start(nil)
	w.fail(alpha, "a")
	n.catchUp()
	at := func(position uint64) bool { e := w.listed(); return len(e) == 1 && e[0].Position == position }
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return at(1) })
	w.fail(alpha, "b")
	n.catchUp()
	p.silent.Store(true) // the server writes, and what it answers is lost
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return at(2) })
	before := w.entries()[0].Revision
	n.cancel()
	p.silent.Store(false)
	require.NoError(t, n.wait())
	require.Greater(t, w.entries()[0].Revision, before)
}

func TestGate_WaitsForTheStoreAhead(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed=%v", removed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ahead, behind := w.node(), w.node()
			ahead.start(nil)
			behind.start(nil)
			w.failMany(alpha, 5)
			ahead.catchUp()
			behind.finish()
			old := w.stoppedCopy("SKALD_EVENTS")
			w.failMany(alpha, 5)
			ahead.finish()
			w.setStreamBack("SKALD_EVENTS", old)

			w.fail(beta, "next")
			behind.start(nil)
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
				return strings.Contains(behind.check("events").Detail, "EVENTS ends at 5, store ")
			})
			require.Contains(t, behind.check("events").Detail, "has rows up to 10 and puts them back when it runs; `skald replicas rm ")
			require.EqualValues(t, 5, w.last(w.streams.Events))
			if removed {
				for _, e := range w.entries() {
					if e.Number == 10 {
						w.removeEntry(e)
					}
				}
				behind.finish()
				require.EqualValues(t, 11, w.last(w.streams.Events))
				return
			}
			ahead.start(nil)
			ahead.catchUp()
			behind.catchUp()
			w.check(ahead)
			w.check(behind)
			require.Equal(t, ahead.lines(), behind.lines())
			ahead.stop()
			behind.stop()
		})
	}
}

func TestRegister_Copy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.finish()
	id := w.entries()[0].ID
	n.start(nil)
	w.fail(alpha, "b")
	n.finish()
	require.Len(t, w.entries(), 1)
	require.Equal(t, id, w.entries()[0].ID)
	require.EqualValues(t, 2, w.entries()[0].Position)

	twin := w.node()
	n.copyTo(twin.path)
	n.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("replicas").OK && n.m.Ready() == nil && len(w.listed()) == 1 })
	twin.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.listed()) == 2 }, "they have one id for ever")
	w.fail(beta, "c")
	n.catchUp()
	twin.catchUp()
	n.stop()
	twin.stop()
	for _, e := range w.entries() {
		require.EqualValues(t, 3, e.Number)
	}
}
