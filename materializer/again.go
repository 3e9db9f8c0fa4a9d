package materializer

import (
	"context"
	"fmt"
	"slices"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// After the store has gone back in INGEST, messages come that it has read before. Most
// are known by their chain, count or id. The stretches that were left, by sequence and
// stored time, tell the rest.

// heldBy reports whether a message is one of a stretch.
func heldBy(all []store.Stretch, seq uint64, time int64) bool {
	return slices.ContainsFunc(all, func(s store.Stretch) bool { return s.Holds(seq, time) })
}

// lookBack asks for the entries of those messages of the batch that were read before:
// what was rejected then stays rejected, and leaves no second entry.
func (a *attempt) lookBack(ctx context.Context) error {
	if len(a.stretches) == 0 {
		return nil
	}
	first, last := -1, -1
	for i, m := range a.batch {
		if heldBy(a.stretches, m.Seq, m.Time) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	var err error
	if a.rejected, err = a.m.reader.RejectedMessages(ctx, a.batch[first].Seq, a.batch[last].Seq); err != nil {
		return fmt.Errorf("look up rejects: %w", err)
	}
	return nil
}

// skips reports whether a message that was read before is dropped as such: it has
// nothing by which the session could know it, or it was rejected.
func (a *attempt) skips(m *message) bool {
	if !a.again {
		return false
	}
	id := m.Identity
	bare := m.subjectErr != nil || m.admin || m.Class != bus.ClassProjection && id.Publisher == "" && id.EventID == ""
	return bare || a.rejected[store.Message{Seq: m.Seq, Time: m.Time}]
}

// expired reports whether the message was read before, and its event id is known no more.
// It was applied longer ago than the horizon, or was a duplicate of one that was: both
// would be applied, and seen, once more.
func (a *attempt) expired(m *message, known *projection.KnownID) bool {
	return a.again && known == nil && m.Identity.EventID != "" && m.Identity.Publisher == ""
}

// drop counts a message that was read before.
func (a *attempt) drop(m *message) projection.Result {
	res := projection.Result{Outcome: projection.Duplicate}
	a.note(m, &res)
	return res
}

// hole notes that INGEST does not hold the n sequences before m: the reader has made
// sure of it. A hole before a message that was read before is known.
func (a *attempt) hole(m *message, n uint64) {
	if a.again {
		return
	}
	a.unit.commit.Counters.Holes += int64(n)
	a.unit.irregular = true
	from := a.position + 1
	detail := fmt.Sprintf("INGEST has lost messages %d to %d, which it had acknowledged", from, m.Seq-1)
	if n == 1 {
		detail = fmt.Sprintf("INGEST has lost message %d, which it had acknowledged", from)
	}
	a.unit.commit.Rejects = append(a.unit.commit.Rejects, store.RejectWrite{
		Subject: a.m.o.Subjects.IngestStream(), Once: true,
		Reject: projection.Reject{Seq: from, Time: m.Time, Reason: bus.ReasonIngestHole, Detail: detail},
	})
}
