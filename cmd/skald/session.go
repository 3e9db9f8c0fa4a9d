package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/api"
)

func sessionCommand(e env) *cobra.Command {
	var at targetFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "session ID",
		Short: "Print one session",
		Long: `Print one session. If several workspaces have a session of this id, name one with
--workspace. The exit status is 3 if there is none or it was forgotten.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	workspace := onceFlag(f, "workspace", "the workspace's `id`")
	f.BoolVar(&asJSON, "json", false, "print one line, also on a terminal")
	at.add(f)
	completeIDs(cmd, at.open)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := api.Params{}
		workspace.put(p, api.ParamWorkspace)
		if err := api.CheckID(api.ParamSession, args[0]); err != nil {
			return err
		}
		t, err := at.open(e, cmd)
		if err != nil {
			return err
		}
		defer t.Close()
		body, err := t.Session(cmd.Context(), args[0], p)
		if err != nil {
			return withCandidates(err)
		}
		if asJSON || !terminal(e.stdout) {
			return printLines(e.stdout, [][]byte{body})
		}
		return indented(e.stdout, body)
	}
	return cmd
}

// withCandidates names the workspaces to choose from.
func withCandidates(err error) error {
	f := api.FailureOf(err)
	if f.Code != api.CodeAmbiguous {
		return err
	}
	names := make([]string, len(f.Candidates))
	for i, c := range f.Candidates {
		names[i] = fmt.Sprintf("%q", c)
	}
	return errors.Join(err, fmt.Errorf("choose one with --workspace: %s", strings.Join(names, ", ")))
}
