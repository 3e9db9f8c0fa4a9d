package publisher_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// INGEST is set back, while no materializer has read it, to before messages that it had
// acknowledged, and the server is started again. With an outbox they are sent again before
// anything new, so that also messages without a chain are in the table in their order; no
// later message has to come to show that they are missing.
func TestOutbox_IngestSetBack(t *testing.T) {
	t.Parallel()
	testIngestSetBack(t, false)
}

// The connection is lost and comes back when the next message has been chosen and is not
// out yet. It used to be sent first then, before those that INGEST had lost, and was
// applied before them.
func TestOutbox_IngestSetBackBeneathTheNext(t *testing.T) {
	t.Parallel()
	testIngestSetBack(t, true)
}

func testIngestSetBack(t *testing.T, chosen bool) {
	w := newWorld(t)
	p := w.publisher(publisher.Options{Outbox: t.TempDir()})
	s := p.open(key("s"))
	all := names("m", 60)
	materialized(t, say(t, s, all[:20])[19])
	w.settle()
	w.stopNode()
	live := filepath.Join(w.o.Dir, "jetstream")
	require.DirExists(t, live)
	copied := filepath.Join(t.TempDir(), "copy")
	w.stopServer()
	require.NoError(t, os.CopyFS(copied, os.DirFS(live)))
	w.startServer()
	for _, r := range say(t, s, all[20:40]) {
		_, err := r.Stored(within(t, skaldtest.Timeout))
		require.NoError(t, err)
	}
	n, leave := 40, func() {}
	if chosen {
		n, leave = 41, p.Crowd()
		say(t, s, all[40:n])
		skaldtest.Eventually(t, skaldtest.Timeout, s.Chosen)
	}
	before := p.nc.Stats().Reconnects
	w.stopServer()
	require.NoError(t, os.RemoveAll(live))
	require.NoError(t, os.CopyFS(live, os.DirFS(copied)))
	w.startServer()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return p.nc.Stats().Reconnects > before && p.nc.IsConnected() })
	leave()
	skaldtest.Eventually(t, skaldtest.Timeout, w.nc.IsConnected)
	var err error
	w.streams, err = skaldtest.Subjects(t).Open(t.Context(), w.js, bus.StreamOptions{MaxPayload: w.nc.MaxPayload()}, w.streams.Epoch)
	require.NoError(t, err)
	say(t, s, all[n:])
	w.startNode()
	p.shut()
	require.Equal(t, all, w.ids(key("s")))
}
