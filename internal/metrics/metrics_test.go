package metrics_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/metrics"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/projection"
)

var _ materializer.Observer = (*metrics.Metrics)(nil)

// scrape returns the figures as a scrape gives them.
func scrape(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	figures, err := metrics.Read(w.Body)
	require.NoError(t, err)
	return figures
}

// Every reason that a message can be rejected for is a label from the start, so that
// its first rise is seen; what is no reason of package bus is counted as another one.
func TestMetrics_Reasons(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Build{})
	before := scrape(t, m)
	var of []string
	for name, value := range busReasons(t) {
		key := `skald_rejected_messages_total{reason="` + value + `"}`
		_, there := before[key]
		// These are left in entries beside the message, or are of none.
		entry := name == "ReasonResync" || name == "ReasonNotInEvents" || name == "ReasonTakenOver" || strings.HasPrefix(name, "ReasonIngest")
		require.NotEqual(t, entry, there, name)
		m.Message(projection.Rejected, bus.Reason(value))
		if !entry {
			require.Equal(t, float64(1), scrape(t, m)[key], name)
			of = append(of, name)
		}
	}
	require.Len(t, of, 8)
	after := scrape(t, m)
	all := len(busReasons(t))
	require.Equal(t, float64(all-len(of)), after[`skald_rejected_messages_total{reason="other"}`])
	require.Equal(t, float64(all), after[`skald_messages_total{result="rejected"}`])
	m.Message(projection.Outcome(99), "")
	m.Message(0, "")
	require.Len(t, scrape(t, m), len(after), "no new series")
}

// busReasons returns the reasons that package bus declares, by their names.
func busReasons(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../bus/errors.go", nil, 0)
	require.NoError(t, err)
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		out[spec.Names[0].Name] = value
		return true
	})
	require.Greater(t, len(out), 10)
	return out
}

// What is told is counted, in base units.
func TestMetrics_Observer(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Build{Version: `1.0"x`})
	m.Appended(3, 20*time.Millisecond)
	m.Committed(2, 5, 2*time.Second)
	m.Refused()
	m.Message(projection.Applied, "")
	got := scrape(t, m)
	for name, want := range map[string]float64{
		"skald_append_batch_messages_sum": 3, "skald_append_duration_seconds_sum": 0.02, "skald_append_duration_seconds_count": 1,
		"skald_commit_batch_messages_sum": 2, "skald_rows_total": 5, "skald_commit_duration_seconds_sum": 2,
		`skald_commit_duration_seconds_bucket{le="1"}`: 0, `skald_commit_duration_seconds_bucket{le="2.5"}`: 1,
		"skald_commit_refusals_total": 1, `skald_messages_total{result="applied"}`: 1, `skald_messages_total{result="held"}`: 0,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
}

// What is no scrape is an error, not an empty one.
func TestRead_Broken(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"skald_x", "skald_x y", "skald_x 1\n<html>"} {
		_, err := metrics.Read(strings.NewReader(text))
		require.Error(t, err, text)
	}
}
