package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/backup"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/target"
)

func backupCommand(e env) *cobra.Command {
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backup TO",
		Short: "Copy the store of a data directory while it is written",
		Long: `Copy the store of a data directory into the new directory TO, as of one moment,
beside a running serve or without one. TO gets its name when it is whole and
durable: skald.db, and manifest.json with positions and checksum.

The streams are not in it. A restored store reads on from its position in INGEST
and follows EVENTS; where the streams are lost as well, "skald repair" makes
EVENTS again from the table.`,
		Example: "  skald backup --data /var/lib/skald /backup/skald-$(date +%F)",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", target.DefaultData, "data `directory`")
	f.BoolVar(&asJSON, "json", false, "print the manifest as one JSON object, also on a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if data == "" || args[0] == "" {
			return usage("--data and TO must not be empty")
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		o := backup.TakeOptions{Contract: bus.Contract, Version: buildVersion().Version, Progress: progress(e)}
		m, err := backup.Take(ctx, filepath.Join(data, target.StoreFile), filepath.Clean(args[0]), o)
		if err != nil {
			return err
		}
		return printManifest(e, m, asJSON, "backed up to "+args[0])
	}
	return cmd
}

func restoreCommand(e env) *cobra.Command {
	var data string
	var asJSON, replica bool
	cmd := &cobra.Command{
		Use:   "restore FROM",
		Short: "Put the store of a backup into a data directory",
		Long: `Put the store of the backup FROM into a data directory that has none. It compares
the checksum and overwrites nothing. Then start serve as usual: it catches up
with INGEST and EVENTS, and what was forgotten since the backup is forgotten
again. If the streams were lost too, run "skald repair" before: the numbers then get
a new epoch, since readers may have seen what came after the backup.

A backup restored beside the store that it was taken of is another store of the
same bus: say so with --replica. To replace a store, move its skald.db and the
files beside it that begin with this name out of the way first.`,
		Example: "  skald restore --data /var/lib/skald /backup/skald-2026-05-01",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", target.DefaultData, "data `directory`")
	f.BoolVar(&replica, "replica", false, "the store that was backed up goes on elsewhere; this is another one")
	f.BoolVar(&asJSON, "json", false, "print the manifest as one JSON object, also on a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if data == "" || args[0] == "" {
			return usage("--data and FROM must not be empty")
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		m, err := backup.Restore(ctx, args[0], data, backup.RestoreOptions{Replica: replica, Progress: progress(e)})
		switch {
		case errors.Is(err, dirlock.ErrHeld):
			return fmt.Errorf("%w: stop serve first", err)
		case errors.Is(err, backup.ErrExists):
			return fmt.Errorf("%w, and nothing is overwritten: move it out of the way, or name another --data", err)
		case err != nil:
			return err
		}
		return printManifest(e, m, asJSON, "restored to "+data)
	}
	return cmd
}

func printManifest(e env, m backup.Manifest, asJSON bool, done string) error {
	if !asJSON && terminal(e.stdout) {
		line := fmt.Sprintf("%s: %d bytes, numbers %d to %d, INGEST up to %d, %s", done, m.Size, m.OldestSeq, m.LatestSeq, m.IngestSeq,
			count(int(m.Sessions), "session", "sessions"))
		return printLines(e.stdout, [][]byte{[]byte(visible(line))})
	}
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return printLines(e.stdout, [][]byte{b})
}
