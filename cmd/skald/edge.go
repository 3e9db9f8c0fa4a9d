package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/edge"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/sdnotify"
	"github.com/skaldbus/skald/internal/target"
)

func edgeCommand(e env) *cobra.Command {
	var n natsFlags
	var logLevel string
	most := edge.DefaultMaxPerWorkspace
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "Take messages of workers that are not trusted into INGEST",
		Long: `Take messages of workers that are not trusted, and store them in INGEST with the
headers that are Skald's and no other. Workers reach it through the accounts that
"skald auth" writes. It keeps nothing; run two or more. SIGTERM or Ctrl-C stop it
cleanly.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.IntVar(&most, "max-per-workspace", most, "how many `messages` of one workspace may be under way")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	n.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var level slog.Level
		switch {
		case most < 1:
			return usage("--max-per-workspace: must be at least 1")
		case level.UnmarshalText([]byte(logLevel)) != nil:
			return usage("--log-level: must be debug, info, warn or error, not %q", logLevel)
		}
		subjects, err := bus.NewSubjects(n.prefix)
		if err != nil {
			return usage("--%w", err)
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		return runEdge(ctx, e, &n, edge.Options{Subjects: subjects, Logger: newLogger(e, level), MaxPerWorkspace: most})
	}
	return cmd
}

// runEdge connects, waiting for a server that is starting, and takes messages until
// ctx ends.
func runEdge(ctx context.Context, e env, n *natsFlags, o edge.Options) error {
	if _, err := n.complete(); err != nil {
		return err
	}
	url := n.server
	if url == "" {
		url = target.DefaultServer
	}
	notifier, err := sdnotify.New()
	if err != nil {
		return err
	}
	opts := n.options(url)
	opts.Name, opts.Logger = "skald edge", o.Logger
	err = patiently(ctx, o.Logger, startTimeout, func(ctx context.Context) (err error) {
		o.Conn, err = natsconn.Connect(ctx, opts)
		return target.ExplainConnect(err)
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it was starting
		}
		return err
	}
	defer o.Conn.Close()
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	ed, err := edge.New(o)
	if err != nil {
		return fmt.Errorf("--max-per-workspace: %w", err)
	}
	return runStack(ctx, actor{"edge", ed.Run}, actor{"systemd", func(ctx context.Context) error {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
		e.note("edge on %s", natsconn.Redact(url))
		return notifier.Run(ctx, o.Logger, func(context.Context) error { return nil })
	}})
}
