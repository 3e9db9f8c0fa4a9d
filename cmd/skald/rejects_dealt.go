package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/store"
)

func discardCommand(e env, data *string) *cobra.Command {
	var o operator
	var workspace, session string
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "discard ID...",
		Short: "Discard entries that are dealt with",
		Long: `Discard entries that are dealt with: they leave the list and their payloads go.
That such a message was rejected stays known. Discarding the entry of an
irregularity of INGEST acknowledges it: the readiness check ingest_loss is well
again. Entries of the same message and reason go together.

The entries are read from the data directory's store. The discard itself is a
message in INGEST, so it reaches every store of the bus.`,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "all entries that there are now")
	f.StringVar(&workspace, "workspace", "", "all entries of the workspace with this `id`")
	f.StringVar(&session, "session", "", "all entries of the session with this `id`")
	f.BoolVar(&yes, "yes", false, "do it; needed for more than named entries where standard input is a terminal")
	o.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		several := all || f.Changed("session") || f.Changed("workspace")
		if err := checkFilters(f, workspace, session); err != nil {
			return err
		}
		switch {
		case several == (len(args) > 0):
			return usage("name entries by their ids, or all by --all, or those of --session or --workspace")
		case all && (session != "" || workspace != ""):
			return usage("--all takes no --session or --workspace")
		case several && !yes && terminal(e.stdin):
			return usage("this discards all entries, and their payloads, that the list shows: say so with --yes")
		}
		ids, err := entryIDs(args)
		if err != nil {
			return err
		}
		defer o.close()
		if err := o.open(e, cmd, *data); err != nil {
			return err
		}
		var entries []store.Reject
		if several {
			entries, err = o.all(cmd.Context(), store.RejectsQuery{Workspace: workspace, Session: session})
		} else {
			entries, err = o.named(cmd.Context(), ids)
		}
		if err != nil {
			return err
		}
		if err := o.discard(cmd.Context(), entries); err != nil {
			return err
		}
		return printLines(e.stdout, [][]byte{[]byte("discarded " + count(len(entries), "entry", "entries"))})
	}
	return cmd
}

