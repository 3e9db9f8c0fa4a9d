package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

func forgetCommand(e env) *cobra.Command {
	var c control
	var yes, unseen, secure bool
	cmd := &cobra.Command{
		Use:   "forget SESSION",
		Short: "Forget a session for good",
		Long: `Forget a session for good: its rows, rejects and messages in EVENTS go, its
numbers are never used again, and late messages for it are dropped. There is no
way back, and the id can not be used again in its workspace. Copies in INGEST
leave when INGEST is trimmed (serve --ingest-keep).

The session must be in the table; the exit status is 3 if it is not, or was
forgotten before. --unseen forgets one that is not there yet, or never comes.

--secure also has its bytes overwritten, in the files of the store and of the streams,
and has the checkpoints written anew; in INGEST as soon as it is trimmed. It has
to be said with the first forget. The work goes on after this command: status shows
the sessions that are not done as "erasures". Copies elsewhere stay: backups, and
what the file system keeps of files that were replaced.`,
		Args: cobra.ExactArgs(1),
	}
	c.add(cmd.Flags())
	completeIDs(cmd, natsOpener(&c.at))
	cmd.Flags().BoolVar(&yes, "yes", false, "do it; needed where standard input is a terminal")
	cmd.Flags().BoolVar(&unseen, "unseen", false, "forget it also if there is no such session, so that none can come")
	cmd.Flags().BoolVar(&secure, "secure", false, "have its bytes overwritten")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := `{"op":"` + string(bus.OpForget) + `"`
		if secure {
			body += `,"secure":true`
		}
		m, err := c.message(args[0], []byte(body+"}"))
		if err != nil {
			return err
		}
		if !yes && terminal(e.stdin) {
			return usage("this forgets session %q of workspace %q for good: say so with --yes", m.key.Session, m.key.Workspace)
		}
		conn, err := c.at.open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		if !unseen {
			// A mistyped id would be lost for whoever wants to use it later.
			_, err := conn.Session(cmd.Context(), m.key.Session, api.Params{api.ParamWorkspace: {m.key.Workspace}})
			if errors.Is(err, bus.ErrNotFound) {
				return noSessionError{}
			}
			if err != nil {
				return fmt.Errorf("look for the session: %w", err)
			}
		}
		o, err := c.send(cmd.Context(), conn, m)
		if err != nil {
			return err
		}
		// What a forgotten session is told is dropped, the forget itself too.
		if o.Outcome != api.OutcomeDropped {
			return refused("forget", o)
		}
		if err := printLines(e.stdout, [][]byte{[]byte(visible("forgotten " + m.key.Workspace + "/" + m.key.Session))}); err != nil {
			return err
		}
		if secure {
			e.note("skald: its bytes are being overwritten; it is done when `skald status` counts no erasures, which needs INGEST to be trimmed (serve --ingest-keep)")
		}
		e.note("skald: the id can not be used again in this workspace; copies in INGEST leave when it is trimmed (serve --ingest-keep)")
		return nil
	}
	return cmd
}

// noSessionError is a bus.ErrNotFound that says what may be done about it.
type noSessionError struct{}

func (noSessionError) Error() string {
	return "no such session; nothing was forgotten (--unseen leaves a tombstone all the same)"
}

func (noSessionError) Is(target error) bool { return target == bus.ErrNotFound }
