package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// end is what EVENTS ends with, as far as it is known.
type end struct {
	seq    uint64     // the last sequence
	known  bool       // origin is known
	origin bus.Origin // of the last fact; zero if none comes behind the table, or nobody wrote it down
	gone   uint64     // its number if it was removed, 0 if not
}

// held says what EVENTS turned out to hold of a message.
type held struct {
	indexes map[int]bool // of its facts, as seen on the way
	atEnd   bool         // the end was reached: what is missing may be appended
	next    uint64       // otherwise: the number of a later message's fact
}

// follow copies rows from EVENTS as far as they come before or belong to m, by
// the rules of the package comment.
func (a *attempt) follow(ctx context.Context, m *message) (held, error) {
	var h held
	for a.table < a.end.seq {
		e, err := a.peek(ctx)
		if err != nil {
			return h, err
		}
		if e == nil {
			// Every number up to the end is gone: they are only numbers.
			a.table = a.end.seq
			break
		}
		if e.ours {
			o := e.row.Origin
			switch {
			case o.Seq == m.Seq && o.Time == m.Time:
				if h.indexes == nil {
					h.indexes = make(map[int]bool)
				}
				h.indexes[o.Index] = true
			case o.Seq > m.Seq:
				later, err := a.isNext(ctx, o)
				if err != nil {
					return h, err
				}
				if later {
					h.next = e.seq
					return h, nil
				}
				if err := a.takeOver(ctx, e, m.Seq); err != nil {
					return h, err
				}
			default:
				if err := a.past(ctx, e, m.Seq); err != nil {
					return h, err
				}
			}
		}
		a.copy(e)
	}
	h.atEnd = true
	return h, nil
}

// followIdle copies rows when no message is at hand: those whose origin is
// behind the position, and those that INGEST does not hold.
func (a *attempt) followIdle(ctx context.Context) error {
	for a.table < a.end.seq {
		e, err := a.peek(ctx)
		if err != nil {
			return err
		}
		if e == nil {
			a.table = a.end.seq
			break
		}
		switch o := e.row.Origin; {
		case !e.ours:
		case o.Seq > a.position:
			if later, err := a.isNext(ctx, o); err != nil || later {
				return err
			}
			if err := a.takeOver(ctx, e, a.position+1); err != nil {
				return err
			}
		default:
			if err := a.past(ctx, e, a.position+1); err != nil {
				return err
			}
		}
		a.copy(e)
	}
	return nil
}

func (a *attempt) peek(ctx context.Context) (*entry, error) {
	if a.tail == nil {
		t, err := a.m.openTail(ctx, a.table+1, a.end.seq)
		if err != nil {
			return nil, err
		}
		a.tail = t
	}
	return a.tail.peek(ctx)
}

// copy takes the entry into the table as it is, or passes a number that is no row.
func (a *attempt) copy(e *entry) {
	switch {
	case e.ours:
		a.unit.commit.Rows = append(a.unit.commit.Rows, e.row)
		a.row = e.seq
		// The row may be one of a forgotten session, which the removal job then
		// takes out again.
		a.unit.removals = true
	case !e.void:
		a.unit.commit.Counters.Foreign++
		a.m.log.Warn("EVENTS holds a message that no materializer wrote", slog.Uint64("seq", e.seq))
	}
	a.table = e.seq
	if e.ours && e.seq == a.end.seq {
		a.end.known, a.end.origin = true, e.row.Origin
	}
	a.tail.take()
}

// isNext reports whether the origin of a later sequence is a message that INGEST holds.
// One that was trimmed before it was read is neither: the store can not read on, and
// must not take its rows without its effect on the state.
func (a *attempt) isNext(ctx context.Context, o bus.Origin) (bool, error) {
	held, err := a.ingestHolds(ctx, o)
	if err != nil || held {
		return held, err
	}
	info, err := a.m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("look for the beginning of INGEST: %w", err)
	}
	if o.Seq < info.State.FirstSeq {
		return false, beginsBehind(info, a.position)
	}
	return false, nil
}

// ingestHolds reports whether INGEST holds the message that an origin names: of
// that sequence and that stored time.
func (a *attempt) ingestHolds(ctx context.Context, o bus.Origin) (bool, error) {
	if n := len(a.batch); n > 0 && o.Seq >= a.batch[0].Seq && o.Seq <= a.batch[n-1].Seq {
		for _, m := range a.batch {
			if m.Seq == o.Seq {
				return m.Time == o.Time, nil
			}
		}
		return false, nil // a hole
	}
	return a.m.holdsOrigin(ctx, o)
}