func entryIDs(args []string) ([]int64, error) {
	var ids []int64
	for _, a := range args {
		id, err := strconv.ParseInt(a, 10, 64)
		if err != nil || id < 1 {
			return nil, usage("%q: the id must be a number from 1, as the list shows it", a)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// named returns the entries with these ids, all or none.
func (o *operator) named(ctx context.Context, ids []int64) (entries []store.Reject, err error) {
	for _, id := range ids {
		entry, err := o.r.Reject(ctx, id)
		if err != nil {
			return nil, err
		}
		entries = append(entries, *entry)
	}
	return entries, nil
}

// all returns the entries that match the query.
func (o *operator) all(ctx context.Context, q store.RejectsQuery) (entries []store.Reject, err error) {
	q.Limit = api.MaxLimit
	for {
		list, err := o.r.Rejects(ctx, q)
		if err != nil {
			return nil, err
		}
		entries = append(entries, list...)
		if len(list) < q.Limit {
			return entries, nil
		}
		q.After = list[len(list)-1].ID
	}
}

// discard sends the messages that discard the entries, and sees that they are gone.
func (o *operator) discard(ctx context.Context, entries []store.Reject) error {
	for rest := entries; len(rest) > 0; {
		n := min(len(rest), bus.MaxDiscard)
		refs := make([]bus.EntryRef, n)
		for i := range refs {
			refs[i] = bus.EntryRef{Seq: rest[i].Seq, Time: rest[i].Time, Reason: rest[i].Reason}
		}
		if _, err := o.send(ctx, message{class: bus.ClassControl, body: bus.AppendDiscard(nil, refs)}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	for i := range entries {
		if _, err := o.r.Reject(ctx, entries[i].ID); !errors.Is(err, bus.ErrNotFound) {
			return errors.Join(fmt.Errorf("entry %d is still there", entries[i].ID), err)
		}
	}
	return nil
}

func retryCommand(e env, data *string, asJSON *bool) *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Send a rejected message again",
		Long: `Send a rejected message again: its payload, as a new message of the same session
and class at INGEST's end. Instead of the count or the event id that it carried
it has an id made of its place in INGEST, so that a retry given twice is applied
once; what is deduplicated by its chain stays so. The entry stays until it is
discarded.

What is wrong with the message itself is wrong again. A retry is for what was
rejected for another reason: a conflict whose second body counts too, a session
whose chain was set by a resync since, a message that this version understands.`,
		Args: cobra.ExactArgs(1),
	}
	o.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := entryIDs(args)
		if err != nil {
			return err
		}
		defer o.close()
		if err := o.open(e, cmd, *data); err != nil {
			return err
		}
		entry, err := o.r.Reject(cmd.Context(), ids[0])
		if err != nil {
			return err
		}
		m, err := retryOf(entry)
		if err != nil {
			return err
		}
		seq, err := o.send(cmd.Context(), m)
		if err != nil {
			return err
		}
		outcome, err := o.outcome(cmd.Context(), entry.ID, m, seq)
		if err != nil {
			return err
		}
		return printRetry(e, entry.ID, seq, m.eventID, outcome, *asJSON)
	}
	return cmd
}

// retryOf returns the message that sends the entry's payload again.
func retryOf(r *store.Reject) (message, error) {
	switch {
	case r.Key == nil:
		return message{}, fmt.Errorf("entry %d is of %q, which names no session: there is nothing to send again; what came on a wrong subject has to be published to the session that was meant", r.ID, r.Subject)
	case !r.Kept && r.Reason == bus.ReasonNotInEvents:
		return message{}, fmt.Errorf("entry %d: its facts may have stood under numbers that are gone from EVENTS, and sent again they would get others; discard it when it is known what became of them", r.ID)
	case !r.Kept:
		return message{}, fmt.Errorf("entry %d: its payload is not kept; whoever published it has to send it again", r.ID)
	}
	return message{
		key: *r.Key, class: r.Class, body: r.Payload,
		eventID: fmt.Sprintf("retry-%d-%d", r.Seq, r.Time),
	}, nil
}

// taken is the outcome of a message that was not rejected and has no event id that would
// tell more: a page, or one whose session was forgotten.
const taken = "taken"

// outcome tells what became of the message, which the store has read.
func (o *operator) outcome(ctx context.Context, after int64, m message, seq uint64) (string, error) {
	list, err := o.all(ctx, store.RejectsQuery{Workspace: m.key.Workspace, Session: m.key.Session})
	if err != nil {
		return "", err
	}
	for i := len(list) - 1; i >= 0 && list[i].ID > after; i-- {
		if list[i].Seq == seq && list[i].Reason != bus.ReasonResync {
			return "", fmt.Errorf("retry of entry %d: message %d of INGEST was rejected too, entry %d: %s: %s", after, seq, list[i].ID, list[i].Reason, list[i].Detail)
		}
	}
	_, known, err := o.r.KnownID(ctx, m.key, m.eventID, 0)
	if err != nil || !known {
		return taken, err
	}
	return api.OutcomeApplied, nil
}

func printRetry(e env, id int64, seq uint64, eventID, outcome string, asJSON bool) error {
	text := fmt.Sprintf("retried %d as message %d of INGEST: %s", id, seq, outcome)
	if asJSON || !terminal(e.stdout) {
		b, err := json.Marshal(struct {
			ID        int64  `json:"id"`
			IngestSeq uint64 `json:"ingest_seq"`
			EventID   string `json:"event_id"`
			Outcome   string `json:"outcome"`
		}{id, seq, eventID, outcome})
		if err != nil {
			return fmt.Errorf("encode retry: %w", err)
		}
		text = string(b)
	}
	return printLines(e.stdout, [][]byte{[]byte(text)})
}
