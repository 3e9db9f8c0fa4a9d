package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/skaldbus/skald/internal/bench/readers"
)

// Facts a second, for many readers and for one.
const (
	streamsPerSecond = 500
	onePerSecond     = 100
)

// streamsFigure has many readers follow server-sent events.
func streamsFigure(ctx context.Context, b *Bench) ([]Result, error) {
	b.note("%d streams of workspaces and 10 of everything follow %d facts a second for %s", b.Sizes.Streams, streamsPerSecond, b.Sizes.StreamsFor)
	r, err := readers.Many(ctx, readers.ManyOptions{
		Facts: int(b.Sizes.StreamsFor.Seconds() * streamsPerSecond), PerSecond: streamsPerSecond, Readers: b.Sizes.Streams,
	})
	if err != nil {
		return nil, err
	}
	b.note("%d readers wait for what does not come", b.Sizes.Streams)
	idle, err := readers.Idle(ctx, b.Sizes.Streams, int(b.Sizes.StreamsFor.Seconds()*streamsPerSecond)/5, streamsPerSecond)
	if err != nil {
		return nil, err
	}
	const figure, bare = "streams", "bare NATS"
	all := r.Options.Readers + r.Options.Everything
	many := fmt.Sprintf("of %d readers", all)
	return []Result{
		{
			Figure: figure, Case: "publish to frame " + many + ", p99", Measured: inMS(r.Deliver.P99), Baseline: inMS(r.Bare.P99), Unit: "ms", BaselineOf: bare,
			Bar: Bar{Op: Below, Value: 100},
		},
		{Figure: figure, Case: "with exactly the table's list", Measured: float64(all - r.Wrong), Unit: "readers", Bar: Bar{Op: AtLeast, Value: float64(all)}},
		{Figure: figure, Case: "last publish to last commit", Measured: inMS(r.Lag), Unit: "ms", Bar: Bar{Op: Below, Value: 1000}},
		{
			Figure: figure, Case: "reads of the table for idle readers", Measured: float64(idle.Reads + idle.Pages), Baseline: float64(idle.Commits),
			Unit: "reads", BaselineOf: "commits", Bar: Bar{Op: AtMost, Value: 1, OfBaseline: true},
		},
	}, nil
}

// streamFigure compares one reader with a bare subscriber.
func streamFigure(ctx context.Context, b *Bench) ([]Result, error) {
	facts := int(b.Sizes.StreamsFor.Seconds() * onePerSecond)
	b.note("one stream and a bare subscriber follow %d facts a second for %s", onePerSecond, b.Sizes.StreamsFor)
	r, err := readers.One(ctx, facts, onePerSecond)
	if err != nil {
		return nil, err
	}
	result := func(name string, frame, bare time.Duration, most float64) Result {
		return Result{
			Figure: "stream", Case: "commit to frame of one reader, " + name, Measured: inMS(frame), Baseline: inMS(bare), Unit: "ms", BaselineOf: "bare NATS",
			Bar: Bar{Op: AtMost, Value: most, OfBaseline: true},
		}
	}
	return []Result{result("p50", r.Frame.P50, r.Bare.P50, 5), result("p99", r.Frame.P99, r.Bare.P99, 10)}, nil
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
