//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// prometheus is a real one with the shipped rules, which scrapes serves once a
// second.
type prometheus struct {
	url, targets string
}

// sample is one of a query's.
type sample struct {
	Metric map[string]string
	Value  [2]any // time and figure
}

// newPrometheus starts one that scrapes nothing yet.
func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	program := skaldtest.NeedProgram(t, "prometheus")
	dir, addr := t.TempDir(), skaldtest.FreeAddress(t)
	rules, err := filepath.Abs(filepath.Join(deployed, "prometheus", "rules.yml"))
	require.NoError(t, err)
	p := &prometheus{"http://" + addr, filepath.Join(dir, "targets.json")}
	p.scrapes(t, nil)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: skald
    file_sd_configs: [{files: [%q], refresh_interval: 1s}]
`, rules, p.targets), 0o600))
	running := background(t, exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr))
	skaldtest.Eventually(t, patience, func() bool {
		resp, err := client.Get(p.url + "/-/ready")
		if err != nil {
			return !running.running()
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	require.True(t, running.running(), running.text())
	return p
}

// scrapes says which serves it scrapes, host and port by name of the instance.
func (p *prometheus) scrapes(t *testing.T, serves map[string]string) {
	t.Helper()
	groups := []map[string]any{}
	for name, addr := range serves {
		groups = append(groups, map[string]any{"targets": []string{addr}, "labels": map[string]string{"instance": name}})
	}
	text, err := json.Marshal(groups)
	require.NoError(t, err)
	// Whole or not at all: it is read at any time.
	require.NoError(t, os.WriteFile(p.targets+".new", text, 0o600))
	require.NoError(t, os.Rename(p.targets+".new", p.targets))
}

// get asks its API.
func (p *prometheus) get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := client.Get(p.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Equal(t, "success", answer.Status, "%s: %s", path, answer.Error)
	require.NoError(t, json.Unmarshal(answer.Data, into))
}

func (p *prometheus) query(t *testing.T, expr string) []sample {
	t.Helper()
	var data struct{ Result []sample }
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &data)
	return data.Result
}

// The shipped rules are evaluated without an error, and each query of the dashboard shows
// something, over a real serve that a worker, a reader and bad messages keep busy.
func TestDashboard_Prometheus(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t)
	s := serve(t, t.TempDir())
	p.scrapes(t, map[string]string{"a": strings.TrimPrefix(s.http, "http://")})
	w := s.worker(t)
	j := newRelayChain()
	j.page(1) // never comes
	w.put(ingestSubject("w", "held", "projection"), nil, j.page(1))

	empty := map[string]string{}
	for title, queries := range dashboard(t).queries() {
		for _, expr := range queries {
			empty[strings.NewReplacer("$__rate_interval", "10s", "$job", "skald", "$instance", ".*").Replace(expr)] = title
		}
	}
	require.Greater(t, len(empty), 30)
	skaldtest.Eventually(t, patience, func() bool {
		w.put(ingestSubject("w", "s", "error"), nil, failed("x"))
		w.put(ingestSubject("w", "s", "error"), nil, "no JSON")
		for expr := range empty {
			data := p.query(t, expr)
			shown := len(data) > 0
			for _, d := range data {
				shown = shown && d.Value[1] != "NaN"
			}
			if shown {
				delete(empty, expr)
			}
		}
		return len(empty) == 0
	}, "queries without data: %v", &empty)

	var evaluated struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get(t, "/api/v1/rules", &evaluated)
	require.Len(t, evaluated.Groups, 1)
	require.Len(t, evaluated.Groups[0].Rules, len(rules(t)))
	for _, r := range evaluated.Groups[0].Rules {
		require.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
	}
}

// Each alert whose rule wants its fault to last two minutes at most fires in a real
// Prometheus with the rules as they are, for the serve that has the fault. What lasts
// longer, TestAlerts_Fire has promtool evaluate. With SKALD_TEST_LONG=1 only: it takes as
// long as the rules say.
func TestAlerts_Prometheus(t *testing.T) {
	if os.Getenv("SKALD_TEST_LONG") == "" {
		t.Skip("takes minutes: SKALD_TEST_LONG=1")
	}
	t.Parallel()
	p := newPrometheus(t)
	worlds, addrs := map[string]*alertWorld{}, map[string]string{}
	for _, r := range rules(t) {
		wait, err := time.ParseDuration(r.For)
		if r.For != "" {
			require.NoError(t, err, r.Alert)
		}
		if wait <= 2*time.Minute {
			worlds[r.Alert] = newAlertWorld(t, r.Alert)
			addrs[r.Alert] = worlds[r.Alert].addr
		}
	}
	require.Greater(t, len(worlds), 8)
	p.scrapes(t, addrs)
	scraped := func(alert string, than float64) float64 {
		start := than
		skaldtest.Eventually(t, patience, func() bool {
			for _, d := range p.query(t, fmt.Sprintf("skald_process_start_time_seconds{instance=%q}", alert)) {
				require.NoError(t, json.Unmarshal([]byte(d.Value[1].(string)), &start))
			}
			return start > than
		}, alert+" is scraped")
		return start
	}
	for alert, w := range worlds {
		start := scraped(alert, 0)
		if alert == restarting {
			for range 3 {
				w.restart()
				start = scraped(alert, start)
			}
		}
		w.breakDown(alert)
	}
	for alert := range worlds {
		began := time.Now()
		skaldtest.Eventually(t, 5*time.Minute, func() bool {
			return len(p.query(t, fmt.Sprintf(`ALERTS{alertstate="firing",alertname=%q,instance=%q}`, alert, alert))) > 0
		}, alert+" fires")
		t.Logf("%s fires, waited for %s", alert, time.Since(began).Round(time.Second))
	}
	require.Empty(t, p.query(t, `ALERTS{alertstate="firing",instance="SkaldMessagesRejected",alertname!="SkaldMessagesRejected"}`), "a serve without another fault has no other alert")
}
