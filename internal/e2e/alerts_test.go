//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/metrics"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// recorded is what Prometheus would have of a serve: how long its state lasted, and the
// series of a scrape then.
type recorded struct {
	lasts  time.Duration
	series map[string]float64
}

// scrapeEvery is the interval of the scrapes that a recording stands for.
const scrapeEvery = 15 * time.Second

// scrape returns the figures of serve with the labels that Prometheus adds, and its up.
func (s *server) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	const target = `job="skald",instance="a"`
	series := map[string]float64{"up{" + target + "}": 0}
	resp, err := client.Get(s.http + "/metrics")
	if err != nil {
		return series
	}
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	figures, err := metrics.Read(resp.Body)
	require.NoError(t, err)
	for name, v := range figures {
		if bare, labels, ok := strings.Cut(name, "{"); ok {
			series[bare+"{"+target+","+labels] = v
		} else {
			series[name+"{"+target+"}"] = v
		}
	}
	series["up{"+target+"}"] = 1
	return series
}

// figure returns the sum of the series of a name.
func figure(series map[string]float64, name string) (sum float64) {
	for s, v := range series {
		if strings.HasPrefix(s, name+"{") {
			sum += v
		}
	}
	return sum
}

// firing asks promtool whether the rules, over the recording, have an alert fire at that
// time; "" asks whether none does.
func firing(t *testing.T, states []recorded, alert string, at time.Duration) {
	t.Helper()
	values := map[string][]string{}
	for _, s := range states {
		for name := range s.series {
			values[name] = nil
		}
	}
	for name := range values {
		for i, s := range states {
			n := int(s.lasts / scrapeEvery)
			v, there := s.series[name]
			_, before := states[max(i-1, 0)].series[name]
			switch {
			case there:
				values[name] = append(values[name], fmt.Sprintf("%g+0x%d", v, n-1))
			case i > 0 && before:
				values[name] = append(values[name], fmt.Sprintf("stale _x%d", n-1))
			default:
				values[name] = append(values[name], fmt.Sprintf("_x%d", n))
			}
		}
	}
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	expr, want := `group by (alertname) (ALERTS{alertstate="firing"})`, []sample{}
	if alert != "" {
		expr = fmt.Sprintf(`group by (alertname) (ALERTS{alertstate="firing",alertname=%q})`, alert)
		want = append(want, sample{fmt.Sprintf("{alertname=%q}", alert), 1})
	}
	var series []map[string]string
	for name, v := range values {
		series = append(series, map[string]string{"series": name, "values": strings.Join(v, " ")})
	}
	rules, err := filepath.Abs("../../deploy/prometheus/rules.yml")
	require.NoError(t, err)
	// JSON is YAML.
	text, err := json.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": scrapeEvery.String(),
		"tests": []any{map[string]any{
			"interval": scrapeEvery.String(), "input_series": series,
			"promql_expr_test": []any{map[string]any{"expr": expr, "eval_time": at.String(), "exp_samples": want}},
		}},
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "recorded.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command(skaldtest.NeedProgram(t, "promtool"), "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "at %s, alert %q: %s", at, alert, out)
}

// alertWorld is what a fault is made in.
type alertWorld struct {
	*server
	t     *testing.T
	proxy *skaldtest.Proxy // between serve and NATS
	nats  *natsd.Server
	addr  string // of HTTP, whatever is restarted
}

// newAlertWorld starts serve as an alert's fault needs it, and waits until its figures
// are all there.
func newAlertWorld(t *testing.T, alert string) *alertWorld {
	t.Helper()
	nats := outsideNATS(t, natsd.Options{})
	w := &alertWorld{t: t, proxy: skaldtest.NewProxy(t, strings.TrimPrefix(nats.ClientURL(), "nats://")), nats: nats, addr: skaldtest.FreeAddress(t)}
	w.server = serve(t, t.TempDir(), append(alerts[alert].args, "--server", w.proxy.URL(), "--http", w.addr)...)
	skaldtest.Eventually(t, patience, func() bool { return figure(w.scrape(t), "skald_ingest_limit_bytes") > 0 })
	return w
}

