package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
)

const (
	// maxUnacknowledged is how many messages are sent ahead of their
	// acknowledgements, so that a pipe is not slowed to one round trip a line.
	maxUnacknowledged = 256
	// ackTimeout is how long an acknowledgement may take without an outbox. The
	// server may have stored a message whose acknowledgement does not come.
	ackTimeout = 10 * time.Second
	// stopTimeout is how long an interrupted command waits for what is on its way.
	stopTimeout = 8 * time.Second
	// outboxStopTimeout is that with an outbox, which loses nothing.
	outboxStopTimeout = 3 * time.Second
)

// What a line is acknowledged for.
const (
	waitKept         = "kept"
	waitStored       = "stored"
	waitMaterialized = "materialized"
)

func publishCommand(e env) *cobra.Command {
	var at natsFlags
	o := publishOptions{}
	var body string
	m := message{class: bus.ClassActivity}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish messages of a session",
		Long: `Publish one message (--body), or one a line of standard input:
{"workspace_id","session_id","class","event_id"?,"body"}, where the flags stand in
for members that a line lacks. Prints one line for each acknowledgement, in the
order of the lines. What is wrong with a line is said with its number, and the rest
goes on. Sessions are published side by side, each in its order.

A message with an event id (--id) can be sent again after a failure without
being counted twice; one without can not. So can a page of class projection.

With --outbox everything read is first kept in a directory, also while there is no
server, and sent until the bus has materialized it: by this run, or by the next one
with the same directory. At the end of the input the command waits for that; with
--wait kept it does not.`,
		Example: `  skald publish --session s1 --class error --body '{"message":"disk full"}'
  skald publish --session s1 --id 0198-1 --body '{"activity":{"state":"running"}}'
  my-worker | skald publish --outbox ./outbox --wait kept --json`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&m.key.Workspace, "workspace", "default", "the workspace's `id`")
	f.StringVar(&m.key.Session, "session", "", "the session's `id`")
	f.StringVar((*string)(&m.class), "class", string(m.class), "session, activity, error, projection or control")
	f.StringVar(&m.eventID, "id", "", "an `id` of the message, unique in its session, to drop duplicates by")
	f.StringVar(&body, "body", "", "the message's `JSON`; - reads it from standard input")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object an acknowledgement")
	f.StringVar(&o.outbox, "outbox", "", "keep messages in this `directory` until they are materialized")
	f.StringVar(&o.wait, "wait", waitStored, "`what` a line is acknowledged for: stored, materialized, or with --outbox kept")
	at.add(f)
	completeIDs(cmd, natsOpener(&at))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		single := f.Changed("body")
		switch {
		case single && !f.Changed("session"):
			return usage("--session: is missing")
		case !single && f.Changed("id"):
			return usage("--id: names one message, so it needs --body")
		case f.Changed("id") && m.eventID == "":
			return usage("--id: must not be empty")
		case f.Changed("outbox") && o.outbox == "":
			return usage("--outbox: must not be empty")
		case o.wait != waitStored && o.wait != waitMaterialized && o.wait != waitKept:
			return usage("--wait: must be stored, materialized or kept, not %q", o.wait)
		case o.wait == waitKept && o.outbox == "":
			return usage("--wait: kept needs --outbox")
		case !single && terminal(e.stdin):
			return usage("--body: is missing, and standard input is a terminal")
		}
		// A second signal ends the process at once.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		conn, err := at.reach(ctx, o.outbox != "")
		if err != nil && !single && ctx.Err() != nil {
			// What became of the lines is said however early the signal comes.
			none := sender{publishOptions: o, env: e}
			return none.sum(counts{}, err, true)
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		p, err := newSender(e, conn, o)
		if err != nil {
			return err
		}
		if !single {
			return p.run(ctx, newLines(e.stdin, p.pub.MaxBody()+maxLineOverhead), m)
		}
		most := p.pub.MaxBody()
		m.body = []byte(body)
		if body == "-" {
			read := most + maxLineOverhead // white space does not count
			if m.body, err = io.ReadAll(io.LimitReader(e.stdin, int64(read)+1)); err != nil {
				return p.give(fmt.Errorf("read standard input: %w", err))
			}
			if len(m.body) > read { // the rest was not read, and what was is not the message
				return p.give(usage("body: is more than %d bytes long, this server takes at most %d", read, most))
			}
		}
		if err := m.check(most); err != nil {
			if errors.Is(err, errBody) && !f.Changed("class") {
				err = fmt.Errorf("%w; the class is activity unless --class says another", err)
			}
			return p.give(usage("%w", err))
		}
		return p.one(ctx, m)
	}
	return cmd
}
