package publisher_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/bench"
)

// BenchmarkSessions compares one open session with ten thousand on one connection, by
// the messages that INGEST acknowledges in a second: the figure that `skald bench
// sessions` prints. The bar is half of one session's rate.
func BenchmarkSessions(b *testing.B) {
	sizes := bench.Full()
	rates := map[int]float64{}
	for _, n := range []int{1, sizes.Sessions} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			for b.Loop() {
				var err error
				rates[n], err = bench.AckRate(b.Context(), b.TempDir(), n, sizes.Round)
				require.NoError(b, err)
			}
			b.ReportMetric(rates[n], "acks/s")
			b.ReportMetric(0, "ns/op") // the opening is part of it
		})
	}
	if one := rates[1]; one > 0 {
		r := bench.SessionsResult(sizes.Sessions, rates[sizes.Sessions], one)
		b.Log(r.String())
	}
}
