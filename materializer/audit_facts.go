package materializer

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// maxUnmatched bounds the facts and rows that wait for each other. They come in the
// same order but where EVENTS was written after something irregular.
const maxUnmatched = 100_000

// factMatch matches the facts that messages give, in the order of INGEST, with the
// table's rows, in the order of their numbers.
type factMatch struct {
	a     *auditor
	read  uint64 // rows were read up to here
	ahead []store.Row
	any   bool // a row was seen: what came before the first may have been pruned
	facts map[bus.Origin]unmatched
	rows  map[bus.Origin]unmatched
	full  bool // too much is unmatched: it is no use to go on
}

// unmatched is a fact without a row, or the other way round.
type unmatched struct {
	key bus.Key
	seq uint64 // the row's number
	sum factID
}

func newFactMatch(a *auditor) *factMatch {
	return &factMatch{a: a, facts: map[bus.Origin]unmatched{}, rows: map[bus.Origin]unmatched{}}
}

// sum is a short hash of all that EVENTS carries of a row, but its number.
func sum(r *store.Row) factID {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %d %d %d %q %q %s", r.Key.Workspace, r.Key.Session, r.Type, r.RecordedAt,
		r.Origin.Seq, r.Origin.Time, r.Origin.Index, r.Source.String(), r.Trace, r.Data))
	return factID(h[:16])
}

// take matches a message's facts with rows up to the number end.
func (f *factMatch) take(ctx context.Context, m *message, facts []projection.Fact, end uint64) error {
	for i := range facts {
		if f.full {
			return nil
		}
		row := store.Row{
			Key: m.Key, Type: facts[i].Type, RecordedAt: facts[i].RecordedAt, Origin: bus.Origin{Seq: m.Seq, Time: m.Time, Index: i},
			Source: facts[i].Source, Trace: m.trace, Data: facts[i].Data,
		}
		if err := f.fact(ctx, &row, end); err != nil {
			return err
		}
	}
	return nil
}

func (f *factMatch) fact(ctx context.Context, want *store.Row, end uint64) error {
	o := want.Origin
	if r, ok := f.rows[o]; ok {
		delete(f.rows, o)
		return f.same(want.Key, o, r.seq, r.sum, sum(want))
	}
	for {
		r, err := f.peek(ctx, end)
		if err != nil {
			return err
		}
		switch {
		case r == nil, later(r.Origin, o):
			if !f.any && f.a.start.Oldest > 1 {
				return nil // pruned
			}
			f.facts[o] = unmatched{key: want.Key, sum: sum(want)}
			return f.bound(ctx)
		case r.Origin == o:
			f.next()
			return f.same(want.Key, o, r.Seq, sum(r), sum(want))
		}
		f.put(r)
		if err := f.bound(ctx); err != nil || f.full {
			return err
		}
	}
}

// later reports whether an origin comes after another one in INGEST.
func later(a, b bus.Origin) bool {
	return a.Seq > b.Seq || a.Seq == b.Seq && a.Time == b.Time && a.Index > b.Index
}

// put sets a row aside, whose fact may have come already.
func (f *factMatch) put(r *store.Row) {
	f.next()
	if w, ok := f.facts[r.Origin]; ok && w.sum == sum(r) {
		delete(f.facts, r.Origin)
		return
	}
	f.rows[r.Origin] = unmatched{key: r.Key, seq: r.Seq, sum: sum(r)}
}

func (f *factMatch) next() { f.ahead, f.any = f.ahead[1:], true }

func (f *factMatch) peek(ctx context.Context, end uint64) (*store.Row, error) {
	if len(f.ahead) == 0 {
		rows, err := f.a.o.Reader.Rows(ctx, f.read, maxAppendMessages, maxAppendBytes/2)
		if err != nil {
			return nil, fmt.Errorf("read rows after %d: %w", f.read, err)
		}
		f.ahead = rows
		if len(rows) > 0 {
			f.read = rows[len(rows)-1].Seq
		}
	}
	if len(f.ahead) == 0 || f.ahead[0].Seq > end {
		return nil, nil
	}
	return &f.ahead[0], nil
}

