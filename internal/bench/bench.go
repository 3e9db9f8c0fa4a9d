package bench

import (
	"context"
	"fmt"
	"strconv"
)

// Figure is something that is measured.
type Figure struct {
	Name  string
	Group string // figures that are run when no name is given have none
	What  string // one line
	Run   func(ctx context.Context, b *Bench) ([]Result, error)
}

// Bench is what figures work with.
type Bench struct {
	// Dir is an empty directory; each figure makes its own in it and removes it.
	Dir string
	// Self is the path of the skald binary, for children.
	Self string
	// Sizes are how much is measured.
	Sizes Sizes
	// Note takes a line on what is being done. Nil is not called.
	Note func(string)
}

func (b *Bench) note(format string, args ...any) {
	if b.Note != nil {
		b.Note(fmt.Sprintf(format, args...))
	}
}

// Figures are all of this package, in the order in which they are run.
func Figures() []Figure {
	return []Figure{
		{Name: "catchup", What: "stored messages into EVENTS and the table, against the bare driver's rows", Run: catchUpFigure},
		{Name: "pages", What: "pages of a journal, against validating and hashing them on one core", Run: pagesFigure},
		{Name: "latency", What: "publish to visible row, against bare JetStream's publish to consume", Run: latencyFigure},
		{Name: "memory", What: "resident size of serve, against a server alone", Run: memoryFigure},
		{Name: "page-cost", What: "a page of 100 of a large table, against a small one", Run: pageCostFigure},
		{Name: "sessions", What: "many open sessions on one connection, against one", Run: sessionsFigure},
		{Name: "large-pages", Group: "readers", What: "a page of 100 of a very large table, against a small one", Run: readersFigure},
		{Name: "streams", Group: "readers", What: "a thousand live readers over server-sent events", Run: streamsFigure},
		{Name: "stream", Group: "readers", What: "commit to frame of one live reader, against bare NATS's publish and subscribe", Run: streamFigure},
	}
}

// Bar is what a measured value is held to.
type Bar struct {
	Op    Op
	Value float64
	// OfBaseline: what is compared is the measured value over the baseline's.
	OfBaseline bool
}

// Op is how a value is compared with a bar.
type Op string

// Comparisons.
const (
	AtLeast Op = ">="
	AtMost  Op = "<="
	Below   Op = "<"
)

// Result is one measured value beside its baseline.
type Result struct {
	Figure     string
	Case       string
	Measured   float64
	Unit       string
	Baseline   float64 // in the same unit; 0 if there is none
	BaselineOf string  // what the baseline is; empty if there is none
	Bar        Bar
}

// Compared returns what the bar is about: the measured value, or its ratio to the
// baseline, 0 without one.
func (r *Result) Compared() float64 {
	if !r.Bar.OfBaseline {
		return r.Measured
	}
	if r.Baseline == 0 {
		return 0
	}
	return r.Measured / r.Baseline
}

// Pass reports whether the bar is met. A baseline that could not be measured is no
// ground to pass.
func (r *Result) Pass() bool {
	if r.Bar.OfBaseline && r.Baseline <= 0 {
		return false
	}
	switch v := r.Compared(); r.Bar.Op {
	case AtLeast:
		return v >= r.Bar.Value
	case AtMost:
		return v <= r.Bar.Value
	default:
		return v < r.Bar.Value
	}
}

// Verdict returns PASS or FAIL.
func (r *Result) Verdict() string {
	if r.Pass() {
		return "PASS"
	}
	return "FAIL"
}

// BarText shows the bar, such as ">= 0.5 x" or "< 5 ms".
func (r *Result) BarText() string {
	unit := r.Unit
	if r.Bar.OfBaseline {
		unit = "x"
	}
	return fmt.Sprintf("%s %s %s", r.Bar.Op, strconv.FormatFloat(r.Bar.Value, 'g', -1, 64), unit)
}

// String shows the result in one line.
func (r *Result) String() string {
	s := fmt.Sprintf("%s %s: %s %s", r.Figure, r.Case, Number(r.Measured), r.Unit)
	if r.BaselineOf != "" {
		s += fmt.Sprintf(", %s %s %s, ratio %s", r.BaselineOf, Number(r.Baseline), r.Unit, Number(r.Measured/r.Baseline))
	}
	return s + fmt.Sprintf(", bar %s: %s", r.BarText(), r.Verdict())
}

// Number shows a value with three or more digits that count.
func Number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10 || v <= -10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1 || v <= -1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