// give queues those facts of m that EVENTS is to be given, and leaves an entry
// for those that it neither holds nor is given.
func (a *attempt) give(ctx context.Context, m *message, facts []projection.Fact, h held) error {
	if len(facts) == 0 {
		return nil
	}
	lacks := func(int) bool { return false }
	if h.atEnd {
		var err error
		if lacks, err = a.missing(ctx, m); err != nil {
			return err
		}
	}
	var lost []int
	first := true
	for i := range facts {
		switch {
		case h.indexes[i]:
		case !lacks(i):
			lost = append(lost, i)
		default:
			if first {
				if err := a.makeRoom(facts[i:]); err != nil {
					return err
				}
				first = false
			}
			if err := a.enqueue(m, i, &facts[i]); err != nil {
				return err
			}
		}
	}
	if len(lost) > 0 {
		return a.lose(ctx, m, lost, len(facts), h)
	}
	return nil
}

// notInEvents logs lost facts, one line a second at most: each has an entry, and where a
// session turns out to be forgotten there are many, and none of them is missed.
func (m *Materializer) notInEvents(seq uint64, facts int) {
	m.lostFacts += facts
	if time.Since(m.lostLogged) < time.Second {
		return
	}
	m.log.Warn("facts of a message are not in EVENTS and can not be appended any more",
		slog.Uint64("ingest_seq", seq), slog.Int("facts", m.lostFacts))
	m.lostFacts, m.lostLogged = 0, time.Now()
}

// missing returns which of m's facts, by index, are to be appended at the end.
func (a *attempt) missing(ctx context.Context, m *message) (func(index int) bool, error) {
	all := func(int) bool { return true }
	if a.pending.rows > 0 {
		return all, nil // EVENTS will end with a message before m
	}
	if err := a.knowEnd(ctx); err != nil {
		return nil, err
	}
	switch o := a.end.origin; {
	case o.Seq == m.Seq && o.Time == m.Time:
		return func(i int) bool { return i > o.Index }, nil
	case o.Seq > m.Seq && o.Time > m.Time:
		return func(int) bool { return false }, nil
	}
	return all, nil
}

// knowEnd finds out what the last fact of EVENTS came from, if that is not known yet.
// What is no fact may come behind it. It looks no further back than the table reached when
// the attempt began, since all of the message at hand comes behind that.
func (a *attempt) knowEnd(ctx context.Context) error {
	if a.end.known {
		return nil
	}
	for n := a.end.seq; n > 0 && (n == a.end.seq || n > a.from); n-- {
		e, err := a.m.entryAt(ctx, a.m.o.Streams.Events, n)
		if err != nil {
			return err
		}
		if e == nil {
			if a.end.origin, err = a.m.removedEnd(ctx, n); err != nil {
				return err
			}
			if a.end.origin == (bus.Origin{}) && a.from < n {
				// The table had not come this far: facts of the message at hand may have
				// been among what is gone, and would be given a second number.
				return fmt.Errorf("EVENTS %d to %d are gone, and nobody has written down what its end came from: nothing is appended until it goes on, or the store is restored from one that has these rows",
					a.from+1, n)
			}
			a.end.gone = n
			break
		}
		if e.ours {
			a.end.origin = e.row.Origin
			break
		}
	}
	a.end.known = true
	return nil
}

// entryAt returns the message under a number of EVENTS, nil if it is gone.
func (m *Materializer) entryAt(ctx context.Context, events jetstream.Stream, seq uint64) (*entry, error) {
	raw, err := m.getMsg(ctx, events, seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for EVENTS %d: %w", seq, err)
	}
	return m.parseEntry(raw.Sequence, raw.Subject, raw.Header, raw.Data), nil
}

// eventsLast asks the server for EVENTS' last sequence. The error is
// bus.ErrOtherBus if EVENTS is not that of this bus any more.
func (m *Materializer) eventsLast(ctx context.Context) (uint64, error) {
	info, err := m.o.Streams.Events.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask EVENTS for its end: %w", err)
	}
	return info.State.LastSeq, m.sameEvents(info)
}
