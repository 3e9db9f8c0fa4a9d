package materializer_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// INGEST's beginning is gone and there is no checkpoint: a new store takes the rows over
// from EVENTS, knows again by count and id what comes twice, and leaves an entry for each
// session and for the range. A crash in between changes nothing of that.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for _, crashes := range []int64{0, 1, 2} {
		t.Run(fmt.Sprintf("crash %d", crashes), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			for round := range 3 {
				w.mix(round)
			}
			w.failMany(alpha, 1500)
			gone := w.fail(beta, "the last that is gone")
			w.mix(3)
			n.catchUp()
			require.NoError(t, w.streams.Ingest.Purge(t.Context(), jetstream.WithPurgeSequence(gone+1)))

			late := w.node()
			if crashes > 0 {
				late.start(crashAt("some rows taken over", crashes))
				require.ErrorIs(t, late.wait(), errCrash)
			}
			late.start(nil)
			late.catchUp()
			require.Equal(t, rawTable(t, n.path), rawTable(t, late.path))
			for round := range 4 {
				for i := range 5 {
					c := round*5 + i + 1
					w.fail(alpha, fmt.Sprint("counted ", c), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(c))
					w.fail(beta, fmt.Sprint("named ", c), bus.HeaderEventID, fmt.Sprint("id", c))
				}
			}
			before := w.last(w.streams.Events)
			late.catchUp()
			n.catchUp()
			require.Equal(t, before, w.last(w.streams.Events), "nothing was appended twice")
			require.Equal(t, rawTable(t, n.path), rawTable(t, late.path))
			rejects, err := late.st.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: 100})
			require.NoError(t, err)
			seen := map[string]string{}
			for _, r := range rejects {
				if r.Reason == bus.ReasonTakenOver || r.Reason == bus.ReasonIngestTrimmed {
					who := "all"
					if r.Key != nil {
						who = r.Key.Session
					}
					seen[who] += r.Detail
				}
			}
			require.Contains(t, seen["all"], fmt.Sprintf("messages 1 to %d of INGEST are gone and no checkpoint knows them", gone))
			require.Contains(t, seen[alpha.Session], "were taken over from EVENTS without their messages")
			require.Contains(t, seen[beta.Session], fmt.Sprintf(" to %d, which INGEST no longer holds", gone))
			n.stop()
			late.stop()
		})
	}
}
