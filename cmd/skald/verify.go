package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

func verifyCommand(e env) *cobra.Command {
	var o offline
	var full, asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the table with EVENTS and INGEST",
		Long: `Compare the table of a data directory with itself, with EVENTS and with INGEST:
numbers, bytes, origins, the order of each session, counts, chains, positions.
Where INGEST still begins with its first message, it is projected again from
there. Nothing is changed.

It works beside a running serve, whose NATS server --server names (unless it is
at ` + target.DefaultServer + `), and on a stopped one, whose embedded server it
starts for itself. It reads everything: progress goes to standard error.

Each finding is one line. The status is 0 if nothing is off, 4 if something is,
1 if it could not be found out. Notes tell what was passed or could not be
checked, and change no status.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "also compare each index of the file with its table")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	o.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		return verify(ctx, e, &o, full, asJSON || !terminal(e.stdout))
	}
	return cmd
}

func verify(ctx context.Context, e env, o *offline, full, asJSON bool) (err error) {
	closing := func(close func() error) { err = errors.Join(err, close()) }
	reader, err := store.OpenReader(filepath.Join(o.data, target.StoreFile))
	if err != nil {
		return err
	}
	defer closing(reader.Close)
	if o.nats.server == "" {
		release, err := o.ownOrAsk(e)
		if err != nil {
			return err
		}
		defer closing(release)
	}
	w, err := o.open(ctx, e, true)
	if err != nil {
		return err
	}
	defer closing(w.close)
	sum, err := materializer.Audit(ctx, materializer.AuditOptions{
		Conn: w.conn, JS: w.js, Full: full, Progress: progress(e), Reader: reader, Subjects: w.subjects,
		Report: func(f materializer.Finding) error { return printFinding(e, f, asJSON) },
	})
	if err != nil {
		return err
	}
	e.note("compared numbers up to %d: %d equal in table and EVENTS, %s, %s of INGEST projected again; %s, %s",
		sum.LatestAt, sum.Compared, count(int(sum.Sessions), "session", "sessions"), count(int(sum.Messages), "message", "messages"),
		count(sum.Findings, "finding", "findings"), count(sum.Notes, "note", "notes"))
	if sum.Findings > 0 {
		return errFindings
	}
	return nil
}

// ownOrAsk locks the data directory, so that its embedded server can be started; or,
// where serve has it, names that one's server.
func (o *offline) ownOrAsk(e env) (release func() error, err error) {
	lock, err := o.lock()
	var held *dirlock.HeldError
	switch {
	case errors.As(err, &held):
		o.nats.server, o.patience = target.DefaultServer, connectTimeout
		e.note("skald: process %d has the directory: asking its NATS server at %s; --server names another one", held.PID, natsconn.Redact(o.nats.server))
		return func() error { return nil }, nil
	case err != nil:
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.data, "jetstream")); errors.Is(err, fs.ErrNotExist) {
		err := fmt.Errorf("there is no %s: name the NATS server with --server; if the directory was lost, run: %s", filepath.Join(o.data, "jetstream"), o.repair())
		return nil, errors.Join(err, lock.Release())
	}
	return lock.Release, nil
}

// findingLine is a finding as JSON.
type findingLine struct {
	Kind      string `json:"kind"`
	Severity  string `json:"severity"` // "error" or "note"
	Seq       uint64 `json:"seq,omitempty"`
	IngestSeq uint64 `json:"ingest_seq,omitempty"`
	Workspace string `json:"workspace_id,omitempty"`
	Session   string `json:"session_id,omitempty"`
	Detail    string `json:"detail"`
}

func printFinding(e env, f materializer.Finding, asJSON bool) error {
	l := findingLine{Kind: f.Kind, Severity: "error", Seq: f.Seq, IngestSeq: f.IngestSeq, Workspace: f.Key.Workspace, Session: f.Key.Session, Detail: f.Detail}
	if f.Note {
		l.Severity = "note"
	}
	if asJSON {
		text, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encode finding: %w", err)
		}
		return printLines(e.stdout, [][]byte{text})
	}
	where := ""
	if l.Seq > 0 {
		where += " seq " + strconv.FormatUint(l.Seq, 10)
	}
	if l.IngestSeq > 0 {
		where += " ingest " + strconv.FormatUint(l.IngestSeq, 10)
	}
	if l.Session != "" {
		where += " " + visible(l.Workspace) + "/" + visible(l.Session)
	}
	_, err := fmt.Fprintf(e.stdout, "%s %s%s: %s\n", l.Severity, l.Kind, where, visible(l.Detail))
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}
