package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

func pruneCommand(e env) *cobra.Command {
	var at natsFlags
	var before uint64
	var olderThan string
	var wait time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove old events from the table",
		Long: `Remove the events below a number from the table, or those that were stored
before a time. Readers do not see them any more as soon as the command returns,
and a cursor among them gets the answer "gone"; the space is given back in
small steps. A second prune goes on from there, so it can be run by a timer.

Sessions stay, and so do their states and what duplicates are known by. EVENTS
keeps its messages: bound it by age or bytes of its own if they are to go too.
The prune is a message in INGEST, so it reaches every store of the bus. There is
no way back but a backup.`,
		Example: `  skald prune --older-than 90d --yes
  skald prune --before-seq 100000 --server nats://127.0.0.1:4222`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.Uint64Var(&before, "before-seq", 0, "remove events below this `number`")
	f.StringVar(&olderThan, "older-than", "", "remove what was stored before this `time`: a duration ago (2h, 90d), or a date or time (2026-05-01, 2026-05-01T12:00:00Z; local without zone)")
	f.DurationVar(&wait, "wait", 10*time.Second, "how long to wait for the outcome")
	f.BoolVar(&yes, "yes", false, "do it; needed where standard input is a terminal")
	at.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		byAge := f.Changed("older-than")
		switch {
		case byAge == f.Changed("before-seq"):
			return usage("say up to where: by --before-seq or by --older-than")
		case !byAge && (before < 1 || before > math.MaxInt64):
			return usage("--before-seq: must be a number from 1 to 2^63-1")
		case wait < 0:
			return usage("--wait: must not be negative")
		}
		var moment time.Time
		if byAge {
			var err error
			if moment, err = parseMoment(olderThan, time.Now()); err != nil {
				return usage("--older-than: %w", err)
			}
		}
		conn, err := at.open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		if byAge {
			last, err := target.Since(cmd.Context(), conn, api.Params{}, moment)
			if err != nil {
				return fmt.Errorf("look for the first event to keep: %w", err)
			}
			before = last.Seq + 1
		}
		st, err := askStatus(cmd.Context(), conn)
		if err != nil {
			return err
		}
		if before <= st.Oldest {
			return printLines(e.stdout, [][]byte{[]byte("nothing to prune, the oldest kept is " + strconv.FormatUint(st.Oldest, 10))})
		}
		if !yes && terminal(e.stdin) {
			return usage("this removes the events %d to %d from the table for good: say so with --yes", st.Oldest, min(before-1, st.Latest))
		}
		if st, err = prune(cmd.Context(), conn, before, wait); err != nil {
			return err
		}
		return printLines(e.stdout, [][]byte{[]byte("pruned, the oldest kept is " + strconv.FormatUint(st.Oldest, 10))})
	}
	return cmd
}

// prune sends the message and waits until a store has taken it.
func prune(ctx context.Context, conn *target.NATS, before uint64, wait time.Duration) (st target.Status, err error) {
	body := append(strconv.AppendUint([]byte(`{"op":"`+string(bus.OpPrune)+`","before_seq":`), before, 10), '}')
	seq, err := storeMessage(ctx, conn, message{class: bus.ClassControl, body: body})
	if err != nil {
		return st, err
	}
	cause := fmt.Errorf("it is stored as message %d of INGEST, but was not applied within %s; it will be: %w", seq, wait, bus.ErrUnavailable)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, cause)
	defer cancel()
	for {
		st, err := askStatus(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return st, context.Cause(ctx)
		case err != nil:
			return st, err
		case st.IngestPosition >= seq:
			return st, nil
		}
		select {
		case <-time.After(outcomePoll):
		case <-ctx.Done():
		}
	}
}

func askStatus(ctx context.Context, conn *target.NATS) (target.Status, error) {
	body, err := conn.Status(ctx)
	if err != nil {
		return target.Status{}, fmt.Errorf("ask for the status: %w", err)
	}
	return target.ParseStatus(body)
}
