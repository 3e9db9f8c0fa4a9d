package materializer_test

import (
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// lose does to INGEST what a failing disk, a restored copy or an operator may do: it is
// set back or forward, made anew, trimmed or holed. All materializers have read what
// goes, and are down: otherwise what they have heard of it would be a matter of luck.
func (e *episode) lose() {
	e.checkpoint()
	for _, p := range e.players {
		p.stop()
		p.copies = nil // what they have read is gone; they would not come to the same states
	}
	what := e.r.IntN(5)
	if what == 1 && len(e.ingests) == 0 {
		what = 0
	}
	switch what {
	case 0:
		e.ingests = append(e.ingests, e.stoppedCopy("SKALD_INGEST"))
	case 1:
		path := e.ingests[e.r.IntN(len(e.ingests))]
		e.setStreamBack("SKALD_INGEST", path)
		e.lost = true
		if e.r.IntN(2) == 0 {
			e.publish()
		}
	case 2:
		metadata := map[string]string{}
		if e.r.IntN(2) == 0 {
			metadata[bus.MetaIngestID] = bus.NewID()
		}
		e.recreate(e.streams.Ingest, metadata)
		e.lost = true
		e.publish()
	case 3:
		first := e.last(e.streams.Ingest) + 1
		e.failMany(alpha, 2+e.r.IntN(20))
		for seq := first; seq < e.last(e.streams.Ingest); seq++ {
			if e.r.IntN(3) == 0 {
				require.NoError(e.t, e.streams.Ingest.DeleteMsg(e.t.Context(), seq))
			}
		}
	case 4:
		first := e.last(e.streams.Ingest) + 1
		n := 1 + e.r.IntN(20)
		e.failMany(alpha, n)
		keep := first + e.r.Uint64N(uint64(n)+1)
		require.NoError(e.t, e.streams.Ingest.Purge(e.t.Context(), jetstream.WithPurgeSequence(keep)))
		e.lost = true
	}
	e.tally.losses[what]++
	for _, p := range e.players {
		if at := []string{"going back", "gone back", ""}[e.r.IntN(3)]; at != "" {
			p.start(crashAt(at, 1))
			skaldtest.Eventually(e.t, 2*skaldtest.Timeout, func() bool { return len(p.done) > 0 || p.caughtUp() })
			if len(p.done) > 0 {
				require.ErrorIs(e.t, p.wait(), errCrash)
			} else {
				p.stop()
			}
		}
		p.start(nil)
	}
	e.checkpoint()
}
