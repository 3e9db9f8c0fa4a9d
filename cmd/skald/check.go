package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/internal/target"
)

// state is what a monitoring plugin says, which is its exit status too.
type state int

const (
	stateOK state = iota
	stateWarning
	stateCritical
	stateUnknown
)

func (s state) String() string { return [...]string{"ok", "warning", "critical", "unknown"}[s] }

// worse returns the one that matters more: what is not known hides nothing that is.
func (s state) worse(t state) state {
	weight := [...]int{stateOK: 0, stateUnknown: 1, stateWarning: 2, stateCritical: 3}
	if weight[t] > weight[s] {
		return t
	}
	return s
}

// threshold is one figure with bounds, each a flag; what lies above one says so.
type threshold struct {
	name              string // of the flags, and of the figure in the output
	unit              string // s, B, % or nothing: those of monitoring plugins
	help              string
	warning, critical float64 // the defaults; below 0 there is none
	// of returns the figure, false if it is not known.
	of func(figures map[string]float64) (float64, bool)
}

// thresholds is the one table of what is measured.
func thresholds() []threshold {
	plain := func(name string) func(map[string]float64) (float64, bool) {
		return func(figures map[string]float64) (float64, bool) {
			v, ok := figures[name]
			return v, ok
		}
	}
	return []threshold{
		{"lag", "s", "seconds that the oldest message waits", 10, 60, plain("skald_lag_seconds")},
		{"messages", "", "messages that wait", -1, -1, plain("skald_lag_messages")},
		{"ingest-full", "%", "percent of INGEST's bound that are used", 80, 95, func(figures map[string]float64) (float64, bool) {
			used, ok := figures["skald_ingest_bytes"]
			limit := figures["skald_ingest_limit_bytes"]
			if limit == 0 { // none, so never full
				return 0, ok
			}
			return 100 * used / limit, ok
		}},
		{"rejects", "", "reject entries that wait for an operator", 0, -1, plain("skald_reject_entries")},
		{"held", "", "pages that wait for a gap to fill", -1, -1, plain("skald_held_pages")},
		{"wal", "B", "bytes of the store's write-ahead log", 512 << 20, 4 << 30, plain("skald_store_wal_bytes")},
		{"silent-stores", "", "other stores of the bus that have not been heard of and hold INGEST's trim", 0, -1, plain("skald_silent_stores")},
	}
}

// checkOptions are check's flags.
type checkOptions struct {
	url, tokenFile string
	timeout        time.Duration
	asJSON         bool
	thresholds     []threshold
}

func checkCommand(e env) *cobra.Command {
	o := checkOptions{thresholds: thresholds()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Tell a monitoring system how a running bus is",
		Long: `Tell a monitoring system how a running bus is, as plugins of Nagios do: one line,
with figures behind the bar, and exit status 0 (ok), 1 (warning), 2 (critical) or 3
(unknown: it could not be found out, or the command line is wrong).

A check of /readyz that fails is critical, and so is a serve that does not answer. A
figure above its bound is a warning or critical; a bound below 0 is none.`,
		Args: func(cmd *cobra.Command, args []string) error { return unknownIf(cobra.NoArgs(cmd, args)) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unknownIf(err) })
	o.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ask, err := o.asker()
		if err != nil {
			return unknownIf(err)
		}
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("no answer within %s", o.timeout))
		defer cancel()
		r := o.judge(ask.all(ctx))
		if err := r.print(e, o.asJSON); err != nil {
			return unknownIf(err)
		}
		if r.State == stateOK {
			return nil
		}
		return &statusError{errSaid, int(r.State)}
	}
	return cmd
}

func (o *checkOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.url, "url", target.DefaultURL, "the gateway's `URL`")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` that holds a token for all workspaces (environment: SKALD_TOKEN)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long serve may take to answer")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	for i := range o.thresholds {
		t := &o.thresholds[i]
		f.Float64Var(&t.warning, t.name+"-warning", t.warning, t.help+", from above which it is a warning")
		f.Float64Var(&t.critical, t.name+"-critical", t.critical, t.help+", from above which it is critical")
	}
}

// finding is one thing that was looked at.
type finding struct {
	Name   string   `json:"name"`
	State  state    `json:"status"`
	Detail string   `json:"detail,omitempty"`
	Value  *float64 `json:"value,omitempty"`
	Unit   string   `json:"unit,omitempty"`
	bounds string   // of a figure, as its performance data has them
}

// MarshalText has JSON say ok, warning, critical or unknown.
func (s state) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// report is what is said of all of it.
type report struct {
	State    state     `json:"status"`
	Findings []finding `json:"checks"`
}

// judge compares what was found out with the bounds. An error is a finding of its own.
func (o *checkOptions) judge(ready []finding, figures map[string]float64, err error) report {
	r := report{Findings: ready}
	if err != nil {
		r.Findings = append(r.Findings, finding{Name: "serve", State: stateOf(err), Detail: err.Error()})
	}
	if figures != nil {
		for _, t := range o.thresholds {
			r.Findings = append(r.Findings, t.judge(figures))
		}
	}
	for _, f := range r.Findings {
		r.State = r.State.worse(f.State)
	}
	return r
}

func (t *threshold) judge(figures map[string]float64) finding {
	f := finding{Name: t.name, Unit: t.unit, bounds: bound(t.warning) + ";" + bound(t.critical)}
	v, ok := t.of(figures)
	switch {
	case !ok:
		f.State, f.Detail = stateUnknown, "not known"
		return f
	case t.critical >= 0 && v > t.critical:
		f.State, f.Detail = stateCritical, fmt.Sprintf("%s%s, above %s", figure(v), t.unit, bound(t.critical))
	case t.warning >= 0 && v > t.warning:
		f.State, f.Detail = stateWarning, fmt.Sprintf("%s%s, above %s", figure(v), t.unit, bound(t.warning))
	}
	f.Value = &v
	return f
}

// bound is a bound as performance data has it.
func bound(v float64) string {
	if v < 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// figure is a figure with at most two digits after the point.
func figure(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// print writes the line, or the object.
func (r *report) print(e env, asJSON bool) error {
	if asJSON {
		b, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		return printLines(e.stdout, [][]byte{b})
	}
	var what, data []string
	for _, f := range r.Findings {
		if f.State != stateOK {
			what = append(what, f.Name+": "+f.Detail)
		}
		if f.bounds != "" {
			value := "U"
			if f.Value != nil {
				value = figure(*f.Value) + f.Unit
			}
			data = append(data, f.Name+"="+value+";"+f.bounds+";0")
		}
	}
	line := "all is well"
	if len(what) > 0 {
		line = strings.Join(what, "; ")
	}
	// A bar would begin the figures, and a line break the long text.
	line = "SKALD " + strings.ToUpper(r.State.String()) + " - " + strings.NewReplacer("|", "/", "\n", " ", "\r", " ").Replace(line)
	if len(data) > 0 {
		line += " | " + strings.Join(data, " ")
	}
	return printLines(e.stdout, [][]byte{[]byte(line)})
}
