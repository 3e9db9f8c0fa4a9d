//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/bench"
)

// A figure that is named is measured alone; with --quick nothing is judged.
func TestBench_Quick(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := cli("bench", "page-cost", "--quick", "--json", "--dir", dir)
	lines := split(r.ok(t))
	require.Len(t, lines, 3)
	for _, l := range lines {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &v))
		require.Equal(t, "page-cost", v["figure"])
		require.Contains(t, v, "pass")
		require.Nil(t, v["pass"])
		require.Positive(t, v["measured"])
		require.NotEmpty(t, v["bar"])
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	out := cli("bench", "page-cost", "--quick", "--dir", dir).ok(t)
	require.Regexp(t, `(?m)^ran   page-cost by session +\S+ ms  bar <= 2 x +of 10000 rows \S+, \S+ x$`, out)
}

// Figures that were measured are judged: one below its bar makes the exit status 1,
// and the others are printed all the same.
func TestBench_Verdict(t *testing.T) {
	t.Parallel()
	figure := func(name string, measured float64) bench.Figure {
		return bench.Figure{Name: name, Run: func(context.Context, *bench.Bench) ([]bench.Result, error) {
			return []bench.Result{{Figure: name, Case: "c", Measured: measured, Baseline: 10, BaselineOf: "bare", Unit: "msg/s",
				Bar: bench.Bar{Op: bench.AtLeast, Value: 0.5, OfBaseline: true}}}, nil
		}}
	}
	var out bytes.Buffer
	e := env{stdout: &out, stderr: &bytes.Buffer{}}
	o := benchOptions{dir: t.TempDir()}
	require.NoError(t, runBench(t.Context(), e, &bench.Bench{}, []bench.Figure{figure("good", 5)}, o))
	err := runBench(t.Context(), e, &bench.Bench{}, []bench.Figure{figure("bad", 4), figure("good", 6)}, o)
	require.ErrorIs(t, err, errMissed)
	require.ErrorContains(t, err, "bad c")
	require.Equal(t, exitFailed, exitStatus(err))
	require.Equal(t, []string{"PASS", "FAIL", "PASS"}, firstWords(out.String()))
	out.Reset()
	o.asJSON = true
	require.Error(t, runBench(t.Context(), e, &bench.Bench{}, []bench.Figure{figure("bad", 4)}, o))
	require.JSONEq(t, `{"figure":"bad","case":"c","measured":4,"unit":"msg/s","baseline":10,"baseline_of":"bare","compared":0.4,"bar":">= 0.5 x","pass":false}`, out.String())
}

func firstWords(out string) []string {
	var words []string
	for _, l := range split(out) {
		words = append(words, strings.Fields(l)[0])
	}
	return words
}

// What is measured only if it is named is not measured without names; unknown names
// are refused with the known ones.
func TestBench_Choose(t *testing.T) {
	t.Parallel()
	chosen, err := chooseFigures(bench.Figures(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"catchup", "pages", "latency", "memory", "page-cost", "sessions"}, figureNames(chosen))
	chosen, err = chooseFigures(bench.Figures(), []string{"readers", "pages"})
	require.NoError(t, err)
	require.Equal(t, []string{"pages", "large-pages", "streams", "stream"}, figureNames(chosen))
	chosen, err = chooseFigures(bench.Figures(), []string{"stream"})
	require.NoError(t, err)
	require.Equal(t, []string{"stream"}, figureNames(chosen))
	cli("bench", "speed").fails(t, exitUsage, "speed", "catchup", "readers")
	cli("bench", "page-cost", "--dir", t.TempDir()+"/none").fails(t, exitFailed, "none")
}
