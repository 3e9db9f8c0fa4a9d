package materializer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A duplicate of an event id is read again, after INGEST was set back, when the id is known
// no more. It was dropped, and stays dropped.
func TestIngest_DuplicateReadAgain(t *testing.T) {
	t.Parallel()
	const horizon = 2 * time.Second
	w := newWorldWith(t, bus.StreamOptions{IDHorizon: horizon})
	n := w.node()
	n.start(nil)
	storedAt := func(seq uint64) time.Time {
		msg, err := w.streams.Ingest.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		return msg.Time
	}
	first := storedAt(w.fail(alpha, "once", bus.HeaderEventID, "x"))
	// until has INGEST's time go on to d after the first message.
	until := func(d time.Duration) {
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !storedAt(w.fail(beta, "time goes by")).Before(first.Add(d)) })
	}
	until(horizon * 3 / 4)
	w.fail(alpha, "once", bus.HeaderEventID, "x")
	n.finish()
	path := w.stoppedCopy("SKALD_INGEST")
	until(horizon * 5 / 4)
	n.start(nil)
	n.finish()
	end := w.last(w.streams.Events)

	w.setStreamBack("SKALD_INGEST", path)
	n.start(nil)
	n.catchUp()
	require.Len(t, n.rejectsOf(bus.ReasonIngestRolledBack), 1)
	require.Empty(t, n.rejectsOf(bus.ReasonNotInEvents))
	require.Equal(t, end, w.last(w.streams.Events))
	require.Equal(t, 1, strings.Count(strings.Join(rawTable(t, n.path), "\n"), `"once"`))
	n.stop()
}
