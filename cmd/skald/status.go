package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
)

func statusCommand(e env) *cobra.Command {
	var at targetFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print positions, lags and counters",
		Long: `Print positions, lags and counters. What only the NATS server knows is unknown
when a store file is read.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object, also on a terminal")
	at.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t, err := at.open(e, cmd)
		if err != nil {
			return err
		}
		defer t.Close()
		body, err := t.Status(cmd.Context())
		if err != nil {
			return err
		}
		if at.file {
			e.note("skald: lag is not known from a file; a running bus knows it")
		}
		if st, err := target.ParseStatus(body); err == nil && st.SilentStores > 0 {
			e.note("skald: %s of the bus not heard of, and INGEST is kept for it: `skald replicas` says which, `skald replicas rm ID` takes one off the list that will never come back",
				count(int(st.SilentStores), "store", "stores"))
		}
		if asJSON || !terminal(e.stdout) {
			return printLines(e.stdout, [][]byte{body})
		}
		return printStatus(e, body)
	}
	return cmd
}

// printStatus writes a line a number, in the order they came.
func printStatus(e env, body []byte) error {
	compact, err := bus.Compact(body)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	rows, err := flatten(nil, "", compact)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	return table(e.stdout, rows, width(e.stdout))
}

// flatten adds a row for each member of an object and of the objects in it.
func flatten(rows [][]string, prefix string, object []byte) ([][]string, error) {
	_, err := bus.Members(object, func(name string, v []byte) (err error) {
		switch {
		case bus.IsObject(v):
			rows, err = flatten(rows, prefix+name+".", v)
		case bus.IsString(v):
			rows = append(rows, []string{prefix + name, bus.Unquote(v)})
		case bus.IsNull(v):
			rows = append(rows, []string{prefix + name, "unknown"})
		default:
			rows = append(rows, []string{prefix + name, string(v)})
		}
		return err
	})
	return rows, err
}
