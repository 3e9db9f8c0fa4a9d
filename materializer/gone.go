package materializer

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// What EVENTS does not hold of a message it may have held: a forget takes messages out of
// EVENTS, and one that was made again from the table begins with the first row that was not
// pruned. A store that reads INGEST from before that derives those facts and finds nothing.
// They had numbers, and were seen; to give them others now would double them.

// lose leaves an entry for those facts of m, by index, that EVENTS neither holds nor is
// given. Where they may have stood under numbers that are gone, it keeps no payload, so
// that nobody sends them again; and if those were pruned there is nothing to report. (If
// the session turns out to be forgotten, its entries go.)
func (a *attempt) lose(ctx context.Context, m *message, lost []int, of int, h held) error {
	r := projection.Reject{Seq: m.Seq, Time: m.Time, Class: m.Class, Reason: bus.ReasonNotInEvents, Size: len(m.Body), Identity: m.Identity}
	r.Detail = fmt.Sprintf("%d of %d facts are not in EVENTS, the first of index %d: ", len(lost), of, lost[0])
	from, to, err := a.between(ctx, h)
	switch {
	case err != nil:
		return err
	case from > to:
		r.Detail += "another materializer derived none of them"
		r.Payload = m.Body
	default:
		pruned, err := a.prunedLater(ctx, m.Seq, from)
		if err != nil || pruned {
			return err
		}
		r.Detail += fmt.Sprintf("numbers from %d to %d are gone from EVENTS, and may have been theirs; sent again they would get others", from, to)
	}
	a.m.notInEvents(m.Seq, len(lost))
	a.reject(m, r)
	return nil
}

// between returns the numbers between the last row and what EVENTS holds next, among which
// the facts of a message were if it held them. There are none if from is above to.
func (a *attempt) between(ctx context.Context, h held) (from, to uint64, err error) {
	switch {
	case !h.atEnd:
		to = h.next - 1
	case a.end.gone > 0:
		to = a.end.gone
	default:
		return 1, 0, nil
	}
	last := a.row // perhaps not committed yet
	row, err := a.m.reader.LastRow(ctx, to)
	if err != nil {
		return 0, 0, fmt.Errorf("read the table's last row: %w", err)
	}
	if row != nil {
		last = max(last, row.Seq)
	}
	return last + 1, to, nil
}

// prune is a message of INGEST that prunes below a number.
type prune struct{ seq, before uint64 }

// prunedLater reports whether INGEST holds, behind a sequence, a prune that takes the
// number. They are looked up once: those that come while the worker runs can not be why
// EVENTS lacks what it lacked when it began.
func (a *attempt) prunedLater(ctx context.Context, seq, number uint64) (bool, error) {
	if a.m.prunes == nil {
		var all []prune
		err := a.m.controlsAfter(ctx, seq, a.m.o.Subjects.IngestAdmin(), func(seq uint64, c bus.Control) bool {
			if c.Op == bus.OpPrune {
				all = append(all, prune{seq, c.Before})
			}
			return true
		})
		if err != nil {
			return false, err
		}
		a.m.prunes = &all
	}
	for _, p := range *a.m.prunes {
		if p.seq > seq && p.before > number {
			return true, nil
		}
	}
	return false, nil
}
