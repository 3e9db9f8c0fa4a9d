package materializer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/materializer/store"
)

const (
	// auditDoubts is how many numbers are looked at again; what is beyond is told as
	// one finding.
	auditDoubts = 10_000
	// auditPatience is how long a number may be unsettled: another store removes
	// messages of a forgotten session before this one has read of it.
	auditPatience = 10 * time.Second
	// auditMarks is how many of the marks are compared with INGEST.
	auditMarks = 100
)

// compareEvents compares each number up to the table's end with EVENTS. What does not
// fit is looked at again at the end: a removal or a prune may have been under way.
func (a *auditor) compareEvents(ctx context.Context) error {
	if a.streams.Events == nil {
		return nil
	}
	if last := a.events.State.LastSeq; last < a.start.EventsSeq {
		if err := a.found(Finding{Kind: FoundNoMessage, Seq: last + 1, Detail: fmt.Sprintf("EVENTS ends at %d, the table at %d; serve puts the rows back", last, a.start.EventsSeq)}); err != nil {
			return err
		}
	}
	from, last := reach(a.events), min(a.events.State.LastSeq, a.start.EventsSeq)
	if from > 1 && a.start.EventsSeq > 0 && from > a.start.Oldest {
		if err := a.unchecked("EVENTS is bounded and begins at %d: numbers below it have only the table", from); err != nil {
			return err
		}
	}
	s := a.m.sideBySide(from-1, last, last)
	defer s.close()
	var doubts []uint64
	more := 0
	for {
		seq, row, e, err := s.next(ctx)
		if err != nil {
			return fmt.Errorf("compare the table with EVENTS: %w", err)
		}
		if seq == 0 {
			break
		}
		a.progress("comparing the table with EVENTS", seq, last)
		switch {
		case row != nil && e != nil && unlike(row, e) == "":
			a.sum.Compared++
		case row == nil && (e.void || e.ours && seq < a.start.Oldest):
		case row == nil && !e.ours:
			if err := a.found(Finding{Kind: FoundForeign, Note: true, Seq: seq, Detail: "EVENTS holds a message that no materializer wrote; it only takes a number"}); err != nil {
				return err
			}
		case len(doubts) < auditDoubts:
			doubts = append(doubts, seq)
		default:
			more++
		}
	}
	deadline := time.Now().Add(auditPatience) // of all together
	for i, seq := range doubts {
		a.progress("looking again", uint64(i), uint64(len(doubts)))
		if err := a.settle(ctx, seq, deadline); err != nil {
			return err
		}
	}
	if more > 0 {
		return a.found(Finding{Kind: FoundDiffers, Detail: fmt.Sprintf("and %d more numbers that do not fit", more)})
	}
	return nil
}

