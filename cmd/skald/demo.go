package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/demo"
	"github.com/skaldbus/skald/internal/natsconn"
)

// demoOptions are demo's flags.
type demoOptions struct {
	nats     natsFlags
	data     string
	rate     float64
	sessions int
	length   time.Duration
	seed     uint64
	asJSON   bool
}

func demoCommand(e env) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a small fleet of workers live on a bus",
		Long: `Play the life of a small fleet on a bus: workspaces with a worker each, sessions
with prompts, streaming, tool calls, questions, failures and idle times, and now
and then a worker that is killed. Each line is a fact as it gets its number.

It plays on the bus of --server or NATS_URL, else on one that runs on this
machine, else on one of its own: in a directory that is removed at the end, or in
--data. Ctrl-C ends it. The same --seed tells the same story.`,
		Example: `  skald demo
  skald demo --for 1m --json | jq -r .type | sort | uniq -c
  skald demo --data ./demo-data --rate 50 --sessions 30`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.data, "data", "", "play on a bus of its own with this data `directory`, which stays")
	f.Float64Var(&o.rate, "rate", demo.DefaultRate, "`messages` a second that the fleet says in the mean")
	f.IntVar(&o.sessions, "sessions", demo.DefaultSessions, fmt.Sprintf("how many sessions there are, 1 to %d", demo.MaxSessions))
	f.DurationVar(&o.length, "for", 0, "how `long` to play (default until Ctrl-C)")
	f.Uint64Var(&o.seed, "seed", 0, "`number` of the story (default another one each time)")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object a fact, also on a terminal")
	o.nats.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case f.Changed("data") && o.data == "":
			return usage("--data: must not be empty")
		case f.Changed("data") && f.Changed("server"):
			return usage("--data is for a bus of its own, --server for one that runs")
		case f.Changed("for") && o.length <= 0:
			return usage("--for: must be positive")
		case f.Changed("rate") && o.rate <= 0:
			return usage("--rate: must be positive")
		case f.Changed("sessions") && o.sessions < 1:
			return usage("--sessions: must be from 1 to %d", demo.MaxSessions)
		}
		if !f.Changed("seed") {
			o.seed = uint64(rand.Uint32()) // short enough to be typed
		}
		if err := o.story().Check(); err != nil {
			return usage("--%w", err)
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		err := runDemo(ctx, e, o)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // stopped before it began
		}
		return err
	}
	return cmd
}

// story returns what to play, without where.
func (o *demoOptions) story() demo.Options {
	return demo.Options{For: o.length, Rate: o.rate, Seed: o.seed, Sessions: o.sessions}
}

// runDemo finds or starts a bus, plays the story on it, and says what to look at.
func runDemo(ctx context.Context, e env, o demoOptions) (err error) {
	b, err := o.bus(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	playing, end := context.WithCancelCause(ctx)
	defer end(nil)
	unwatch := b.watch(end)
	defer unwatch()

	show := e.factPrinter(o)
	if err := e.demoBegins(o, b); err != nil {
		return err
	}
	story := o.story()
	story.Dial = func(ctx context.Context, name string) (*nats.Conn, error) {
		opts := b.nats.options(b.natsURL)
		opts.Name = name
		return natsconn.Connect(ctx, opts)
	}
	story.Fact, story.Logger, story.Subjects = show, newLogger(e, slog.LevelError), b.conn.Subjects()
	story.Note = func(s string) { e.note("-- %s", s) }
	sum, err := demo.Run(playing, story)
	if cause := context.Cause(playing); err == nil && cause != nil && ctx.Err() == nil {
		err = cause // the bus of its own has ended
	}
	if err != nil {
		return err
	}
	return e.demoEnds(context.WithoutCancel(ctx), o, b, sum)
}
