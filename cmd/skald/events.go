package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

// eventsFlags are those of events.
type eventsFlags struct {
	at                                            targetFlags
	after, since, limit, session, workspace, kind *once
	count                                         uint64
	follow, json                                  bool
}

func eventsCommand(e env) *cobra.Command {
	var o eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print events from the table, and follow them",
		Long: `Print one page of events from the table, oldest first, and on standard error
the cursor to go on from. Without --after-seq or --since the page begins at the
newest event, so it is empty: --after-seq 0 reads from the beginning.

With --follow it goes on and prints what comes, until Ctrl-C: from a file by looking
again, over HTTP by server-sent events, over NATS from the stream. It never skips and never repeats,
also when serve restarts. With --count it ends after as many events.`,
		Example: `  skald events --after-seq 0 --json
  skald events --follow --workspace acme --type input_required
  skald events --since 2h --count 10`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	o.after = onceFlag(f, "after-seq", "`cursor` to go on from: a number, or epoch:number")
	o.since = onceFlag(f, "since", "begin with what was stored at this `time`: a duration ago (90s, 2h, 7d), or a date or time (2026-05-01, 2026-05-01T12:00:00Z; local without zone)")
	o.limit = onceFlag(f, "limit", "most `events` of the page, from 1; more than 1000 counts as 1000 (default 200)")
	f.Uint64Var(&o.count, "count", 0, "end after this many `events`, reading as many pages as it takes")
	f.BoolVar(&o.follow, "follow", false, "go on with what comes")
	o.session = onceFlag(f, "session", "only of the session with this `id`")
	o.workspace = onceFlag(f, "workspace", "only of the workspace with this `id`")
	o.kind = onceFlag(f, "type", "only of this `type`")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line, also on a terminal")
	o.at.add(f)
	completeIDs(cmd, o.at.open)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd, e) }
	return cmd
}

func (o *eventsFlags) run(cmd *cobra.Command, e env) error {
	p := api.Params{}
	o.after.put(p, api.ParamAfterSeq)
	o.limit.put(p, api.ParamLimit)
	o.session.put(p, api.ParamSession)
	o.workspace.put(p, api.ParamWorkspace)
	o.kind.put(p, api.ParamType)
	counted := cmd.Flags().Changed("count")
	switch {
	case o.since.given && o.after.given:
		return usage("--since and --after-seq both say where to begin")
	case o.limit.given && (o.follow || counted):
		return usage("--limit is for one page; --count ends after as many events")
	case counted && o.count == 0:
		return usage("--count: must be at least 1")
	}
	var moment time.Time
	if o.since.given {
		var err error
		if moment, err = parseMoment(o.since.value, time.Now()); err != nil {
			return usage("--since: %w", err)
		}
	}
	t, err := o.at.open(e, cmd)
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if o.since.given {
		from, err := target.Since(ctx, t, p, moment)
		if err != nil {
			return err
		}
		p[api.ParamAfterSeq] = []string{from.String()}
	}
	if o.follow || counted {
		return o.print(ctx, e, t, p)
	}
	return o.page(ctx, e, t, p)
}

// page prints one page.
func (o *eventsFlags) page(ctx context.Context, e env, t target.Target, p api.Params) error {
	body, err := t.Events(ctx, p)
	if err != nil {
		return advised(err)
	}
	page, err := target.ParsePage(body)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	out := newSink(e, o.json, 0)
	for _, raw := range page.Events {
		if err := out.write(raw, bus.Cursor{}); err != nil {
			return err
		}
	}
	e.note("%s", pageNote(page, o.after.value != "" || o.since.given))
	return nil
}

// advised says what to do about a cursor that has no place.
func advised(err error) error {
	advice := ""
	switch {
	case errors.Is(err, bus.ErrCursorAhead):
		advice = "is this another bus, or was its data removed? --after-seq 0 reads from the beginning"
	case errors.Is(err, bus.ErrCursorGone):
		advice = "--after-seq 0 reads all that is kept; what was pruned before that is not to be had here"
	case errors.Is(err, bus.ErrOtherEpoch):
		advice = "numbers have begun anew since: --after-seq 0 reads them from the beginning"
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// pageNote says where the page ends and how to go on.
func pageNote(p target.Page, hasCursor bool) string {
	next := "--after-seq " + strconv.FormatUint(p.NextAfter, 10)
	listed := count(len(p.Events), "event", "events")
	switch {
	case !hasCursor:
		return fmt.Sprintf("at the newest event, %d: %s goes on from here, --after-seq 0 reads from the beginning", p.Latest, next)
	case p.NextAfter >= p.Latest:
		return fmt.Sprintf("%s, at the newest: %s goes on from here", listed, next)
	}
	return fmt.Sprintf("%s, newest is %d: %s goes on from here", listed, p.Latest, next)
}