// settle looks at a number that did not fit until it fits or has had its time. A finding
// counts if the store was at rest from before the look until after it:
//
//	look: the row is there, and EVENTS has no message
//	the store reads of the forget, and removes the row
//	the store is at rest, and the finding is none any more
func (a *auditor) settle(ctx context.Context, seq uint64, deadline time.Time) error {
	var wait backoff
	before, err := a.rest(ctx)
	if err != nil {
		return err
	}
	for {
		f, err := a.judge(ctx, seq)
		if err != nil || f == nil {
			return err
		}
		after, err := a.rest(ctx)
		if err != nil {
			return err
		}
		if before.atRest && after == before || time.Now().After(deadline) {
			return a.found(*f)
		}
		before = after
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}

// rest is where the store is, and whether it has nothing yet to read or to remove.
type rest struct {
	position uint64
	atRest   bool
}

func (a *auditor) rest(ctx context.Context) (rest, error) {
	s, err := a.o.Reader.Status(ctx)
	if err != nil {
		return rest{}, fmt.Errorf("read the store: %w", err)
	}
	r := rest{position: s.IngestSeq, atRest: s.Removals == a.start.Removals}
	if a.streams.Ingest == nil {
		return r, nil
	}
	in, err := a.streams.Ingest.Info(ctx)
	if err != nil {
		return rest{}, fmt.Errorf("ask for INGEST: %w", err)
	}
	r.atRest = r.atRest && s.IngestSeq >= in.State.LastSeq
	return r, nil
}

// judge compares one number anew; nil if it fits.
func (a *auditor) judge(ctx context.Context, seq uint64) (*Finding, error) {
	row, err := a.o.Reader.Row(ctx, seq)
	if err != nil {
		return nil, err
	}
	e, err := a.m.entryAt(ctx, a.streams.Events, seq)
	if err != nil {
		return nil, err
	}
	switch {
	case row == nil && e == nil:
		return nil, nil // removed or pruned meanwhile
	case e == nil:
		return &Finding{Kind: FoundNoMessage, Seq: seq, Key: row.Key, IngestSeq: row.Origin.Seq,
			Detail: "EVENTS has no message under the row's number; skald repair --rebuild brings it back"}, nil
	case row != nil:
		if differs := unlike(row, e); differs != "" {
			return &Finding{Kind: FoundDiffers, Seq: seq, Key: row.Key, IngestSeq: row.Origin.Seq, Detail: "table and EVENTS differ in " + differs}, nil
		}
		return nil, nil
	case !e.ours:
		return nil, nil
	}
	s, err := a.o.Reader.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	st, err := a.o.Reader.LoadState(ctx, e.row.Key)
	if err != nil {
		return nil, fmt.Errorf("look up session: %w", err)
	}
	switch {
	case seq < s.Oldest:
		return nil, nil
	case st.Forgotten && s.Removals > 0:
		return nil, nil // the removal takes it
	case st.Forgotten:
		return &Finding{Kind: FoundForgotten, Seq: seq, Key: e.row.Key, IngestSeq: e.row.Origin.Seq, Detail: "EVENTS keeps a message of a session that was forgotten"}, nil
	}
	return &Finding{Kind: FoundNoRow, Seq: seq, Key: e.row.Key, IngestSeq: e.row.Origin.Seq, Detail: "EVENTS holds a fact that the table lacks; skald repair sets it right"}, nil
}

// comparePosition compares the messages of INGEST that the store remembers: the last
// one that it has read, and the newest of its marks.
func (a *auditor) comparePosition(ctx context.Context) error {
	if a.streams.Ingest == nil || a.start.IngestSeq == 0 {
		return nil
	}
	marks, err := a.o.Reader.Marks(ctx, a.start.IngestSeq, auditMarks)
	if err != nil {
		return err
	}
	marks = append([]store.Mark{{Seq: a.start.IngestSeq, Time: a.start.IngestTime, Hash: a.start.IngestHash}}, marks...)
	gone := 0
	for i, mark := range marks {
		a.progress("comparing the position with INGEST", uint64(i), uint64(len(marks)))
		raw, err := a.m.getMsg(ctx, a.streams.Ingest, mark.Seq, false)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			gone++
			continue
		}
		if err != nil {
			return fmt.Errorf("look for INGEST %d: %w", mark.Seq, err)
		}
		h := sha256.Sum256(raw.Data)
		if raw.Time.UnixNano() != mark.Time || !bytes.Equal(h[:len(mark.Hash)], mark.Hash[:]) {
			if err := a.found(Finding{Kind: FoundPosition, IngestSeq: mark.Seq, Detail: "INGEST holds another message than the store has read"}); err != nil {
				return err
			}
		}
	}
	if last := a.ingest.State.LastSeq; last < a.start.IngestSeq {
		return a.found(Finding{Kind: FoundPosition, IngestSeq: a.start.IngestSeq, Detail: fmt.Sprintf("INGEST ends at %d, the store has read up to %d", last, a.start.IngestSeq)})
	}
	if gone > 0 {
		return a.unchecked("INGEST has let go of %d of %d messages that the store remembers", gone, len(marks))
	}
	return nil
}