func (f *factMatch) same(k bus.Key, o bus.Origin, seq uint64, is, ought factID) error {
	if is == ought {
		return nil
	}
	return f.a.found(Finding{Kind: FoundRowOnly, Seq: seq, IngestSeq: o.Seq, Key: k, Detail: "the row is not the fact that its message gives"})
}

// bound gives up where nearly nothing fits.
func (f *factMatch) bound(ctx context.Context) error {
	if len(f.facts)+len(f.rows) <= maxUnmatched || f.full {
		return nil
	}
	// What is of forgotten sessions was not to be matched.
	for o, w := range f.facts {
		if gone, err := f.forgotten(ctx, w.key); err != nil {
			return err
		} else if gone {
			delete(f.facts, o)
		}
	}
	if len(f.facts)+len(f.rows) <= maxUnmatched*9/10 {
		return nil
	}
	f.full = true
	return f.a.found(Finding{Kind: FoundNoFact, Detail: fmt.Sprintf("more than %d facts and rows do not fit together; the rest was not compared", maxUnmatched)})
}

func (f *factMatch) forgotten(ctx context.Context, k bus.Key) (bool, error) {
	st, err := f.a.o.Reader.LoadState(ctx, k)
	if err != nil {
		return false, fmt.Errorf("look up session: %w", err)
	}
	return st.Forgotten, nil
}

// finish matches the rest, up to a number, and reports what is left over.
func (f *factMatch) finish(ctx context.Context, end uint64) error {
	if f.full {
		return nil
	}
	for {
		r, err := f.peek(ctx, end)
		if err != nil {
			return err
		}
		if r == nil {
			break
		}
		f.put(r)
		if err := f.bound(ctx); err != nil || f.full {
			return err
		}
	}
	told, err := f.told(ctx)
	if err != nil {
		return err
	}
	s, err := f.a.o.Reader.Status(ctx)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	pruned := s.Oldest != f.a.start.Oldest
	for o, w := range f.facts {
		gone, err := f.forgotten(ctx, w.key)
		if err != nil {
			return err
		}
		if r, ok := f.rows[o]; ok {
			delete(f.rows, o)
			if err := f.same(w.key, o, r.seq, r.sum, w.sum); err != nil {
				return err
			}
			continue
		}
		if gone || told[o.Seq] || !f.any && s.Oldest > 1 {
			continue
		}
		if err := f.a.found(Finding{Kind: FoundNoFact, Note: pruned, IngestSeq: o.Seq, Key: w.key, Detail: fmt.Sprintf("the table has no row for its fact %d", o.Index)}); err != nil {
			return err
		}
	}
	for o, r := range f.rows {
		// A row whose message INGEST does not hold was copied from EVENTS, which decides.
		held, err := f.a.holds(ctx, o)
		if err != nil {
			return err
		}
		row, err := f.a.o.Reader.Row(ctx, r.seq)
		if err != nil {
			return err
		}
		if !held || row == nil {
			continue
		}
		if err := f.a.found(Finding{Kind: FoundRowOnly, Seq: r.seq, IngestSeq: o.Seq, Key: r.key, Detail: "its message of INGEST gives no such fact"}); err != nil {
			return err
		}
	}
	return nil
}

// told returns the messages, of those whose facts have no row, of which the store itself
// says that facts of theirs are not in EVENTS. There may be any number of others.
func (f *factMatch) told(ctx context.Context) (map[uint64]bool, error) {
	told := map[uint64]bool{}
	if len(f.facts) == 0 {
		return told, nil
	}
	for o := range f.facts {
		told[o.Seq] = false
	}
	for after := int64(0); ; {
		list, err := f.a.o.Reader.Rejects(ctx, store.RejectsQuery{After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return told, nil
		}
		for i := range list {
			if _, asked := told[list[i].Seq]; asked && list[i].Reason == bus.ReasonNotInEvents {
				told[list[i].Seq] = true
			}
		}
		after = list[len(list)-1].ID
	}
}
