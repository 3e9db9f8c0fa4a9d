package materializer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// auditFactsStep is how many rows of one session are read in one snapshot.
const auditFactsStep = 5000

// sessions looks at every session: its counts, its state, and the order of its rows.
func (a *auditor) sessions(ctx context.Context) error {
	for after := int64(0); ; {
		list, err := a.o.Reader.AuditSessions(ctx, after, auditSessionsStep)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		for i := range list {
			s := &list[i]
			a.sum.Sessions++
			a.progress("looking at sessions", a.sum.Sessions, uint64(max(a.start.Sessions, int64(a.sum.Sessions))))
			if err := a.session(s); err != nil {
				return err
			}
			if err := a.order(ctx, s); err != nil {
				return err
			}
		}
		after = list[len(list)-1].PK
	}
}

// session reports what is wrong with a session's record.
func (a *auditor) session(s *store.AuditSession) error {
	wrong := miscounted(s)
	if s.StateErr != nil {
		wrong = append(wrong, fmt.Sprintf("its state can not be read: %v", s.StateErr))
	}
	for _, w := range wrong {
		if err := a.found(Finding{Kind: FoundSession, Key: s.Key, Detail: w}); err != nil {
			return err
		}
	}
	return nil
}

// order goes through a session's rows, as far as its record had them: their messages
// ascend, and its chain and counts reach what they came from.
func (a *auditor) order(ctx context.Context, s *store.AuditSession) error {
	var before store.AuditFact
	for after := uint64(0); ; {
		facts, err := a.o.Reader.AuditFacts(ctx, s.PK, after, auditFactsStep)
		if err != nil {
			return err
		}
		for i := range facts {
			f := facts[i]
			if f.Seq > uint64(s.HasLast) {
				return nil
			}
			if before.Seq > 0 {
				if err := a.follows(ctx, s.Key, before, f); err != nil {
					return err
				}
			}
			if err := a.reached(ctx, s, f); err != nil {
				return err
			}
			before = f
		}
		if len(facts) < auditFactsStep {
			return nil
		}
		after = facts[len(facts)-1].Seq
	}
}

// follows judges two neighbouring rows of a session. Rows may go back in INGEST where
// following allows it: an origin that INGEST does not hold, since its sequences were
// issued again, and rows that a repair has appended anew, in another epoch.
func (a *auditor) follows(ctx context.Context, k bus.Key, before, f store.AuditFact) error {
	o, p := f.Origin, before.Origin
	switch {
	case o == p:
		return a.found(Finding{Kind: FoundTwice, Key: k, Seq: f.Seq, IngestSeq: o.Seq, Detail: fmt.Sprintf("it is the fact of number %d again", before.Seq)})
	case o.Seq > p.Seq, o.Seq == p.Seq && o.Time == p.Time && o.Index > p.Index:
		return nil
	case a.streams.Ingest == nil || a.streams.Events == nil:
		return a.found(Finding{Kind: FoundUnchecked, Note: true, Key: k, Seq: f.Seq, IngestSeq: o.Seq, Detail: fmt.Sprintf("it came after number %d of message %d; without the streams that can not be judged", before.Seq, p.Seq)})
	}
	for _, origin := range []bus.Origin{o, p} {
		if held, err := a.holds(ctx, origin); err != nil || !held {
			return err
		}
	}
	if e1, e2, err := a.epochs(ctx, before.Seq, f.Seq); err != nil || e1 != e2 {
		return err
	}
	return a.found(Finding{Kind: FoundOrder, Key: k, Seq: f.Seq, IngestSeq: o.Seq, Detail: fmt.Sprintf("it came after number %d, which is of the later message %d", before.Seq, p.Seq)})
}

// holds reports whether INGEST holds the message that an origin names.
func (a *auditor) holds(ctx context.Context, o bus.Origin) (bool, error) {
	if a.streams.Ingest == nil {
		return false, nil
	}
	raw, err := a.m.getMsg(ctx, a.streams.Ingest, o.Seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for INGEST %d: %w", o.Seq, err)
	}
	return raw.Time.UnixNano() == o.Time, nil
}

// epochs returns the epochs in which two messages of EVENTS were written, "" for one
// that is gone.
func (a *auditor) epochs(ctx context.Context, seqs ...uint64) (string, string, error) {
	var of [2]string
	for i, seq := range seqs {
		e, err := a.m.entryAt(ctx, a.streams.Events, seq)
		if err != nil {
			return "", "", err
		}
		if e != nil {
			of[i] = e.epoch
		}
	}
	return of[0], of[1], nil
}

// reached compares what a row was deduplicated by with the session's chain and counts.
// A row that was copied from EVENTS, whose message INGEST has lost, may lie beyond.
func (a *auditor) reached(ctx context.Context, s *store.AuditSession, f store.AuditFact) error {
	if s.State == nil {
		return nil
	}
	wrong := ""
	switch src := f.Source; {
	case src.Chain.Ordinal > 0:
		at := s.State.Chain.Position
		if at.Ordinal < src.Chain.Ordinal {
			wrong = fmt.Sprintf("the session's chain is at ordinal %d, the row came of ordinal %d", at.Ordinal, src.Chain.Ordinal)
		} else if at.Ordinal == src.Chain.Ordinal && at.Digest != src.Chain.Digest {
			wrong = fmt.Sprintf("the session's chain has another digest at ordinal %d than the row", at.Ordinal)
		}
	case src.Publisher != "":
		for i := range s.State.Publishers.Seen {
			if p := &s.State.Publishers.Seen[i]; p.ID == src.Publisher && p.Count < src.Count {
				wrong = fmt.Sprintf("the session knows count %d of publisher %s, the row came of count %d", p.Count, p.ID, src.Count)
			}
		}
	}
	if wrong == "" {
		return nil
	}
	held, err := a.holds(ctx, f.Origin)
	if err != nil {
		return err
	}
	return a.found(Finding{Kind: FoundChain, Note: !held, Key: s.Key, Seq: f.Seq, IngestSeq: f.Origin.Seq, Detail: wrong})
}
