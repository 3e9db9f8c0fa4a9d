package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

func repairCommand(e env) *cobra.Command {
	var o offline
	var yes, rebuild, newEpoch, asJSON bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Bring table and EVENTS together again",
		Long: `Compare the table of a data directory with EVENTS, and set right what keeps
serve from starting: EVENTS is gone, was made anew, has gone on from an older
state, or has lost its metadata. serve must be stopped.

Without --yes nothing is changed: it prints what it has found and would do, and
ends with status 4 if there is something to do. What can not be repaired without
guessing is refused with status 1, with the reason and what to do instead. A
repair that was cut short is ended by the same command.

Where a store was restored from a backup, and EVENTS does not hold what came after
it, the numbers get a new epoch, so that a reader that has seen more is refused. What
was set back by other means (a snapshot of the disk, another program's copy of the
store) looks as if nothing had happened: then say --new-epoch.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&yes, "yes", false, "carry it out")
	f.BoolVar(&rebuild, "rebuild", false, "make EVENTS again from the table under the same numbers, though it is there: brings back messages that somebody deleted, and loses the stream's consumers and the messages of pruned rows")
	f.BoolVar(&newEpoch, "new-epoch", false, "give the numbers a new epoch, whatever is found: table and streams were set back together, and readers have seen numbers that will be given again")
	f.BoolVar(&asJSON, "json", false, "print one JSON object, also on a terminal")
	o.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		return repair(ctx, e, &o, yes, rebuild, newEpoch, asJSON)
	}
	return cmd
}

func repair(ctx context.Context, e env, o *offline, yes, rebuild, newEpoch, asJSON bool) (err error) {
	lock, err := o.lock()
	if errors.Is(err, dirlock.ErrHeld) {
		return fmt.Errorf("%w: stop serve first", err)
	}
	if err != nil {
		return err
	}
	closing := func(close func() error) { err = errors.Join(err, close()) }
	defer closing(lock.Release)
	w, err := o.open(ctx, e, !yes)
	if err != nil {
		return err
	}
	defer closing(w.close)
	path := filepath.Join(o.data, target.StoreFile)
	ro := materializer.RepairOptions{
		Conn: w.conn, JS: w.js, Logger: newLogger(e, slog.LevelWarn), PlanFile: filepath.Join(o.data, materializer.PlanFile),
		Progress: progress(e), NewEpoch: newEpoch, Rebuild: rebuild, Subjects: w.subjects,
		Streams: bus.StreamOptions{MaxPayload: w.conn.MaxPayload()},
	}
	if !yes {
		reader, err := store.OpenReader(path)
		if err != nil {
			return err
		}
		defer closing(reader.Close)
		ro.Reader = reader
	} else {
		if ro.Store, err = store.Open(path, store.Options{Logger: ro.Logger}); err != nil {
			return err
		}
		defer closing(ro.Store.Close)
		ro.Reader = ro.Store.Reader()
	}
	r := materializer.NewRepairer(ro)
	d, err := r.Diagnose(ctx)
	if err != nil {
		return err
	}
	if yes {
		if err := r.Carry(ctx, d); err != nil {
			return fmt.Errorf("%w; run the same command again to go on", err)
		}
	}
	if err := printDiagnosis(e, d, yes, asJSON); err != nil {
		return err
	}
	if todo := d.Todo(); !yes && todo {
		e.note("nothing was changed; to carry it out: %s%s%s --yes", o.repair(), map[bool]string{true: " --rebuild"}[rebuild], map[bool]string{true: " --new-epoch"}[newEpoch])
		return errFindings
	}
	return nil
}

// repairLine is a diagnosis as JSON.
type repairLine struct {
	Action       materializer.RepairAction `json:"action"`
	Done         bool                      `json:"done"`
	Found        string                    `json:"found"`
	Would        string                    `json:"effect"`
	Epoch        string                    `json:"epoch"`
	NewEpoch     string                    `json:"new_epoch"`
	TableFirst   uint64                    `json:"table_first_seq"`
	TableLast    uint64                    `json:"table_latest_seq"`
	EventsFirst  uint64                    `json:"events_first_seq"`
	EventsLast   uint64                    `json:"events_last_seq"`
	Compared     uint64                    `json:"equal"`
	Differs      uint64                    `json:"differs_from,omitempty"`
	Lacks        uint64                    `json:"events_lacks"`
	FirstLacking uint64                    `json:"events_lacks_from,omitempty"`
	Append       uint64                    `json:"appended"`
}

func printDiagnosis(e env, d *materializer.Diagnosis, done, asJSON bool) error {
	if asJSON || !terminal(e.stdout) {
		text, err := json.Marshal(repairLine{
			Action: d.Action, Done: done && d.Todo(), Found: d.Found, Would: d.Effect(), Epoch: d.Epoch, NewEpoch: d.NewEpoch,
			TableFirst: d.TableFirst, TableLast: d.TableLast, EventsFirst: d.EventsFirst, EventsLast: d.EventsLast,
			Compared: d.Compared, Differs: d.Differs, Lacks: d.Lacks, FirstLacking: d.FirstLacking, Append: d.Append,
		})
		if err != nil {
			return fmt.Errorf("encode diagnosis: %w", err)
		}
		return printLines(e.stdout, [][]byte{text})
	}
	verb := "would do"
	if done {
		verb = "done"
	}
	return table(e.stdout, [][]string{{"found", d.Found}, {verb, string(d.Action) + ": " + d.Effect()}}, 0)
}
