//go:build unix

package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/metrics"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// metrics returns the figures of a scrape.
func (p *process) metrics() map[string]float64 {
	p.t.Helper()
	figures, err := metrics.Read(strings.NewReader(p.get("/metrics")))
	require.NoError(p.t, err)
	return figures
}

// figure waits until a figure has the value.
func (p *process) figure(name string, want float64) {
	p.t.Helper()
	skaldtest.Eventually(p.t, skaldtest.Timeout, func() bool {
		v, ok := p.metrics()[name]
		return ok && v == want
	}, name)
}

// lock has another program hold the store's write lock until the returned function is
// called.
func lock(t *testing.T, dir string) (release func()) {
	t.Helper()
	db := skaldtest.OtherProgram(t, dir, "BEGIN IMMEDIATE")
	return func() {
		t.Helper()
		_, err := db.Exec("ROLLBACK")
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
}

// A scrape of a real serve says what became of messages, names everything as Prometheus
// asks for, and never a session, a workspace or an id.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	resp, err := http.Get(p.http + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	problems, err := promlint.New(resp.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)

	const canary = "canary4711"
	publish := func(class, id, body string) {
		t.Helper()
		args := []string{"publish", "--server", p.nats, "--workspace", canary, "--session", canary, "--class", class, "--body", body}
		if id != "" {
			args = append(args, "--id", id)
		}
		cli(args...).ok(t)
	}
	publish("error", canary+"-1", `{"message":"`+canary+`"}`)
	publish("error", canary+"-1", `{"message":"`+canary+`"}`)
	publish("error", canary+"-1", `{"message":"another"}`)
	publish("session", "", `{"op":"save","title":"`+canary+`"}`)
	nc, err := nats.Connect(p.nats)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Request("skald.in."+canary+"."+canary+".error", []byte("no JSON "+canary), skaldtest.Timeout)
	require.NoError(t, err)
	publish("error", "", `{"message":"last"}`)
	p.settle()
	stream, err := http.NewRequest(http.MethodGet, p.http+"/api/v1/events", nil)
	require.NoError(t, err)
	stream.Header.Set("Accept", "text/event-stream")
	open, err := http.DefaultClient.Do(stream)
	require.NoError(t, err)
	defer open.Body.Close()
	p.figure("skald_stream_readers_live", 1)
	p.figure("skald_ingest_last_sequence", 6) // as the watcher saw it
	p.figure("skald_events_last_sequence", 2) // perhaps in its next look
	p.figure("skald_lag_messages", 0)

	text := p.get("/metrics")
	require.NotContains(t, text, canary)
	for line := range strings.Lines(text) {
		require.Regexp(t, `^(# (HELP|TYPE) )?skald_`, line)
	}
	got := p.metrics()
	for name, want := range map[string]float64{
		`skald_messages_total{result="applied"}`: 3, `skald_messages_total{result="duplicate"}`: 1, `skald_messages_total{result="rejected"}`: 2,
		`skald_messages_total{result="held"}`: 0, `skald_messages_total{result="dropped"}`: 0,
		`skald_rejected_messages_total{reason="conflict"}`: 1, `skald_rejected_messages_total{reason="bad_body"}`: 1,
		"skald_commit_batch_messages_sum": 6, "skald_rows_total": 2, "skald_append_batch_messages_sum": 2,
		"skald_ingest_position": 6, "skald_events_position": 2, "skald_events_last_sequence": 2, "skald_lag_seconds": 0,
		"skald_reject_entries": 2, "skald_held_pages": 0, "skald_sessions": 1, "skald_stream_readers": 1, "skald_ingest_limit_bytes": 1e8,
		`skald_check_ok{check="nats"}`: 1, `skald_check_ok{check="lag"}`: 1, "skald_nats_connected": 1, "skald_nats_reconnects_total": 0,
		"skald_store_readable": 1, `skald_slow_readers_total{result="behind"}`: 0, `skald_slow_readers_total{result="cut_off"}`: 0,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	for _, name := range []string{
		"skald_store_bytes", "skald_store_wal_bytes", "skald_ingest_bytes", "skald_commit_duration_seconds_sum", "skald_append_duration_seconds_sum",
		"skald_process_start_time_seconds", "skald_go_goroutines",
	} {
		require.Positive(t, got[name], name)
	}
	var builds int
	for name := range got {
		if strings.HasPrefix(name, "skald_build_info{") {
			builds++
			require.Contains(t, name, `version="`+buildVersion().Version+`"`)
		}
	}
	require.Equal(t, 1, builds)
}

// While the server is frozen, what only it knows is absent and not the last that was
// heard; the check says so. Afterwards all is there again.
func TestMetrics_ServerFrozen(t *testing.T) {
	t.Parallel()
	url, server := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	p.figure("skald_lag_messages", 0)
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { server.Process.Signal(syscall.SIGCONT) })
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		got := p.metrics()
		_, lag := got["skald_lag_messages"]
		_, last := got["skald_ingest_last_sequence"]
		return !lag && !last && got[`skald_check_ok{check="streams"}`] == 0
	}, "the lag is not known")
	require.Contains(t, p.metrics(), "skald_ingest_position")
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	p.figure("skald_lag_messages", 0)
	p.figure(`skald_check_ok{check="streams"}`, 1)
}

// While another program holds the store's lock, the lag is what waits and how long,
// readiness names the bound that it exceeds, and the store still answers.
func TestMetrics_StoreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir, "--max-lag", "1s")
	release := lock(t, dir)
	p.publish("default", "s", 3)
	p.figure("skald_lag_messages", 3)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(p.get("/readyz"), `{"name":"lag","ok":false,"detail":"3 messages wait, the oldest for `)
	}, "the bound is exceeded")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		got := p.metrics()
		return got["skald_lag_seconds"] > 1 && got["skald_commit_refusals_total"] > 0 && got[`skald_check_ok{check="lag"}`] == 0
	}, "the figures say so too")
	require.Equal(t, float64(1), p.metrics()["skald_store_readable"])
	release()
	p.figure("skald_lag_messages", 0)
	p.figure("skald_lag_seconds", 0)
	p.ready()
}
