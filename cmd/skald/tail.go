package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

// tailFlags are those of tail.
type tailFlags struct {
	at                          natsFlags
	after                       *once
	durable, workspace, session *once
	types                       []string
	count                       uint64
	json                        bool
}

func tailCommand(e env) *cobra.Command {
	var o tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the stream of events over NATS",
		Long: `Follow EVENTS over NATS, beginning with what comes next. Each reader gets all
events of its filter: several never share them.

With --durable the server remembers how far this reader came, under that name:
what came while it was away is printed when it is called again. One process at a
time reads a name; another one is refused. After a kill the last events may come
again. --after-seq begins at a cursor instead, with a durable too; what EVENTS no
longer holds is an error here, and read from the table by skald events --follow.`,
		Example: `  skald tail
  skald tail --durable pager --workspace acme --type input_required --type error`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	o.after = onceFlag(f, "after-seq", "`cursor` to go on from: a number, or epoch:number; 0 is all that EVENTS holds")
	o.durable = onceFlag(f, "durable", "`name` under which the server remembers the place")
	o.workspace = onceFlag(f, "workspace", "only of the workspace with this `id`")
	o.session = onceFlag(f, "session", "only of the session with this `id`, of --workspace")
	f.StringArrayVar(&o.types, "type", nil, "only of this `type`; may be given several times")
	f.Uint64Var(&o.count, "count", 0, "end after this many `events`")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line, also on a terminal")
	o.at.add(f)
	completeIDs(cmd, natsOpener(&o.at))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd, e) }
	return cmd
}

func (o *tailFlags) run(cmd *cobra.Command, e env) error {
	if cmd.Flags().Changed("count") && o.count == 0 {
		return usage("--count: must be at least 1")
	}
	for name, f := range map[string]*once{"durable": o.durable, "workspace": o.workspace, "session": o.session} {
		if f.given && f.value == "" {
			return usage("--%s: must not be empty", name)
		}
	}
	subjects, err := bus.NewSubjects(o.at.prefix)
	if err != nil {
		return usage("--%w", err)
	}
	co := consumer.Options{
		Subjects: subjects, Durable: o.durable.value, Logger: newLogger(e, slog.LevelWarn),
		Session: o.session.value, Types: o.types, Workspace: o.workspace.value,
	}
	if co.Newest = o.after.value == ""; !co.Newest {
		from, err := bus.ParseCursor("after-seq", o.after.value)
		if err != nil {
			return usage("--%w", err)
		}
		co.From = &from
	}
	if _, err := consumer.New(nil, co); err != nil {
		return usage("%w", err)
	}
	conn, err := o.at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn.Conn())
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	c, err := consumer.New(js, co)
	if err != nil {
		return usage("%w", err)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	out := newSink(e, o.json, o.count)
	err = c.Run(ctx, func(_ context.Context, ev bus.Event) error {
		err := out.write(ev.AppendJSON(nil), bus.Cursor{Epoch: c.Cursor().Epoch, Seq: ev.Seq})
		if errors.Is(err, errEnough) {
			enough()
			return nil // so that the event counts as handled
		}
		return err
	})
	if errors.Is(err, consumer.ErrInUse) {
		return fmt.Errorf("%w; choose another --durable name, or leave it out", err)
	}
	return out.end(err, c.Cursor())
}
