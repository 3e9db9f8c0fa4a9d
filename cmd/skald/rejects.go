package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/store"
)

func rejectsCommand(e env) *cobra.Command {
	var asJSON bool
	var data, workspace, session string
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use:   "rejects",
		Short: "List the messages that were rejected",
		Long: `List the messages that were rejected, and the notes that resyncs left, oldest
first, from the store of a data directory. "skald rejects show ID" prints one
with its payload.`,
		Args: cobra.NoArgs,
	}
	p := cmd.PersistentFlags()
	p.StringVar(&data, "data", target.DefaultData, "data `directory`")
	p.BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", "", "only of the workspace with this `id`")
	f.StringVar(&session, "session", "", "only of the session with this `id`")
	f.Int64Var(&after, "after", 0, "only with a higher `id`")
	f.IntVar(&limit, "limit", api.DefaultLimit, "most `entries` to print, from 1; more than 1000 counts as 1000")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFilters(f, workspace, session); err != nil {
			return err
		}
		if limit < 1 || after < 0 {
			return usage("--limit must be at least 1, --after at least 0")
		}
		r, err := openReader(e, cmd, data)
		if err != nil {
			return err
		}
		defer r.Close()
		q := store.RejectsQuery{Workspace: workspace, Session: session, After: after, Limit: min(limit, api.MaxLimit)}
		list, err := r.Rejects(cmd.Context(), q)
		if err != nil {
			return err
		}
		if err := printRejects(e, list, asJSON); err != nil {
			return err
		}
		listed := count(len(list), "entry", "entries")
		if len(list) == q.Limit {
			e.note("%s, there may be more: --after %d goes on from here", listed, list[len(list)-1].ID)
		} else {
			e.note("%s, no more", listed)
		}
		return nil
	}
	cmd.AddCommand(discardCommand(e, &data), retryCommand(e, &data, &asJSON), &cobra.Command{
		Use:   "show ID",
		Short: "Print one entry with its payload",
		Long: `Print one entry with its payload. Of a conflict, which is another message under a
known count or event id, the facts of the first one are printed too: they stand.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := entryIDs(args)
			if err != nil {
				return err
			}
			r, err := openReader(e, cmd, data)
			if err != nil {
				return err
			}
			defer r.Close()
			entry, err := r.Reject(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			line := newRejectLine(entry, true)
			if line.First, err = firstFacts(cmd.Context(), r, entry); err != nil {
				return err
			}
			text, err := json.Marshal(line)
			if err != nil {
				return fmt.Errorf("encode reject: %w", err)
			}
			if asJSON || !terminal(e.stdout) {
				return printLines(e.stdout, [][]byte{text})
			}
			return indented(e.stdout, text)
		},
	})
	return cmd
}

// checkFilters checks the ids that an entry's session is found by.
func checkFilters(f *pflag.FlagSet, workspace, session string) error {
	for name, v := range map[string]string{"workspace": workspace, "session": session} {
		if !f.Changed(name) {
			continue
		}
		if err := api.CheckID(name, v); err != nil {
			return usage("--%w", err)
		}
	}
	return nil
}

// maxFirstFacts is how many facts of a conflict's first message are shown; only a page
// gives more than one, and pages have no conflicts.
const maxFirstFacts = 10

// firstFacts returns what the table holds of the message that stands where another came
// under its count or event id: its facts, which may be none. Nil if r is no conflict.
func firstFacts(ctx context.Context, r *store.Reader, e *store.Reject) ([]json.RawMessage, error) {
	if e.Reason != bus.ReasonConflict || e.Key == nil {
		return nil, nil
	}
	source := bus.Source{Publisher: e.Identity.Publisher, Count: e.Identity.Count}
	if source.Publisher == "" {
		source = bus.Source{EventID: e.Identity.EventID}
	}
	rows, err := r.RowsOf(ctx, *e.Key, source, maxFirstFacts)
	if err != nil {
		return nil, err
	}
	facts := []json.RawMessage{}
	for i := range rows {
		row := &rows[i]
		ev := bus.Event{
			Seq: row.Seq, Workspace: row.Key.Workspace, Session: row.Key.Session, Type: row.Type,
			RecordedAt: row.RecordedAt, StoredAt: row.Origin.Time / 1e6, Data: row.Data,
		}
		facts = append(facts, ev.AppendJSON(nil))
	}
	return facts, nil
}

// openReader opens the store, and says where it is if --data does not.
func openReader(e env, cmd *cobra.Command, data string) (*store.Reader, error) {
	if !cmd.Flags().Changed("data") {
		e.note("skald: reading %s (file); --data names another directory", fileName(data))
	}
	return store.OpenReader(filepath.Join(data, target.StoreFile))
}

// rejectLine is an entry as JSON.
type rejectLine struct {
	ID            int64      `json:"id"`
	IngestSeq     uint64     `json:"ingest_seq"`
	StoredAt      int64      `json:"stored_at_ms"`
	Workspace     *string    `json:"workspace_id"` // null if the subject names no session
	Session       *string    `json:"session_id"`
	Subject       string     `json:"subject"`
	Class         bus.Class  `json:"class"`
	Reason        bus.Reason `json:"reason"`
	Detail        string     `json:"detail"`
	Publisher     string     `json:"publisher,omitempty"`
	PublisherSeq  uint64     `json:"publisher_seq,omitempty"`
	EventID       string     `json:"event_id,omitempty"`
	PayloadSize   int        `json:"payload_size"`
	PayloadHash   string     `json:"payload_sha256,omitempty"`
	PayloadKept   bool       `json:"payload_kept"`
	Payload       *string    `json:"payload,omitempty"`        // if it is UTF-8
	PayloadBase64 *string    `json:"payload_base64,omitempty"` // if it is not
	// First are the facts of the message that stands, of a conflict.
	First []json.RawMessage `json:"first_facts,omitzero"`
}

func newRejectLine(r *store.Reject, payload bool) rejectLine {
	l := rejectLine{
		ID: r.ID, IngestSeq: r.Seq, StoredAt: r.Time / 1e6, Subject: r.Subject, Class: r.Class, Reason: r.Reason, Detail: r.Detail,
		Publisher: r.Identity.Publisher, PublisherSeq: r.Identity.Count, EventID: r.Identity.EventID,
		PayloadSize: r.Size, PayloadKept: r.Kept,
	}
	if r.Key != nil {
		l.Workspace, l.Session = &r.Key.Workspace, &r.Key.Session
	}
	if r.Hash != [32]byte{} {
		l.PayloadHash = hex.EncodeToString(r.Hash[:])
	}
	switch {
	case !payload || !r.Kept:
	case utf8.Valid(r.Payload):
		s := string(r.Payload)
		l.Payload = &s
	default:
		s := base64.StdEncoding.EncodeToString(r.Payload)
		l.PayloadBase64 = &s
	}
	return l
}

func printRejects(e env, list []store.Reject, asJSON bool) error {
	if asJSON || !terminal(e.stdout) {
		lines := make([][]byte, len(list))
		for i := range list {
			var err error
			if lines[i], err = json.Marshal(newRejectLine(&list[i], false)); err != nil {
				return fmt.Errorf("encode reject: %w", err)
			}
		}
		return printLines(e.stdout, lines)
	}
	rows := [][]string{{"ID", "INGEST", "SESSION", "CLASS", "REASON", "BYTES", "DETAIL"}}
	for i := range list {
		r := &list[i]
		session := r.Subject
		if r.Key != nil {
			session = r.Key.Workspace + "/" + r.Key.Session
		}
		rows = append(rows, []string{
			strconv.FormatInt(r.ID, 10), strconv.FormatUint(r.Seq, 10), session, string(r.Class), string(r.Reason),
			strconv.Itoa(r.Size), r.Detail,
		})
	}
	return table(e.stdout, rows, 0) // the detail comes last, and is what people look for
}
