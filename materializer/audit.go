package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// AuditOptions are what an audit works with. Reader, Report and Subjects are required.
type AuditOptions struct {
	Conn   *nats.Conn          // nil: the table is looked at by itself
	JS     jetstream.JetStream // on Conn
	Full   bool                // SQLite compares each index with its table, too
	Logger *slog.Logger        // nil discards
	// Progress is called often, with what is being done, how far it is, and the end.
	// nil is nobody.
	Progress func(doing string, at, end uint64)
	Reader   *store.Reader // may be of a store that a materializer is writing
	// Report is told each finding, in the order they are found. An error ends the audit.
	Report   func(Finding) error
	Subjects bus.Subjects
	TempDir  string // where a store is made for projecting INGEST again, and removed; "" is the system's
}

// Finding is something that is off, or, as a note, something to know.
type Finding struct {
	Kind      string // one of the constants below
	Note      bool   // nothing is off: what was passed, or could not be checked
	Seq       uint64 // the number in EVENTS; 0 if it is about none
	IngestSeq uint64 // the sequence in INGEST; 0 if it is about none
	Key       bus.Key
	Detail    string // in words
}

// Kinds of findings.
const (
	FoundFile      = "file"              // SQLite says that the file is damaged
	FoundBus       = "bus"               // a stream is missing, or is not the store's
	FoundCounter   = "counter"           // status counts something else than there is
	FoundOrphan    = "orphan_row"        // a row of no session, or beyond latest_seq
	FoundSession   = "session"           // a session's record counts other rows than there are, or can not be read
	FoundState     = "session_state"     // its state is not what INGEST's messages make of it
	FoundOrder     = "order"             // its rows are not in the order of their messages
	FoundTwice     = "twice"             // the same fact has two numbers
	FoundChain     = "chain"             // its chain or counts do not reach what its rows came from
	FoundID        = "event_id"          // the id of a row's message is not known, or one of a message that was not read is
	FoundDiffers   = "differs"           // table and EVENTS hold different things under a number
	FoundNoMessage = "missing_in_events" // the table has a row that EVENTS lacks
	FoundNoRow     = "missing_in_table"  // EVENTS has a fact that the table lacks
	FoundForgotten = "forgotten_kept"    // EVENTS keeps a message of a forgotten session
	FoundForeign   = "foreign"           // EVENTS holds a message that no materializer wrote
	FoundPosition  = "ingest_position"   // INGEST holds another message where the store has read
	FoundNoFact    = "missing_fact"      // a message of INGEST should have given a fact
	FoundRowOnly   = "row_of_nothing"    // a row that its message of INGEST does not give
	FoundUnchecked = "unchecked"         // a note: what could not be checked, and why
)

// AuditSummary is what an audit has looked at.
type AuditSummary struct {
	Findings int    // that are off
	Notes    int    // that are not
	Compared uint64 // numbers that table and EVENTS both hold, and that are equal
	Sessions uint64
	Messages uint64 // of INGEST that were projected again
	LatestAt uint64 // the table's latest_seq when the audit began
	Position uint64 // the store's INGEST position then
}

// auditor is one audit.
type auditor struct {
	o       AuditOptions
	m       *Materializer // its way to read the streams; never run
	streams bus.Streams   // missing ones are nil
	start   store.Status
	events  *jetstream.StreamInfo // as of after start
	ingest  *jetstream.StreamInfo
	sum     AuditSummary
}

