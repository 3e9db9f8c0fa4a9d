package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// takeOver is what a store does that can not read on where no checkpoint knows more: it
// takes the rows over from EVENTS as far as INGEST does not hold their messages, moves
// chains, counts and event ids to what the rows' headers say, and leaves each session so
// moved an entry that names the range. Then it reads INGEST from its first message.
// What had no fact is lost to it: activities that did not change, a session's record, that a
// session was forgotten.
//
// It returns false if EVENTS has no such row. Each commit has its rows, states and
// entries together, so a crash in between is gone on from.
func (m *Materializer) takeOver(ctx context.Context, pos store.Position, in *jetstream.StreamInfo) (bool, error) {
	b := m.newTakeover(pos)
	if err := b.copy(ctx, in.State.FirstSeq); err != nil {
		return false, errors.Join(err, b.flush(ctx))
	}
	if !b.any {
		// Unless an earlier try has done so, nothing was taken over.
		row, err := m.reader.LastRow(ctx, bus.MaxSeq)
		if err != nil || row == nil || row.Origin.Seq <= pos.IngestSeq {
			return false, err
		}
	}
	// Everything before INGEST's first message is passed. What stands there is not known.
	gone := in.State.FirstSeq - 1 - pos.IngestSeq
	c := &b.commit
	c.Position.IngestSeq, c.Position.IngestTime, c.Position.IngestHash = in.State.FirstSeq-1, 0, projection.Hash{}
	c.Counters.Holes = int64(gone)
	c.Rejects = append(c.Rejects, store.RejectWrite{Subject: m.o.Subjects.IngestStream(), Reject: projection.Reject{
		Seq: pos.IngestSeq + 1, Time: max(c.Position.HighestTime, pos.IngestTime), Reason: bus.ReasonIngestTrimmed,
		Detail: fmt.Sprintf("messages %d to %d of INGEST are gone and no checkpoint knows them: the rows up to %d were taken over from EVENTS, and reading goes on at message %d",
			pos.IngestSeq+1, in.State.FirstSeq-1, c.Position.EventsSeq, in.State.FirstSeq),
	}})
	m.log.Error("messages of INGEST are gone and no checkpoint knows them; rows were taken over from EVENTS",
		slog.Uint64("from", pos.IngestSeq+1), slog.Uint64("to", in.State.FirstSeq-1), slog.Uint64("seq", c.Position.EventsSeq))
	if err := b.flush(ctx); err != nil {
		return false, err
	}
	if m.o.Committed != nil {
		m.o.Committed(b.pos)
	}
	m.seen = store.Mark{}
	m.irregular()
	return true, nil
}

// copy takes the rows whose messages INGEST, which begins at first, does not hold.
func (b *takeover) copy(ctx context.Context, first uint64) error {
	from := b.pos.EventsSeq
	last, err := b.m.eventsLast(ctx)
	if err != nil || last <= from {
		return err
	}
	t, err := b.m.openTail(ctx, from+1, last)
	if err != nil {
		return err
	}
	defer t.close()
	for {
		e, err := t.peek(ctx)
		if err != nil || e == nil {
			return err
		}
		if e.ours && e.row.Origin.Seq >= first {
			if held, err := b.m.holdsOrigin(ctx, e.row.Origin); err != nil || held {
				return err
			}
		}
		if err := b.add(ctx, e); err != nil {
			return err
		}
		t.take()
		if len(b.commit.Rows) == maxAppendMessages || b.bytes > copyBytes {
			if err := b.flush(ctx); err != nil {
				return err
			}
			b.m.stopServing(fmt.Sprintf("the store takes rows over from EVENTS: %d of at most %d numbers", b.pos.EventsSeq-from, last-from))
		}
	}
}

// holdsOrigin reports whether INGEST holds the message of an origin.
func (m *Materializer) holdsOrigin(ctx context.Context, o bus.Origin) (bool, error) {
	raw, err := m.getMsg(ctx, m.o.Streams.Ingest, o.Seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for INGEST %d: %w", o.Seq, err)
	}
	return raw.Time.UnixNano() == o.Time, nil
}

// takeover gathers rows, and what they make of their sessions, for one commit.
type takeover struct {
	m      *Materializer
	pos    store.Position // as committed
	commit store.Commit
	bytes  int
	any    bool
	states map[bus.Key]*takenOver
}

// takenOver is a session whose state goes by its facts.
type takenOver struct {
	state       *projection.State
	before      uint64 // the chain's ordinal
	first, last *store.Row
}

func (m *Materializer) newTakeover(pos store.Position) *takeover {
	return &takeover{m: m, pos: pos, commit: store.Commit{Position: pos}, states: make(map[bus.Key]*takenOver)}
}

func (b *takeover) add(ctx context.Context, e *entry) error {
	c := &b.commit
	c.Position.EventsSeq = e.seq
	if !e.ours {
		if !e.void {
			c.Counters.Foreign++
			b.m.log.Warn("EVENTS holds a message that no materializer wrote", slog.Uint64("seq", e.seq))
		}
		return nil
	}
	r := &e.row
	s := b.states[r.Key]
	if s == nil {
		st, err := b.m.reader.LoadState(ctx, r.Key)
		if err != nil {
			return fmt.Errorf("load session: %w", err)
		}
		s = &takenOver{state: st, before: st.Chain.Position.Ordinal, first: r}
		b.states[r.Key] = s
	}
	s.last = r
	s.state.TakeOver(r.Source, r.RecordedAt)
	c.Position.HighestTime = max(c.Position.HighestTime, r.Origin.Time)
	if id := r.Source.EventID; id != "" && !s.state.Forgotten {
		c.IDs = append(c.IDs, store.ID{Key: r.Key, EventID: id, AppliedTime: c.Position.HighestTime, IngestSeq: r.Origin.Seq})
	}
	c.Rows = append(c.Rows, *r)
	b.bytes += len(r.Data)
	b.any = true
	return nil
}

// flush commits what was gathered.
func (b *takeover) flush(ctx context.Context) error {
	c := &b.commit
	if c.Position == b.pos {
		return nil
	}
	for k, s := range b.states {
		if s.state.Forgotten {
			continue
		}
		w := store.SessionWrite{Key: k, Exists: true, LastActivityAt: s.state.LastActivityAt, HeldPages: len(s.state.Held)}
		w.Chain, w.Publishers = s.state.AppendChain(nil), s.state.AppendPublishers(nil)
		c.Sessions = append(c.Sessions, w)
		detail := fmt.Sprintf("numbers %d to %d were taken over from EVENTS without their messages %d to %d, which INGEST no longer holds; counts and event ids moved to what they say",
			s.first.Seq, s.last.Seq, s.first.Origin.Seq, s.last.Origin.Seq)
		if now := s.state.Chain.Position.Ordinal; now > s.before {
			detail += fmt.Sprintf(", the chain from %d to %d", s.before, now)
		}
		c.Rejects = append(c.Rejects, store.RejectWrite{Key: &k, Subject: b.m.o.Subjects.IngestStream(), Reject: projection.Reject{
			Seq: s.last.Origin.Seq, Time: s.last.Origin.Time, Reason: bus.ReasonTakenOver, Detail: detail,
		}})
	}
	if err := b.m.o.Store.Commit(ctx, c); err != nil {
		return fmt.Errorf("take rows over: %w", err)
	}
	b.pos = c.Position
	b.m.committed.set(b.pos)
	b.commit, b.bytes, b.states = store.Commit{Position: b.pos}, 0, make(map[bus.Key]*takenOver)
	return crash(b.m.seam("some rows taken over"))
}
