package main

import (
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

func forgetCommand(e env) *cobra.Command {
	var c control
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget SESSION",
		Short: "Forget a session for good",
		Long: `Forget a session for good: its rows, rejects and messages in EVENTS go, its
numbers are never used again, and late messages for it are dropped. There is no
way back. Copies in INGEST leave with its trim.`,
		Args: cobra.ExactArgs(1),
	}
	c.add(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "do it; needed where standard input is a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := c.message(args[0], []byte(`{"op":"`+string(bus.OpForget)+`"}`))
		if err != nil {
			return err
		}
		if !yes && terminal(e.stdin) {
			return usage("this forgets session %q of workspace %q for good: say so with --yes", m.key.Session, m.key.Workspace)
		}
		o, err := c.send(cmd.Context(), m)
		if err != nil {
			return err
		}
		// What a forgotten session is told is dropped, the forget itself too.
		if o.Outcome != api.OutcomeDropped {
			return refused("forget", o)
		}
		return printLines(e.stdout, [][]byte{[]byte(visible("forgotten " + m.key.Workspace + "/" + m.key.Session))})
	}
	return cmd
}
