package materializer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
)

// copyStream copies a stream's directory of a stopped server; putStream puts such a
// copy in the stream's place.
func (w *world) copyStream(name string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.t.TempDir(), name)
	require.NoError(w.t, os.CopyFS(path, os.DirFS(w.streamDir(name))))
	return path
}

func (w *world) putStream(name, path string) {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(w.streamDir(name)))
	require.NoError(w.t, os.CopyFS(w.streamDir(name), os.DirFS(path)))
}

// whileStopped does something to the directory of the stopped server.
func (w *world) whileStopped(do func()) {
	w.t.Helper()
	w.stopServer()
	do()
	w.startServer()
}

// stoppedCopy copies a stream's files while the server is stopped.
func (w *world) stoppedCopy(stream string) (path string) {
	w.t.Helper()
	w.whileStopped(func() { path = w.copyStream(stream) })
	return path
}

// setStreamBack puts a copy of a stream's files in their place while the server is stopped.
func (w *world) setStreamBack(stream, path string) {
	w.t.Helper()
	w.whileStopped(func() { w.putStream(stream, path) })
}

// recreate deletes the stream and makes it anew, as metadata say.
func (w *world) recreate(s jetstream.Stream, metadata map[string]string) {
	w.t.Helper()
	c := s.CachedInfo().Config
	require.NoError(w.t, w.js.DeleteStream(w.t.Context(), c.Name))
	for k, v := range metadata {
		c.Metadata[k] = v
	}
	_, err := w.js.CreateStream(w.t.Context(), c)
	require.NoError(w.t, err)
}

// EVENTS is back at an older state than the table: the rows go back under the same
// numbers before anything else, and a number whose row is gone is only taken.
func TestCrash_EventsLostItsEnd(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%v", crash), func(t *testing.T) {
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			w.fail(alpha, "before")
			n.finish()
			old := w.stoppedCopy("SKALD_EVENTS")

			n.start(nil)
			w.failMany(beta, 1500)
			w.fail(alpha, "goes")
			w.fail(beta, "stays", bus.HeaderEventID, "id", bus.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			w.fail(alpha, "goes")
			n.catchUp()
			w.forget(alpha)
			n.finish()
			w.setStreamBack("SKALD_EVENTS", old)
			require.EqualValues(t, 1, w.last(w.streams.Events))

			if crash { // before the messages that came meanwhile are dealt with
				w.fail(beta, "next")
				n.start(crashAt("read", 1))
				require.ErrorIs(t, n.wait(), errCrash)
			}
			n.start(nil)
			w.fail(beta, "after")
			n.catchUp()
			// The message before is of the forgotten session, whose row is gone: EVENTS
			// has it again, and nobody knows.
			left := w.read(w.streams.Events, 0)
			if len(left) > 0 && left[0].seq == 1 {
				require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), 1))
			}
			w.check(n)
			n.stop()

			empty := w.node()
			empty.start(nil)
			empty.catchUp()
			w.check(empty)
			empty.stop()
		})
	}
}

// A running materializer whose EVENTS loses its end puts it back as well.
func TestEventsLostEnd_Running(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(beta, "before")
	n.catchUp()
	old := w.stoppedCopy("SKALD_EVENTS")
	w.failMany(beta, 10)
	n.catchUp()
	w.setStreamBack("SKALD_EVENTS", old)
	w.fail(beta, "after")
	n.catchUp()
	w.check(n)
	n.stop()
}

// EVENTS is back at an older state and went on with something else: the number of
// the table's last row means two things, and Run stops.
func TestStop_EventsDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.finish()
	old := w.stoppedCopy("SKALD_EVENTS")
	n.start(nil)
	w.fail(alpha, "b")
	n.finish()
	w.setStreamBack("SKALD_EVENTS", old)
	w.plant(happened{key: beta, typ: "error", data: `{}`, origin: bus.Origin{Seq: 9, Time: 9}})
	n.start(nil)
	require.ErrorIs(t, n.wait(), materializer.ErrEventsDiffer)
	require.Len(t, rawTable(t, n.path), 2)
}

// EVENTS was made anew: while the materializer runs, and before it starts.
func TestStop_EventsRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.catchUp()
	w.recreate(w.streams.Events, map[string]string{bus.MetaEpoch: "another"})
	require.ErrorIs(t, n.wait(), bus.ErrOtherBus)
	require.Zero(t, w.last(w.streams.Events), "the table's rows are not put into another bus")

	n.open()
	_, err := w.subj.Open(t.Context(), n.js, bus.StreamOptions{MaxPayload: n.nc.MaxPayload()}, w.streams.Epoch)
	require.ErrorIs(t, err, bus.ErrOtherBus)
	streams := w.streams
	streams.Epoch = "another"
	n.run(streams, nil)
	require.ErrorIs(t, n.wait(), bus.ErrOtherBus)
}

// Run can be called once, and returns nil when it is told to stop, even before it
// has begun.
func TestRun_Once(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("events").OK }) // it is listed by one that runs
	require.ErrorIs(t, n.m.Run(t.Context()), materializer.ErrRunning)
	n.stop()
	n.open()
	m, err := materializer.New(materializer.Options{Conn: n.nc, JS: n.js, Store: n.st, Streams: w.streams, Subjects: w.subj})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, m.Run(ctx))
	n.m = nil
	n.close()
}
