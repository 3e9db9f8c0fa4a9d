//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// rule is an alert as the file has it.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	text, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &file))
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	require.NotEmpty(t, out)
	return out
}

// figureName is a name of ours in an expression.
var figureName = regexp.MustCompile(`\bskald_[a-z0-9_]+`)

// unknown returns the names of an expression that no scrape of serve has.
func unknown(expr string, series map[string]float64) []string {
	var out []string
	for _, name := range figureName.FindAllString(expr, -1) {
		found := false
		for s := range series {
			found = found || strings.HasPrefix(s, name+"{")
		}
		if !found {
			out = append(out, name)
		}
	}
	return out
}

// The shipped rules are right, and the shipped cases hold.
func TestRules_Promtool(t *testing.T) {
	t.Parallel()
	promtool := skaldtest.NeedProgram(t, "promtool")
	for _, args := range []string{"check rules rules.yml", "test rules rules_test.yml"} {
		cmd := exec.Command(promtool, strings.Fields(args)...)
		cmd.Dir = "../../deploy/prometheus"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
	}
}

// Each alert has a severity, an entry in the runbook that its URL names, a case in which
// it fires and one in which it does not, and a fault that fires it; its figures are there
// in a scrape. The runbook has no entry without an alert.
func TestRules_Complete(t *testing.T) {
	t.Parallel()
	series := shared(t).scrape(t)
	runbook, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	cases, err := os.ReadFile("../../deploy/prometheus/rules_test.yml")
	require.NoError(t, err)
	type sample struct{ Labels string }
	var tests struct {
		Tests []struct {
			Name  string
			Cases []struct {
				Samples []sample `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(cases, &tests))
	anchors := map[string]bool{}
	for line := range strings.Lines(string(runbook)) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			anchors[strings.ToLower(title)] = true
		}
	}
	for _, r := range rules(t) {
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		page, anchor, ok := strings.Cut(r.Annotations["runbook_url"], "#")
		require.True(t, ok, r.Alert)
		require.Equal(t, "https://github.com/skaldbus/skald/blob/main/docs/runbook.md", page)
		require.Contains(t, anchors, anchor, r.Alert)
		delete(anchors, anchor)
		require.Empty(t, unknown(r.Expr, series), r.Alert)
		require.Contains(t, alerts, r.Alert)
		fires, quiet := 0, 0
		for _, test := range tests.Tests {
			for _, c := range test.Cases {
				if test.Name != r.Alert {
					continue
				}
				if len(c.Samples) == 0 {
					quiet++
				} else if strings.Contains(c.Samples[0].Labels, r.Alert) {
					fires++
				}
			}
		}
		require.Positive(t, fires, r.Alert)
		require.Positive(t, quiet, r.Alert)
	}
	require.Empty(t, anchors, "entries of no alert")
	require.Len(t, alerts, len(rules(t)))
}

// board is a dashboard as the file has it.
type board struct {
	UID    string
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
}

func dashboard(t *testing.T) board {
	t.Helper()
	var b board
	text, err := os.ReadFile("../../deploy/grafana/skald.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	return b
}

// queries returns the panels' queries by title.
func (b board) queries() map[string][]string {
	out := map[string][]string{}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], target.Expr)
		}
	}
	return out
}

// Each query of the dashboard names figures that a scrape has, and no other variables;
// panels have titles, descriptions and ids of their own.
func TestDashboard(t *testing.T) {
	t.Parallel()
	series := shared(t).scrape(t)
	b := dashboard(t)
	require.Equal(t, "skald", b.UID)
	ids := map[int]bool{}
	for _, p := range b.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		if p.Type != "row" {
			require.NotEmpty(t, p.Description, p.Title)
			require.NotEmpty(t, p.Targets, p.Title)
		}
	}
	for title, queries := range b.queries() {
		for _, expr := range queries {
			require.NotContains(t, strings.NewReplacer("$__rate_interval", "", "$job", "", "$instance", "").Replace(expr), "$", title)
			require.Empty(t, unknown(expr, series), title)
		}
	}
}