// Audit compares the table with itself, with EVENTS and with INGEST, up to where the
// table was when it began, and reports what is off. It changes nothing, takes bounded
// memory, and can be run beside a materializer: what a commit or a removal changes
// meanwhile is looked at again before it is reported. Where INGEST still reaches back
// to its first message, it is projected again from there, on a temporary store.
func Audit(ctx context.Context, o AuditOptions) (AuditSummary, error) {
	if o.Reader == nil || o.Report == nil || o.Subjects.Prefix() == "" {
		panic("materializer.Audit: an option is missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &auditor{o: o}
	for _, part := range []func(context.Context) error{
		a.file, a.begin, a.counters, a.sessions, a.ids, a.compareEvents, a.comparePosition, a.project,
	} {
		if err := part(ctx); errors.Is(err, store.ErrCorrupt) && a.sum.Findings > 0 {
			return a.sum, a.unchecked("the rest can not be read: %v", err)
		} else if err != nil {
			return a.sum, err
		}
	}
	return a.sum, nil
}

func (a *auditor) progress(doing string, at, end uint64) {
	if a.o.Progress != nil {
		a.o.Progress(doing, at, end)
	}
}

// found reports a finding.
func (a *auditor) found(f Finding) error {
	if f.Note {
		a.sum.Notes++
	} else {
		a.sum.Findings++
	}
	if err := a.o.Report(f); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// unchecked notes what could not be checked.
func (a *auditor) unchecked(format string, args ...any) error {
	return a.found(Finding{Kind: FoundUnchecked, Note: true, Detail: fmt.Sprintf(format, args...)})
}

// file lets SQLite check the file.
func (a *auditor) file(ctx context.Context) error {
	a.progress("checking the file", 0, 1)
	lines, err := a.o.Reader.Integrity(ctx, a.o.Full)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if err := a.found(Finding{Kind: FoundFile, Detail: l}); err != nil {
			return err
		}
	}
	return nil
}

// begin notes where the table is, then finds the streams: what is committed by then,
// EVENTS holds already.
func (a *auditor) begin(ctx context.Context) (err error) {
	if a.start, err = a.o.Reader.Status(ctx); err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	a.sum.LatestAt, a.sum.Position = a.start.EventsSeq, a.start.IngestSeq
	if a.o.JS == nil {
		return a.unchecked("no NATS server: EVENTS and INGEST were not looked at")
	}
	look := func(name, key, want string) (jetstream.Stream, *jetstream.StreamInfo, error) {
		st, err := a.o.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil, a.found(Finding{Kind: FoundBus, Detail: "stream " + name + " is missing; skald repair makes it again"})
		}
		if err != nil {
			return nil, nil, fmt.Errorf("find stream %s: %w", name, err)
		}
		info := st.CachedInfo()
		if got := info.Config.Metadata[key]; got != want {
			return st, info, a.found(Finding{Kind: FoundBus, Detail: fmt.Sprintf("stream %s has %s %q, the store %q", name, key, got, want)})
		}
		return st, info, nil
	}
	if a.streams.Events, a.events, err = look(a.o.Subjects.EventsStream(), bus.MetaEpoch, a.start.Epoch); err != nil {
		return err
	}
	if a.streams.Ingest, a.ingest, err = look(a.o.Subjects.IngestStream(), bus.MetaIngestID, a.start.IngestID); err != nil {
		return err
	}
	a.streams.Epoch, a.streams.IngestID = a.start.Epoch, a.start.IngestID
	a.m = &Materializer{
		o:      Options{Conn: a.o.Conn, JS: a.o.JS, Logger: a.o.Logger, Streams: a.streams, Subjects: a.o.Subjects},
		log:    a.o.Logger,
		reader: a.o.Reader,
		seam:   func(string) error { return nil },
	}
	a.m.committed.init()
	a.m.health.init()
	return nil
}

// counters compares what status counts with what there is.
func (a *auditor) counters(ctx context.Context) error {
	a.progress("counting", 0, 1)
	c, err := a.o.Reader.AuditCounts(ctx)
	if err != nil {
		return err
	}
	for _, w := range miscountedStatus(&c) {
		if err := a.found(Finding{Kind: FoundCounter, Detail: w}); err != nil {
			return err
		}
	}
	if c.HighestRow > c.EventsSeq {
		if err := a.found(Finding{Kind: FoundOrphan, Seq: c.HighestRow, Detail: fmt.Sprintf("the row lies beyond latest_seq, %d", c.EventsSeq)}); err != nil {
			return err
		}
	}
	for _, seq := range c.Orphans {
		if err := a.found(Finding{Kind: FoundOrphan, Seq: seq, Detail: "the row belongs to no session"}); err != nil {
			return err
		}
	}
	return nil
}
