package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/bench"
	"github.com/skaldbus/skald/internal/natsd"
)

var (
	// errMissed: a figure does not meet its bar.
	errMissed = errors.New("below its bar")
	// errInterrupted: Ctrl-C came first.
	errInterrupted = errors.New("stopped before all was measured")
)

// benchOptions say where bench works and how it prints.
type benchOptions struct {
	dir    string
	asJSON bool
	quick  bool // nothing is judged
}

func benchCommand(e env) *cobra.Command {
	var asJSON, quick bool
	var dir string
	figures := bench.Figures()
	cmd := &cobra.Command{
		Use:   "bench [FIGURE ...]",
		Short: "Measure the figures that Skald is held to, on this machine",
		Long: `Measure the figures that Skald is held to. Each is printed beside its baseline
from the same run and the bar, with PASS or FAIL; a FAIL makes the exit status 1.
What is needed is started and removed again; a running bus is not touched.

` + figureList(figures),
		ValidArgs: argumentNames(figures),
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object a result")
	f.BoolVar(&quick, "quick", false, "small sizes: shows that everything runs, and judges nothing")
	f.StringVar(&dir, "dir", "", "an existing `directory` on the disk that is to be measured (default the system's for temporary files)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		chosen, err := chooseFigures(figures, args)
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		b := bench.Bench{Self: self, Sizes: bench.Full(), Note: func(s string) { e.note("  %s", s) }}
		if quick {
			b.Sizes = bench.Quick()
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		return runBench(ctx, e, &b, chosen, benchOptions{dir, asJSON, quick})
	}
	cmd.AddCommand(benchServerCommand(e))
	return cmd
}

func figureNames(figures []bench.Figure) []string {
	var out []string
	for _, f := range figures {
		out = append(out, f.Name)
	}
	return out
}

// argumentNames are what may be named: figures, and groups of them.
func argumentNames(figures []bench.Figure) []string {
	out := figureNames(figures)
	for _, f := range figures {
		if f.Group != "" && !slices.Contains(out, f.Group) {
			out = append(out, f.Group)
		}
	}
	return out
}

// figureList describes the figures for the help.
func figureList(figures []bench.Figure) string {
	var b strings.Builder
	b.WriteString("Figures:\n")
	for _, f := range figures {
		note := ""
		if f.Group != "" {
			note = " (only if it or " + f.Group + " is named)"
		}
		fmt.Fprintf(&b, "  %-11s %s%s\n", f.Name, f.What, note)
	}
	return b.String()
}

// chooseFigures returns the named ones, by name or group, in the order in which they
// are measured; without names those that belong to no group.
func chooseFigures(figures []bench.Figure, names []string) ([]bench.Figure, error) {
	var out []bench.Figure
	for _, f := range figures {
		if slices.Contains(names, f.Name) || f.Group != "" && slices.Contains(names, f.Group) || len(names) == 0 && f.Group == "" {
			out = append(out, f)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(figures, func(f bench.Figure) bool { return f.Name == n || f.Group == n }) {
			return nil, usage("no figure is called %q; there are %s", n, strings.Join(argumentNames(figures), ", "))
		}
	}
	return out, nil
}

// runBench measures in a directory of its own, which it removes.
func runBench(ctx context.Context, e env, b *bench.Bench, figures []bench.Figure, o benchOptions) (err error) {
	if b.Dir, err = os.MkdirTemp(o.dir, "skald-bench-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir)) }()
	print := printResult
	if o.asJSON {
		print = printResultJSON
	}
	var missed []string
	for _, f := range figures {
		e.note("%s: %s", f.Name, f.What)
		results, err := f.Run(ctx, b)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil {
			return fmt.Errorf("measure %s: %w", f.Name, err)
		}
		for _, r := range results {
			if err := print(e.stdout, &r, !o.quick); err != nil {
				return err
			}
			if !r.Pass() && !o.quick {
				missed = append(missed, r.Figure+" "+r.Case)
			}
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%w: %s", errMissed, strings.Join(missed, "; "))
	}
	return nil
}

// printResult writes a result as columns that line up over all figures.
func printResult(w io.Writer, r *bench.Result, judged bool) error {
	verdict := r.Verdict()
	if !judged {
		verdict = "ran "
	}
	name := r.Figure + " " + r.Case
	measured := bench.Number(r.Measured) + " " + r.Unit
	beside := ""
	if r.BaselineOf != "" {
		beside = fmt.Sprintf("%s %s, %s x", r.BaselineOf, bench.Number(r.Baseline), bench.Number(r.Measured/r.Baseline))
	}
	if _, err := fmt.Fprintf(w, "%s  %-48s %14s  bar %-12s %s\n", verdict, name, measured, r.BarText(), beside); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// resultJSON is a result for programs.
type resultJSON struct {
	Figure     string   `json:"figure"`
	Case       string   `json:"case"`
	Measured   float64  `json:"measured"`
	Unit       string   `json:"unit"`
	Baseline   *float64 `json:"baseline"`
	BaselineOf *string  `json:"baseline_of"`
	Compared   float64  `json:"compared"` // what the bar is about: measured, or its ratio to the baseline
	Bar        string   `json:"bar"`
	Pass       *bool    `json:"pass"` // null with --quick
}

func printResultJSON(w io.Writer, r *bench.Result, judged bool) error {
	out := resultJSON{Figure: r.Figure, Case: r.Case, Measured: r.Measured, Unit: r.Unit, Compared: r.Compared(), Bar: r.BarText()}
	if pass := r.Pass(); judged {
		out.Pass = &pass
	}
	if r.BaselineOf != "" {
		out.Baseline, out.BaselineOf = &r.Baseline, &r.BaselineOf
	}
	b, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	return printLines(w, [][]byte{b})
}

// benchServerCommand runs a NATS server alone, for the baselines that need one.
func benchServerCommand(e env) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:    bench.ServerCommand,
		Short:  "Run a NATS server as serve would, and nothing else",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	cmd.Flags().StringVar(&data, "data", "", "data `directory`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		start, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		s, err := natsd.Start(start, natsd.Options{Dir: filepath.Join(data, "jetstream"), Listen: "127.0.0.1:0", Logger: newLogger(e, slog.LevelWarn)})
		if err != nil {
			return err
		}
		defer s.Shutdown()
		e.note("  NATS  %s", s.ClientURL())
		<-ctx.Done()
		return nil
	}
	return cmd
}
