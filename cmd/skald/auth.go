package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/auth"
)

func authCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Write the NATS configuration that keeps tenants apart, and their keys",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(authWriteCommand(e), authDurablesCommand(e))
	return cmd
}

func authWriteCommand(e env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "write DESCRIPTION",
		Short: "Write accounts, keys and contexts from a description",
		Long: `Write into a folder what the description says: ` + auth.ConfigFile + `, which a NATS
server's configuration includes, and for each user a seed and a context of the nats
tool, of mode 0600. Keys that are there are kept, so it can be run again when the
description changes; then reload the servers. docs/tenants.md has the description.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&dir, "out", "skald-auth", "`folder` to write into, made if it is not there")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if dir == "" {
			return usage("--out: must not be empty")
		}
		d, err := readDescription(args[0])
		if err != nil {
			return err
		}
		r, err := auth.Write(dir, d)
		for _, path := range r.Made {
			e.note("made %s", path)
		}
		for _, path := range r.Strange {
			e.note("not in the description, and not admitted: %s", path)
		}
		if err == nil {
			e.note("%d keys made, %d kept; %s is written", len(r.Made), len(r.Kept), auth.ConfigFile)
		}
		return err
	}
	return cmd
}

func authDurablesCommand(e env) *cobra.Command {
	var n natsFlags
	cmd := &cobra.Command{
		Use:   "durables DESCRIPTION",
		Short: "Make the readers' durables on the bus, as a materializer",
		Long: `Make the JetStream consumers that the description's readers pull from, as far as
they are missing, and check those that are there. It needs a materializer's key: a
reader that could make one could have it push to other tenants.`,
		Args: cobra.ExactArgs(1),
	}
	n.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := readDescription(args[0])
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("prefix") && n.prefix != d.Subjects().Prefix() {
			return usage("--prefix: the description says %s", d.Subjects().Prefix())
		}
		n.prefix = d.Subjects().Prefix()
		conn, err := n.open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		js, err := jetstream.New(conn.Conn())
		if err != nil {
			return fmt.Errorf("use JetStream: %w", err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), startTimeout)
		defer cancel()
		made, err := auth.Ensure(ctx, js, d)
		for _, name := range made {
			e.note("made %s", name)
		}
		if err == nil {
			e.note("%d durables made", len(made))
		}
		return err
	}
	return cmd
}

func readDescription(path string) (*auth.Description, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}
	d, err := auth.Parse(text)
	if errors.Is(err, auth.ErrDescription) {
		return nil, usage("%s: %w", path, err)
	}
	if err != nil || d.CA == "" {
		return d, err
	}
	// Contexts are used from anywhere.
	if !filepath.IsAbs(d.CA) {
		d.CA = filepath.Join(filepath.Dir(path), d.CA)
	}
	if d.CA, err = filepath.Abs(d.CA); err != nil {
		return nil, fmt.Errorf("resolve the authority's file: %w", err)
	}
	return d, nil
}
