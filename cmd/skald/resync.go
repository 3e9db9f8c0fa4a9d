package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

func resyncCommand(e env) *cobra.Command {
	var c control
	var ordinal uint64
	var digest string
	cmd := &cobra.Command{
		Use:   "resync SESSION",
		Short: "Set the position of a session's chain",
		Long: `Set the position of a session's chain ahead of where it is: to adopt a journal
that began elsewhere, or out of a gap that nothing fills any more. What lies
between is skipped, and a reject entry names the range.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	c.add(f)
	completeIDs(cmd, natsOpener(&c.at))
	f.Uint64Var(&ordinal, "ordinal", 0, "the `ordinal` of the last relay event to skip, from 1 (required)")
	f.StringVar(&digest, "digest", "", "that event's `digest`, 64 lower-case hex digits (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := strconv.AppendUint([]byte(`{"op":"`+string(bus.OpResync)+`","ordinal":`), ordinal, 10)
		body = append(bus.AppendQuoted(append(body, `,"digest":`...), digest), '}')
		m, err := c.message(args[0], body)
		if err != nil {
			return err
		}
		conn, err := c.at.open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		o, err := c.send(cmd.Context(), conn, m)
		if err != nil {
			return err
		}
		if o.Outcome != api.OutcomeApplied {
			return refused("resync", o)
		}
		line := "resynced " + m.key.Workspace + "/" + m.key.Session + " to " + strconv.FormatUint(ordinal, 10) + " " + digest
		return printLines(e.stdout, [][]byte{[]byte(visible(line))})
	}
	return cmd
}