// breakDown makes an alert's fault, if it is one that stays.
func (w *alertWorld) breakDown(alert string) {
	w.t.Helper()
	if fault := alerts[alert].fault; fault != nil {
		fault(w)
	}
}

// seen waits until a scrape shows an alert's fault.
func (w *alertWorld) seen(t *testing.T, alert string) {
	t.Helper()
	if holds := alerts[alert].holds; holds != nil {
		skaldtest.Eventually(t, patience, func() bool { return holds(w.scrape(t)) }, "the fault is seen")
	}
}

// restart ends serve without warning and starts it again on its data.
func (w *alertWorld) restart() {
	w.t.Helper()
	w.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-w.exited
	w.server = serve(w.t, w.data, "--server", w.proxy.URL(), "--http", w.addr)
}

// restarting is the alert whose fault is repeated.
const restarting = "SkaldRestarting"

// alerts are the faults by the alerts that they have to fire.
var alerts = map[string]struct {
	args  []string // of serve
	fault func(w *alertWorld)
	// holds says whether a scrape shows the fault. Nil: one scrape is enough.
	holds func(series map[string]float64) bool
}{
	"SkaldDown": {fault: func(w *alertWorld) {
		w.cmd.Process.Kill() //nolint:errcheck
		<-w.exited
	}},
	"SkaldNotReady": {
		nil,
		func(w *alertWorld) { w.proxy.Hold(true) },
		func(s map[string]float64) bool {
			return s[`skald_check_ok{job="skald",instance="a",check="streams"}`] == 0
		},
	},
	"SkaldLagUnknown": {
		nil,
		func(w *alertWorld) { w.proxy.Hold(true) },
		func(s map[string]float64) bool { _, ok := s[`skald_lag_seconds{job="skald",instance="a"}`]; return !ok },
	},
	"SkaldLagging": {
		nil,
		func(w *alertWorld) {
			skaldtest.OtherProgram(w.t, w.data, "BEGIN IMMEDIATE")
			w.worker(w.t).put(ingestSubject("w", "s", "error"), nil, failed("x"))
		},
		func(s map[string]float64) bool { return figure(s, "skald_lag_seconds") > 30 },
	},
	"SkaldCommitsRefused": {
		nil,
		func(w *alertWorld) {
			skaldtest.OtherProgram(w.t, w.data, "BEGIN IMMEDIATE")
			w.worker(w.t).put(ingestSubject("w", "s", "error"), nil, failed("x"))
		},
		func(s map[string]float64) bool { return figure(s, "skald_commit_refusals_total") > 0 },
	},
	"SkaldStoreUnreadable": {
		nil,
		func(w *alertWorld) { skaldtest.OtherProgram(w.t, w.data, "ALTER TABLE position RENAME TO away") },
		func(s map[string]float64) bool { return figure(s, "skald_store_readable") == 0 },
	},
	"SkaldIngestFilling": {
		[]string{"--ingest-max-bytes", "20000000"},
		func(w *alertWorld) {
			worker := w.worker(w.t)
			for range 19 {
				worker.put(ingestSubject("w", "s", "error"), nil, failed(strings.Repeat("x", 900_000)))
			}
		},
		func(s map[string]float64) bool {
			return figure(s, "skald_ingest_bytes") > 0.8*figure(s, "skald_ingest_limit_bytes")
		},
	},
	"SkaldMessagesRejected": {
		nil,
		func(w *alertWorld) { w.worker(w.t).put(ingestSubject("w", "s", "error"), nil, "no JSON") },
		func(s map[string]float64) bool { return figure(s, "skald_rejected_messages_total") == 1 },
	},
	"SkaldPagesHeld": {
		nil,
		func(w *alertWorld) {
			j := newRelayChain()
			j.page(1) // never comes
			w.worker(w.t).put(ingestSubject("w", "s", "projection"), nil, j.page(1))
		},
		func(s map[string]float64) bool { return figure(s, "skald_held_pages") == 1 },
	},
	"SkaldIngestLost": {
		nil,
		func(w *alertWorld) {
			w.stop(w.t)
			worker := &plainWorker{w.t, connect(w.t, w.nats.ClientURL())}
			var second uint64
			for i := range 3 {
				if seq := worker.put(ingestSubject("w", "s", "error"), nil, failed("x")); i == 1 {
					second = seq
				}
			}
			js, err := jetstream.New(worker.nc)
			require.NoError(w.t, err)
			stream, err := js.Stream(w.t.Context(), "SKALD_INGEST")
			require.NoError(w.t, err)
			require.NoError(w.t, stream.DeleteMsg(w.t.Context(), second))
			p, err := spawn(command(w.t, "serve", "--data", w.data, "--server", w.proxy.URL(), "--http", w.addr))
			require.NoError(w.t, err)
			w.t.Cleanup(func() { kill(p) })
			w.server = &server{process: p, data: w.data}
			skaldtest.Eventually(w.t, patience, func() bool { w.ready(); return w.http != "" })
		},
		func(s map[string]float64) bool {
			return s[`skald_check_ok{job="skald",instance="a",check="ingest_loss"}`] == 0
		},
	},
	"SkaldStoreSilent": {
		nil,
		func(w *alertWorld) {
			other := serve(w.t, w.t.TempDir(), "--server", w.nats.ClientURL())
			listedStores(w.t, w.nats.ClientURL(), 2)
			kill(other.process)
		},
		func(s map[string]float64) bool { return figure(s, "skald_silent_stores") == 1 },
	},
	"SkaldReadersSlow": {
		nil,
		func(w *alertWorld) {
			for range 12 { // who ask and never read
				c, err := net.Dial("tcp", strings.TrimPrefix(w.http, "http://"))
				require.NoError(w.t, err)
				w.t.Cleanup(func() { c.Close() })
				_, err = io.WriteString(c, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
				require.NoError(w.t, err)
			}
			skaldtest.Eventually(w.t, patience, func() bool { return figure(w.scrape(w.t), "skald_stream_readers_live") == 12 })
			worker := w.worker(w.t)
			for range 120 {
				if figure(w.scrape(w.t), "skald_slow_readers_total") >= 12 {
					return
				}
				worker.put(ingestSubject("w", "s", "error"), nil, failed(strings.Repeat("x", 900_000)))
			}
		},
		func(s map[string]float64) bool { return figure(s, "skald_slow_readers_total") >= 12 },
	},
	restarting: {}, // three times, each seen by a scrape
}

// Each alert fires from its fault: of a real serve one scrape while all is well and one
// in the fault are recorded, and the shipped rules evaluated over what Prometheus would
// have of them. While all is well none fires. The figures are as scraped; what is not
// waited for is how long a rule wants them to stay so, which promtool's clock passes.
func TestAlerts_Fire(t *testing.T) {
	t.Parallel()
	skaldtest.NeedProgram(t, "promtool")
	names := slices.Sorted(maps.Keys(alerts))
	// The lag has to become 30 s old: it does so while the others are at it.
	const slow = "SkaldLagging"
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == slow }), slow)
	lagging := newAlertWorld(t, slow)
	well := lagging.scrape(t)
	lagging.breakDown(slow)
	for _, alert := range names {
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			w, well := lagging, well
			if alert != slow {
				w = newAlertWorld(t, alert)
				well = w.scrape(t)
				w.breakDown(alert)
			}
			w.replay(t, alert, well)
		})
	}
}

// replay records an alert's fault after the scrape in which all was well, and asks
// promtool.
func (w *alertWorld) replay(t *testing.T, alert string, well map[string]float64) {
	states := []recorded{{5 * time.Minute, well}}
	record := func(lasts time.Duration) { states = append(states, recorded{lasts, w.scrape(t)}) }
	firing(t, states, "", 4*time.Minute)
	at := 5*time.Minute + 18*time.Minute
	switch {
	case alert == restarting:
		for range 3 {
			w.restart()
			record(2 * time.Minute)
		}
		at = 10 * time.Minute
	case increases(alert):
		at = 5*time.Minute + 3*time.Minute // while the step is in the window
		fallthrough
	default:
		w.seen(t, alert)
		record(20 * time.Minute)
	}
	firing(t, states, alert, at)
}

// increases reports whether an alert is over a counter's rise in a window.
func increases(alert string) bool {
	switch alert {
	case "SkaldCommitsRefused", "SkaldMessagesRejected", "SkaldReadersSlow":
		return true
	}
	return false
}
