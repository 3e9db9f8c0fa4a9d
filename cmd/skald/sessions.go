package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

func sessionsCommand(e env) *cobra.Command {
	var at targetFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "Print one page of sessions",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	session := onceFlag(f, "session", "only with this `id`")
	workspace := onceFlag(f, "workspace", "only of the workspace with this `id`")
	after := onceFlag(f, "after", "`place` to go on from, as an earlier page said")
	limit := onceFlag(f, "limit", "most `sessions` to print, from 1; more than 1000 counts as 1000 (default 200)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	at.add(f)
	completeIDs(cmd, at.open)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := api.Params{}
		session.put(p, api.ParamSession)
		workspace.put(p, api.ParamWorkspace)
		after.put(p, api.ParamAfter)
		limit.put(p, api.ParamLimit)
		t, err := at.open(e, cmd)
		if err != nil {
			return err
		}
		defer t.Close()
		body, err := t.Sessions(cmd.Context(), p)
		if err != nil {
			return err
		}
		list, next, err := target.ParseSessions(body)
		if err != nil {
			return fmt.Errorf("read sessions: %w", err)
		}
		if asJSON || !terminal(e.stdout) {
			err = printLines(e.stdout, objects(list))
		} else {
			err = printSessions(e, list)
		}
		if err != nil {
			return err
		}
		listed := count(len(list), "session", "sessions")
		if next != 0 {
			e.note("%s, there are more: --after %d goes on from here", listed, next)
		} else {
			e.note("%s, no more", listed)
		}
		return nil
	}
	return cmd
}

func objects(list []target.Session) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = s.JSON
	}
	return out
}

// sessionLine is what a session's line shows of it.
type sessionLine struct {
	Workspace string  `json:"workspace_id"`
	Session   string  `json:"session_id"`
	Title     *string `json:"title"`
	State     *string `json:"state"`
	Execution *struct {
		Kind string `json:"kind"`
	} `json:"execution"`
	LastActivityAt *int64 `json:"last_activity_at_ms"`
	Events         struct {
		Count   int64   `json:"count"`
		LastSeq *uint64 `json:"last_seq"`
	} `json:"events"`
}

// printSessions writes a line a session for people.
func printSessions(e env, list []target.Session) error {
	rows := [][]string{{"WORKSPACE", "SESSION", "STATE", "EXECUTION", "EVENTS", "LAST", "ACTIVE AT", "TITLE"}}
	for _, s := range list {
		var l sessionLine
		if err := json.Unmarshal(s.JSON, &l); err != nil {
			return fmt.Errorf("read session: %w", err)
		}
		execution, last := "-", "-"
		if l.Execution != nil {
			execution = l.Execution.Kind
		}
		if l.Events.LastSeq != nil {
			last = strconv.FormatUint(*l.Events.LastSeq, 10)
		}
		rows = append(rows, []string{
			l.Workspace, l.Session, orDash(l.State), execution, strconv.FormatInt(l.Events.Count, 10), last,
			clock(l.LastActivityAt), orDash(l.Title),
		})
	}
	return table(e.stdout, rows, width(e.stdout))
}
