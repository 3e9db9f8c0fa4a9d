package bench_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/bench"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// tiny are sizes that show nothing but that a figure works.
func tiny() bench.Sizes {
	return bench.Sizes{
		CatchUp: 2000, Observations: 12_800, LatencyFor: 500 * time.Millisecond, LatencyRate: 200, MemoryEvents: 5000,
		Rows: 20_000, ManyRows: 40_000, FewRows: 10_000, Sessions: 50, Round: 200, Streams: 20, StreamsFor: 400 * time.Millisecond,
	}
}

// Each figure runs, measures something, has a bar, and leaves nothing behind. How
// fast it is, is no test's business.
func TestFigures(t *testing.T) {
	for _, f := range bench.Figures() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			b := &bench.Bench{Dir: t.TempDir(), Self: skaldtest.Binary(t), Sizes: tiny(), Note: func(s string) { t.Log(s) }}
			results, err := f.Run(t.Context(), b)
			require.NoError(t, err)
			require.NotEmpty(t, results)
			for _, r := range results {
				t.Log(r.String())
				require.Equal(t, f.Name, r.Figure)
				require.NotEmpty(t, r.Case)
				require.NotZero(t, r.Measured)
				require.Positive(t, r.Bar.Value)
				require.Equal(t, r.BaselineOf != "", r.Baseline > 0)
				require.True(t, r.BaselineOf != "" || !r.Bar.OfBaseline)
			}
			require.Empty(t, left(t, b.Dir))
		})
	}
}

// A bar is met or not, and never without its baseline.
func TestResult_Pass(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		measured, baseline float64
		bar                bench.Bar
		pass               bool
		text               string
	}{
		{50, 100, bench.Bar{Op: bench.AtLeast, Value: 0.5, OfBaseline: true}, true, ">= 0.5 x"},
		{49, 100, bench.Bar{Op: bench.AtLeast, Value: 0.5, OfBaseline: true}, false, ">= 0.5 x"},
		{50, 0, bench.Bar{Op: bench.AtLeast, Value: 0.5, OfBaseline: true}, false, ">= 0.5 x"},
		{0, 0, bench.Bar{Op: bench.AtMost, Value: 4, OfBaseline: true}, false, "<= 4 x"},
		{400, 100, bench.Bar{Op: bench.AtMost, Value: 4, OfBaseline: true}, true, "<= 4 x"},
		{401, 100, bench.Bar{Op: bench.AtMost, Value: 4, OfBaseline: true}, false, "<= 4 x"},
		{4.9, 0, bench.Bar{Op: bench.Below, Value: 5}, true, "< 5 ms"},
		{5, 0, bench.Bar{Op: bench.Below, Value: 5}, false, "< 5 ms"},
	} {
		r := bench.Result{Measured: tc.measured, Baseline: tc.baseline, Bar: tc.bar, Unit: "ms"}
		require.Equal(t, tc.pass, r.Pass(), "%+v", tc)
		require.Equal(t, tc.text, r.BarText())
	}
	require.Equal(t, []string{"12345", "99.9", "1.50", "0.123"},
		[]string{bench.Number(12345.2), bench.Number(99.9), bench.Number(1.5), bench.Number(0.1234)})
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
