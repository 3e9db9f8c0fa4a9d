package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

const (
	// completeTimeout bounds a completion: someone has pressed a key and waits.
	completeTimeout = 2 * time.Second
	// completePages is how many pages of 1,000 sessions are looked through.
	completePages = 10
)

// opener reaches the place that a command's flags mean.
type opener func(env, *cobra.Command) (target.Target, error)

// natsOpener is the opener of a command that has only NATS to ask.
func natsOpener(n *natsFlags) opener {
	return func(_ env, cmd *cobra.Command) (target.Target, error) { return n.open(cmd.Context()) }
}

// completeIDs lets the shell complete --workspace, --session, and the session that
// is an argument. Whoever presses the key is told nothing of what fails.
func completeIDs(cmd *cobra.Command, open opener) {
	workspaces := func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return listed(cmd, open, api.Params{}, prefix, func(s target.Session) string { return s.Workspace })
	}
	sessions := func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		p := api.Params{}
		if f := cmd.Flags().Lookup("workspace"); f != nil && f.Value.String() != "" {
			p[api.ParamWorkspace] = []string{f.Value.String()}
		}
		return listed(cmd, open, p, prefix, func(s target.Session) string { return s.Session })
	}
	for name, fn := range map[string]cobra.CompletionFunc{"workspace": workspaces, "session": sessions} {
		if cmd.Flags().Lookup(name) != nil {
			// The error is a flag that there is not, or one that has a function.
			_ = cmd.RegisterFlagCompletionFunc(name, fn)
		}
	}
	if cmd.Flags().Lookup("session") == nil {
		cmd.ValidArgsFunction = sessions
	}
}

// parseAgain lets the flags of all commands be parsed twice, as a completion does.
func parseAgain(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if o, ok := f.Value.(*once); ok {
				o.again = true
			}
		})
	}
}

// listed returns what of asks for of each session that p means, as far as it begins
// with prefix.
func listed(cmd *cobra.Command, open opener, p api.Params, prefix string, of func(target.Session) string) ([]string, cobra.ShellCompDirective) {
	const nothingElse = cobra.ShellCompDirectiveNoFileComp
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	cmd.SetContext(ctx)
	t, err := open(env{stdout: io.Discard, stderr: io.Discard}, cmd)
	if err != nil {
		return nil, nothingElse
	}
	defer t.Close()
	p[api.ParamLimit] = []string{strconv.Itoa(api.MaxLimit)}
	var out []string
	for range completePages {
		body, err := t.Sessions(ctx, p)
		if err != nil {
			break
		}
		list, next, err := target.ParseSessions(body)
		if err != nil {
			break
		}
		for _, s := range list {
			if id := of(s); strings.HasPrefix(id, prefix) {
				out = append(out, id)
			}
		}
		if next == 0 {
			break
		}
		p[api.ParamAfter] = []string{strconv.FormatUint(next, 10)}
	}
	slices.Sort(out)
	return slices.Compact(out), nothingElse
}
