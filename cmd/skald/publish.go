package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
)

const (
	// maxUnacknowledged is how many messages are sent ahead of their
	// acknowledgements, so that a pipe is not slowed to one round trip a line.
	maxUnacknowledged = 256
	// ackTimeout is how long an acknowledgement may take. The server may have
	// stored a message whose acknowledgement does not come.
	ackTimeout = 10 * time.Second
)

func publishCommand(e env) *cobra.Command {
	var at natsFlags
	var asJSON bool
	var body string
	m := message{class: bus.ClassActivity}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish messages of a session",
		Long: `Publish one message (--body), or one a line of standard input:
{"workspace_id","session_id","class","event_id"?,"body"}, where the flags stand in
for members that a line lacks. Prints one line for each acknowledgement. What is
wrong with a line is said with its number, and the rest goes on.

A message with an event id (--id) can be sent again after a failure without
being counted twice; one without can not.`,
		Example: `  skald publish --session s1 --class error --body '{"message":"disk full"}'
  skald publish --session s1 --id 0198-1 --body '{"activity":{"state":"running"}}'`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&m.key.Workspace, "workspace", "default", "the workspace's `id`")
	f.StringVar(&m.key.Session, "session", "", "the session's `id`")
	f.StringVar((*string)(&m.class), "class", string(m.class), "session, activity, error, projection or control")
	f.StringVar(&m.eventID, "id", "", "an `id` of the message, unique in its session, to drop duplicates by")
	f.StringVar(&body, "body", "", "the message's `JSON`; - reads it from standard input")
	f.BoolVar(&asJSON, "json", false, "print one JSON object an acknowledgement")
	at.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		single := f.Changed("body")
		switch {
		case single && !f.Changed("session"):
			return usage("--session: is missing")
		case !single && f.Changed("id"):
			return usage("--id: names one message, so it needs --body")
		case f.Changed("id") && m.eventID == "":
			return usage("--id: must not be empty")
		case !single && terminal(e.stdin):
			return usage("--body: is missing, and standard input is a terminal")
		}
		conn, err := at.open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		p, err := newPublisher(e, conn, asJSON)
		if err != nil {
			return err
		}
		if !single {
			return p.lines(cmd.Context(), m)
		}
		m.body = []byte(body)
		if body == "-" {
			if m.body, err = io.ReadAll(io.LimitReader(e.stdin, p.most+1)); err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			if int64(len(m.body)) > p.most { // the rest was not read, and what was is not the message
				return usage("body: is more than %d bytes long, this server takes at most %d", p.most, p.most-headerReserve)
			}
		}
		if err := m.check(p.most); err != nil {
			if errors.Is(err, errBody) && !f.Changed("class") {
				err = fmt.Errorf("%w; the class is activity unless --class says another", err)
			}
			return usage("%w", err)
		}
		return p.one(m)
	}
	return cmd
}
