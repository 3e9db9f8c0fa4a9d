package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

func eventsCommand(e env) *cobra.Command {
	var at targetFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print one page of events from the table",
		Long: `Print one page of events from the table, oldest first, and on standard error
the cursor to go on from. Without --after-seq the page begins at the newest
event, so it is empty: --after-seq 0 reads from the beginning.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	after := onceFlag(f, "after-seq", "`cursor` to go on from: a number, or epoch:number")
	limit := onceFlag(f, "limit", "most `events` to print, from 1; more than 1000 counts as 1000 (default 200)")
	session := onceFlag(f, "session", "only of the session with this `id`")
	workspace := onceFlag(f, "workspace", "only of the workspace with this `id`")
	typ := onceFlag(f, "type", "only of this `type`")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	at.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := api.Params{}
		after.put(p, api.ParamAfterSeq)
		limit.put(p, api.ParamLimit)
		session.put(p, api.ParamSession)
		workspace.put(p, api.ParamWorkspace)
		typ.put(p, api.ParamType)
		t, err := at.open(e, cmd)
		if err != nil {
			return err
		}
		defer t.Close()
		body, err := t.Events(cmd.Context(), p)
		if errors.Is(err, bus.ErrCursorAhead) {
			return fmt.Errorf("%w; is this another bus, or was its data removed? --after-seq 0 reads from the beginning", err)
		}
		if err != nil {
			return err
		}
		page, err := target.ParsePage(body)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if asJSON || !terminal(e.stdout) {
			err = printLines(e.stdout, page.Events)
		} else {
			err = printEvents(e, page)
		}
		if err != nil {
			return err
		}
		e.note("%s", pageNote(page, after.value != ""))
		return nil
	}
	return cmd
}

// printEvents writes a line an event for people.
func printEvents(e env, page target.Page) error {
	most := width(e.stdout)
	for _, raw := range page.Events {
		ev, err := bus.ParseEvent(raw)
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		head := fmt.Sprintf("%-8d %s  %s/%s  %s  ", ev.Seq, clock(&ev.RecordedAt), ev.Workspace, ev.Session, ev.Type)
		if _, err := fmt.Fprintln(e.stdout, clip(visible(head+string(ev.Data)), most)); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
	}
	return nil
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
