package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/registry"
)

// aliveFor is for how long a store that was heard of counts as running: it writes its
// entry every five seconds.
const aliveFor = 15 * time.Second

// replicasTimeout bounds the questions of one command.
const replicasTimeout = 10 * time.Second

func replicasCommand(e env) *cobra.Command {
	var at natsFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replicas",
		Short: "List the stores of the bus",
		Long: `List the stores of the bus: how far each has read INGEST (POSITION) and come in
EVENTS (NUMBER), how many messages of INGEST it has not read (LAG), and when it was
heard of last. INGEST is not trimmed beyond the position of a store that is listed,
and nobody appends while EVENTS ends below the number of one. A store that will
never come back has to be removed: "skald replicas rm ID".`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	at.add(cmd.PersistentFlags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		conn, r, err := openRegistry(cmd.Context(), &at)
		if err != nil {
			return err
		}
		defer conn.Close()
		list, err := listReplicas(cmd.Context(), conn, r)
		if err != nil {
			return err
		}
		return printReplicas(e, list, asJSON)
	}
	cmd.AddCommand(replicasRemoveCommand(e, &at))
	return cmd
}

func replicasRemoveCommand(e env, at *natsFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Take a store off the list that will not come back",
		Long: `Take a store off the list that will not come back. INGEST is trimmed without it
then, and others append without waiting for rows that only it has. If it comes back
all the same it is listed again, and takes a checkpoint where it can not read on.

One that was heard of a moment ago is refused: it runs, and would be listed again at
once. --force removes it nevertheless. The exit status is 3 if there is no such store.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also one that runs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		conn, r, err := openRegistry(cmd.Context(), at)
		if err != nil {
			return err
		}
		defer conn.Close()
		list, err := listReplicas(cmd.Context(), conn, r)
		if err != nil {
			return err
		}
		for _, one := range list {
			if one.ID != args[0] {
				continue
			}
			if one.age < aliveFor && !force {
				return fmt.Errorf("store %s (%s) was heard of %s ago: stop it first, or say --force", one.ID, one.Label, one.age.Round(time.Second))
			}
			err := r.Remove(cmd.Context(), one.entry)
			if errors.Is(err, registry.ErrChanged) {
				return fmt.Errorf("store %s runs and has just written its entry: %w", one.ID, err)
			}
			if err != nil {
				return err
			}
			return printLines(e.stdout, [][]byte{[]byte(visible("removed " + one.ID + " " + one.Label))})
		}
		return fmt.Errorf("store %q is not registered: %w", args[0], bus.ErrNotFound)
	}
	return cmd
}

// openRegistry connects, and opens the list of stores. The caller closes the connection.
func openRegistry(ctx context.Context, at *natsFlags) (*target.NATS, *registry.Registry, error) {
	conn, err := at.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn.Conn())
	if err == nil {
		var r *registry.Registry
		ctx, cancel := context.WithTimeout(ctx, replicasTimeout)
		defer cancel()
		if r, err = registry.Find(ctx, js, conn.Subjects()); err == nil {
			return conn, r, nil
		}
		if errors.Is(err, bus.ErrNotFound) {
			err = fmt.Errorf("%w: no store has registered on %s with this prefix", err, conn)
		}
	}
	return nil, nil, errors.Join(err, conn.Close())
}

// replica is a store as it is shown.
type replica struct {
	ID       string `json:"id"`
	Label    string `json:"label"`
	Position uint64 `json:"position"`
	Number   uint64 `json:"number"`
	Lag      uint64 `json:"lag"`
	SeenAt   int64  `json:"seen_at_ms"`
	Epoch    string `json:"epoch"`
	IngestID string `json:"ingest_id"`
	Contract int    `json:"contract"`

	age   time.Duration
	entry registry.Entry
}

func listReplicas(ctx context.Context, conn *target.NATS, r *registry.Registry) ([]replica, error) {
	ctx, cancel := context.WithTimeout(ctx, replicasTimeout)
	defer cancel()
	entries, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn.Conn())
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	in, err := js.Stream(ctx, conn.Subjects().IngestStream())
	if err != nil {
		return nil, fmt.Errorf("ask for INGEST: %w", err)
	}
	info := in.CachedInfo()
	var list []replica
	for _, e := range entries {
		one := replica{
			ID: e.ID, Label: e.Label, Position: e.Position, Number: e.Number, SeenAt: e.Seen.UnixMilli(), Epoch: e.Epoch, IngestID: e.IngestID,
			Contract: e.Contract, age: max(0, info.TimeStamp.Sub(e.Seen)), entry: e,
		}
		if info.State.LastSeq > e.Position {
			one.Lag = info.State.LastSeq - e.Position
		}
		list = append(list, one)
	}
	return list, nil
}

func printReplicas(e env, list []replica, asJSON bool) error {
	if asJSON || !terminal(e.stdout) {
		lines := make([][]byte, len(list))
		for i := range list {
			var err error
			if lines[i], err = json.Marshal(&list[i]); err != nil {
				return fmt.Errorf("encode store: %w", err)
			}
		}
		return printLines(e.stdout, lines)
	}
	rows := [][]string{{"ID", "POSITION", "NUMBER", "LAG", "HEARD OF", "WHERE"}}
	for i := range list {
		r := &list[i]
		rows = append(rows, []string{
			r.ID, strconv.FormatUint(r.Position, 10), strconv.FormatUint(r.Number, 10), strconv.FormatUint(r.Lag, 10),
			r.age.Round(time.Second).String() + " ago", r.Label,
		})
	}
	return table(e.stdout, rows, width(e.stdout))
}
