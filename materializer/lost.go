package materializer

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// past looks at a row with an origin of an earlier sequence. All that was read up to
// here was stored up to a.highest. If INGEST holds a later one there, then it was set
// back, and another store has read on: those rows are to be followed when this one has
// gone back. If INGEST holds it, its message was read; if it does not, that may have been
// lost before.
func (a *attempt) past(ctx context.Context, e *entry, at uint64) error {
	o := e.row.Origin
	switch held, err := a.ingestHolds(ctx, o); {
	case err != nil:
		return err
	case !held:
		return a.takeOver(ctx, e, at)
	case o.Time > a.highest:
		return moved(bus.ReasonIngestRolledBack, "INGEST's message %d is not the one that had been read", o.Seq)
	}
	return nil
}

// takeOver moves the session of a row whose message INGEST does not hold to what the row
// says that it was deduplicated by: the message may come again, and this store may never
// have seen it. What is known already moves nothing. at is the sequence in INGEST until
// which the change is in flight.
func (a *attempt) takeOver(ctx context.Context, e *entry, at uint64) error {
	r := &e.row
	s, err := a.cache.state(ctx, r.Key, at)
	if err != nil {
		return err
	}
	if s.state.Forgotten {
		return nil
	}
	a.touch(r.Key, s)
	before := s.state.Chain.Position.Ordinal
	moved := s.state.TakeOver(r.Source, r.RecordedAt)
	detail := fmt.Sprintf("number %d was copied from EVENTS without its message %d, which INGEST does not hold", r.Seq, r.Origin.Seq)
	if id := r.Source.EventID; id != "" {
		key := store.IDKey{Key: r.Key, EventID: id}
		stored, err := a.cache.reader.KnownIDs(ctx, []store.IDKey{key}, a.horizon())
		if err != nil {
			return fmt.Errorf("look up event id: %w", err)
		}
		if a.cache.known(key, stored, a.horizon()) == nil {
			known := store.ID{Key: r.Key, EventID: id, AppliedTime: a.highest, IngestSeq: at}
			a.unit.commit.IDs = append(a.unit.commit.IDs, known)
			a.cache.remember(known)
			moved, detail = true, detail+"; its event id is known from now on"
		}
	}
	if !moved {
		return nil
	}
	if now := s.state.Chain.Position.Ordinal; now > before {
		detail += fmt.Sprintf("; the chain moved from %d to %d", before, now)
	}
	if r.Source.Publisher != "" {
		detail += fmt.Sprintf("; count %d of publisher %s counts as used", r.Source.Count, r.Source.Publisher)
	}
	a.unit.commit.Rejects = append(a.unit.commit.Rejects, store.RejectWrite{
		Key: &r.Key, Subject: a.m.o.Subjects.IngestStream(),
		Reject: projection.Reject{Seq: r.Origin.Seq, Time: r.Origin.Time, Reason: bus.ReasonTakenOver, Detail: detail},
	})
	return nil
}

// bridge moves the chain of m's session to where m's page begins, if EVENTS holds facts of
// m and the chain does not reach so far: somebody has applied the page, so what stands
// between was there, and INGEST has lost it since, with nothing left to tell of it.
// Without this the page would be held for ever.
func (a *attempt) bridge(ctx context.Context, m *message, h held) error {
	if m.Class != bus.ClassProjection || len(h.indexes) == 0 || m.subjectErr != nil {
		return nil
	}
	s, err := a.cache.state(ctx, m.Key, m.Seq)
	if err != nil {
		return err
	}
	at := s.state.Chain.Position.Ordinal
	body, err := bus.Compact(m.Body)
	if err != nil {
		return nil //nolint:nilerr // it is rejected when it is projected
	}
	page, err := bus.ParsePage(body)
	if err != nil || s.state.Forgotten || page.First() <= at+1 {
		return nil //nolint:nilerr // as above
	}
	begin := bus.ChainPosition{Ordinal: page.First() - 1}
	first := &page.Events[0]
	switch d, ok := bus.ParseDigest(first.Previous); {
	case page.After != nil:
		begin = *page.After
	case first.Format == bus.FormatChained && ok:
		begin.Digest = d
	default:
		return nil // nothing says what the digest was
	}
	a.touch(m.Key, s)
	s.state.TakeOver(bus.Source{Chain: begin}, first.RecordedAt)
	a.unit.commit.Rejects = append(a.unit.commit.Rejects, store.RejectWrite{
		Key: &m.Key, Subject: a.m.o.Subjects.IngestStream(),
		Reject: projection.Reject{
			Seq: m.Seq, Time: m.Time, Class: m.Class, Reason: bus.ReasonTakenOver,
			Detail: fmt.Sprintf("the chain moved from %d to %d: EVENTS holds facts of the page that begins behind, and INGEST does not hold what was between", at, begin.Ordinal),
		},
	})
	return nil
}
