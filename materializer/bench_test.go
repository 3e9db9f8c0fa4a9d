package materializer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/bench"
)

// BenchmarkCatchUp measures the whole path, as bench.CatchUp says: the figure that
// `skald bench catchup` prints. The bars are 0.5 of the bare driver's rate with
// publishers' counts, 0.25 with bare event ids.
func BenchmarkCatchUp(b *testing.B) {
	for _, id := range []bench.Identity{bench.ByCount, bench.ByEventID} {
		b.Run("identity="+string(id), func(b *testing.B) {
			for b.Loop() {
				c, err := bench.CatchUp(b.Context(), b.TempDir(), id, bench.Full().CatchUp)
				require.NoError(b, err)
				r := c.Result()
				b.Log(r.String())
				b.ReportMetric(r.Measured, "msgs/s")
				b.ReportMetric(r.Baseline, "bare-rows/s")
				b.ReportMetric(r.Compared(), "ratio")
				b.ReportMetric(float64(c.Processor.Microseconds())/float64(c.Messages), "cpu-us/msg")
				b.ReportMetric(float64(c.BareProcessor.Microseconds())/float64(c.Messages), "bare-cpu-us/row")
				b.ReportMetric(0, "ns/op") // the setting up is part of it
			}
		})
	}
}
