package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// CaughtUp is what a catch-up took.
type CaughtUp struct {
	Identity      Identity
	Messages      int
	Took          time.Duration // of the materializer
	Processor     time.Duration // that the process used meanwhile, the server's part included; 0 if unknown
	Bare          time.Duration // of the bare driver, for the same rows
	BareProcessor time.Duration
}

// Result compares the rates. The bars are those of the project's figures.
func (c *CaughtUp) Result() Result {
	bar := 0.5
	if c.Identity == ByEventID {
		bar = 0.25
	}
	return Result{
		Figure: "catchup", Case: "with " + string(c.Identity), Unit: "msg/s", BaselineOf: "bare driver",
		Measured: rate(c.Messages, c.Took), Baseline: rate(c.Messages, c.Bare), Bar: Bar{Op: AtLeast, Value: bar, OfBaseline: true},
	}
}

func rate(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// CatchUp measures the whole path: n stored INGEST messages of 300 bytes over 1,000
// sessions of 10 workspaces, into EVENTS and the table, with a server that syncs
// before it acknowledges. The baseline is the bare driver: the same event rows
// inserted into a file of the same schema in batches of 1,000 with
// synchronous=FULL. It works in a directory of its own below dir, and with n a
// multiple of 1,000.
func CatchUp(ctx context.Context, dir string, id Identity, n int) (c CaughtUp, err error) {
	w, err := newWorld(ctx, dir)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c = CaughtUp{Identity: id, Messages: n}
	err = storeAll(ctx, w.js, n, func(i int) *nats.Msg { return message(w.subj, id, i, loadSessions) }, nil)
	if err != nil {
		return c, err
	}
	before := processorTime()
	if c.Took, err = w.catchUp(ctx, uint64(n)); err != nil {
		return c, fmt.Errorf("catch up: %w", err)
	}
	c.Processor = processorTime() - before
	facts, err := w.facts(ctx)
	if err != nil {
		return c, err
	}
	var rows int
	if rows, c.Bare, c.BareProcessor, err = bareInsert(ctx, w.dir); err != nil {
		return c, err
	}
	if rows != n || facts != uint64(n) {
		return c, fmt.Errorf("catch up: %d messages gave %d facts and %d rows", n, facts, rows)
	}
	return c, nil
}

func catchUpFigure(ctx context.Context, b *Bench) ([]Result, error) {
	var out []Result
	for _, id := range []Identity{ByCount, ByEventID} {
		b.note("%d stored messages with %s", b.Sizes.CatchUp, id)
		c, err := CatchUp(ctx, b.Dir, id, b.Sizes.CatchUp)
		if err != nil {
			return nil, err
		}
		if c.Processor > 0 {
			b.note("%.1f µs of processor time a message, the server's part included", float64(c.Processor.Microseconds())/float64(c.Messages))
		}
		out = append(out, c.Result())
	}
	return out, nil
}
