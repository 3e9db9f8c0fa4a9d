package readers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/bench/readers"
)

// A thousand readers of a hundred workspaces and ten of everything, at 500 facts a second.
func BenchmarkMany(b *testing.B) {
	for b.Loop() {
		r, err := readers.Many(b.Context(), readers.ManyOptions{})
		require.NoError(b, err)
		require.Zero(b, r.Wrong, "that is no matter of speed")
		b.ReportMetric(float64(r.Deliver.P99.Microseconds())/1000, "p99-ms")
	}
}

// One reader beside a bare subscriber, at 100 facts a second.
func BenchmarkOne(b *testing.B) {
	for b.Loop() {
		r, err := readers.One(b.Context(), 1000, 100)
		require.NoError(b, err)
		b.ReportMetric(float64(r.Frame.P50.Microseconds()), "p50-us")
		b.ReportMetric(float64(r.Frame.P99.Microseconds()), "p99-us")
	}
}

// The measuring itself finds nothing wrong with a small load.
func TestMany(t *testing.T) {
	r, err := readers.Many(t.Context(), readers.ManyOptions{Facts: 200, PerSecond: 400, Readers: 30, Everything: 3, Workspaces: 10})
	require.NoError(t, err)
	require.Zero(t, r.Wrong)
	require.Equal(t, 30*20+3*200, r.Deliver.N)
}

// Readers to whom nothing happens cost no reads of the table while others are busy.
func TestIdle(t *testing.T) {
	r, err := readers.Idle(t.Context(), 40, 200, 400)
	require.NoError(t, err)
	require.Equal(t, 40, r.OnHub)
	require.Zero(t, r.Pages)
	require.Positive(t, r.Commits)
	require.LessOrEqual(t, r.Reads, r.Commits)
}
