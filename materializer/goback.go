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

// resume finds out where to go on, before a round of the stages: it checks that the
// streams are those that the store has read and written so far, and goes back in an
// INGEST that is not what it was. It waits for streams that are missing or do not
// answer. An error says that going on would break a promise, or that ctx has ended.
func (m *Materializer) resume(ctx context.Context) (store.Position, error) {
	var wait backoff
	for {
		pos, err := m.tryResume(ctx)
		var crash *seamError
		switch {
		case errors.As(err, &crash):
			return pos, crash.err
		case err != nil && ctx.Err() != nil:
			return pos, ctx.Err()
		case err == nil || replaced(err) && !hasMoved(err):
			return pos, err
		}
		m.health.set(checkStreams, err.Error())
		if err := wait.wait(ctx); err != nil {
			return pos, err
		}
	}
}

func (m *Materializer) tryResume(ctx context.Context) (store.Position, error) {
	pos, err := m.reader.Position(ctx)
	if err != nil {
		return pos, fmt.Errorf("read the store's position: %w", err)
	}
	known, err := m.o.Store.Bus(ctx)
	if err != nil {
		return pos, fmt.Errorf("read which bus the store belongs to: %w", err)
	}
	if known.Epoch != m.o.Streams.Epoch {
		return pos, fmt.Errorf("%w: the store's epoch is %q, that of EVENTS %q", bus.ErrOtherBus, known.Epoch, m.o.Streams.Epoch)
	}
	m.committed.set(pos)
	m.atHand.Store(pos.EventsSeq) // what a round before this one had at hand is not
	m.ingestID = known.IngestID
	if m.seen == (store.Mark{}) {
		// What a run before this one has seen, and left for longer than a moment.
		marks, err := m.reader.Marks(ctx, pos.IngestSeq, 1)
		if err != nil {
			return pos, fmt.Errorf("read the newest mark: %w", err)
		}
		if len(marks) > 0 {
			m.seen = marks[0]
		}
	}
	in, ev, err := m.askStreams(ctx)
	if err != nil {
		return pos, err
	}
	// EVENTS first: a store that does not belong to it must not be changed.
	if err := m.compareEvents(ctx, pos, ev); err != nil {
		return pos, err
	}
	if err := m.checkRestored(ctx, pos, ev.State.LastSeq); err != nil {
		return pos, err
	}
	switch took, err := m.begin(ctx, pos, in); {
	case err != nil:
		return pos, err
	case took:
		return pos, errors.New("the store has taken a checkpoint") // look once more
	}
	err = m.compareIngest(ctx, in, known.IngestID, markAt(pos), m.seen)
	if err == nil {
		err = beginsBehind(in, pos.IngestSeq)
	}
	var why *movedError
	if !errors.As(err, &why) {
		if err == nil {
			m.seen = markAt(pos)
		}
		return pos, err
	}
	if why.reason == bus.ReasonIngestTrimmed {
		switch back, err := m.comeBack(ctx, pos, in); {
		case err != nil:
			return pos, err
		case back:
			return pos, fmt.Errorf("the store has come back: %w", why) // look once more
		}
	}
	if err := m.sameBus(in, ev, known.IngestID); err != nil {
		return pos, err
	}
	if err := m.goBack(ctx, pos, in, why); err != nil {
		return pos, err
	}
	return pos, fmt.Errorf("the store has gone back in INGEST: %w", why) // look once more
}

// sameBus checks that another INGEST than the store has read is one of this bus.
func (m *Materializer) sameBus(in, ev *jetstream.StreamInfo, known string) error {
	id := in.Config.Metadata[bus.MetaIngestID]
	if id == known {
		return nil
	}
	if id == "" {
		return fmt.Errorf("%w: stream %s: metadata %s is missing", bus.ErrStreamSettings, in.Config.Name, bus.MetaIngestID)
	}
	if err := m.o.Subjects.Check(in.Config, ev.Config); err != nil {
		return err
	}
	if epoch := in.Config.Metadata[bus.MetaEpoch]; epoch != m.o.Streams.Epoch {
		return fmt.Errorf("%w: INGEST is another stream than before, and carries epoch %q, this store %q; restore the one that was there",
			bus.ErrOtherBus, epoch, m.o.Streams.Epoch)
	}
	return nil
}

// goBack commits the place in INGEST where reading goes on, with an entry that says
// why. INGEST is only input, so taking on another one is safe: what was read stays as
// it is, and what comes again is known by its chain, count or id, or by the stretch
// that is left.
func (m *Materializer) goBack(ctx context.Context, pos store.Position, in *jetstream.StreamInfo, why *movedError) error {
	move := &store.Move{IngestID: in.Config.Metadata[bus.MetaIngestID]}
	detail := why.what
	if why.reason == bus.ReasonIngestTrimmed {
		move.To = store.Mark{Seq: in.State.FirstSeq - 1}
		move.Holes = int64(move.To.Seq - pos.IngestSeq)
		if err := m.canNotReadOn(ctx, pos, pos.IngestSeq+1, move.To.Seq); err != nil {
			return err
		}
		detail += fmt.Sprintf(" without having been read; reading goes on at %d", move.To.Seq+1)
	} else {
		what, err := m.place(ctx, pos, in, move)
		if err != nil {
			return err
		}
		detail += what + ". Acknowledged messages that it no longer holds and that were not materialized are lost, unless publishers send them again"
	}
	return m.commitMove(ctx, pos, move, why.reason, detail)
}

// place sets where to go on in an INGEST that is not what was read, and says it in words.
func (m *Materializer) place(ctx context.Context, pos store.Position, in *jetstream.StreamInfo, move *store.Move) (string, error) {
	to, found, err := m.findPlace(ctx, pos, in)
	if err != nil {
		return "", err
	}
	move.To = to
	switch {
	case found && to == markAt(pos):
		return fmt.Sprintf("; it holds what was read up to %d, and is read on from there", to.Seq), nil
	case found:
		return fmt.Sprintf("; its messages up to %d are still those that had been read, and it is read again from %d", to.Seq, to.Seq+1), nil
	}
	what := fmt.Sprintf("; it holds no message by which it is known, and is read from its first one, %d", to.Seq+1)
	if to.Seq == 0 {
		return what, nil
	}
	read, err := m.readBefore(ctx, pos, to.Seq+1)
	if err != nil || read {
		return what, err
	}
	if err := m.canNotReadOn(ctx, pos, 1, to.Seq); err != nil {
		return "", err
	}
	return what + fmt.Sprintf("; whatever stood at 1 to %d is gone without having been read", to.Seq), nil
}

// commitMove makes the move durable, with an entry for the operator.
func (m *Materializer) commitMove(ctx context.Context, pos store.Position, move *store.Move, reason bus.Reason, detail string) error {
	move.Entry = store.RejectWrite{Subject: m.o.Subjects.IngestStream(), Reject: projection.Reject{
		Seq: pos.IngestSeq, Time: pos.IngestTime, Reason: reason, Detail: detail,
	}}
	if err := crash(m.seam("going back")); err != nil {
		return err
	}
	if err := m.o.Store.GoBack(ctx, move); err != nil {
		return err
	}
	if err := crash(m.seam("gone back")); err != nil {
		return err
	}
	m.irregular()
	m.seen = store.Mark{}
	if move.To.Time != 0 {
		m.seen = move.To
	}
	m.log.Error("INGEST is not what it was", slog.String("reason", string(reason)), slog.String("detail", detail))
	return nil
}

// findPlace returns the last message that was read and that INGEST still holds, or, if
// there is none, the place before INGEST's first message.
func (m *Materializer) findPlace(ctx context.Context, pos store.Position, in *jetstream.StreamInfo) (to store.Mark, found bool, err error) {
	holds := func(mark store.Mark) (bool, error) {
		if mark.Time == 0 || mark.Seq < in.State.FirstSeq || mark.Seq > in.State.LastSeq {
			return false, nil
		}
		return m.ingestHolds(ctx, mark)
	}
	below := pos.IngestSeq
	seen, err := holds(m.seen)
	if err != nil {
		return to, false, err
	}
	// If what was seen before is gone, the stream may have grown beyond the position
	// since: then nothing that was read after that was read without a gap.
	if seen || m.seen.Time == 0 || m.seen.Seq < in.State.FirstSeq {
		same, err := holds(markAt(pos))
		if err != nil || same {
			return markAt(pos), same, err
		}
		if seen {
			return m.seen, true, nil
		}
	} else {
		below = m.seen.Seq
	}
	for {
		marks, err := m.reader.Marks(ctx, below, 100)
		if err != nil {
			return to, false, fmt.Errorf("read marks: %w", err)
		}
		for _, mark := range marks {
			if same, err := holds(mark); err != nil || same {
				return mark, same, err
			}
			below = mark.Seq
		}
		if len(marks) == 0 || below < in.State.FirstSeq {
			return store.Mark{Seq: max(in.State.FirstSeq, 1) - 1}, false, nil
		}
	}
}

// readBefore reports whether INGEST's message of that sequence was read before, and so
// all that came before it.
func (m *Materializer) readBefore(ctx context.Context, pos store.Position, seq uint64) (bool, error) {
	raw, err := m.getMsg(ctx, m.o.Streams.Ingest, seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read INGEST %d: %w", seq, err)
	}
	all, err := m.reader.Stretches(ctx)
	if err != nil {
		return false, fmt.Errorf("read what was read before: %w", err)
	}
	all = append(all, store.Stretch{FromTime: pos.Since, LastSeq: pos.IngestSeq, LastTime: pos.IngestTime})
	return heldBy(all, raw.Sequence, raw.Time.UnixNano()), nil
}

// canNotReadOn decides what becomes of a store that can not read on: INGEST no longer
// holds its messages from and to, nor those between, and the store has not read them.
// nil means that it goes on behind them and reports the loss.
//
// That is safe if nobody has read them: then they are lost to all, like a hole. If
// another store has applied them, its sessions have moved on, and EVENTS may hold their
// facts. This store would take over the rows but not the states: it would take a
// publisher's repetition for new, and give its facts a second number. So it stops, and
// only a state from elsewhere brings it back: a backup, since a checkpoint, or the rows'
// own headers, were tried before this is asked (comeBack). What was applied without giving a fact leaves no trace in EVENTS;
// of that the states of two stores may differ then, their tables never.
func (m *Materializer) canNotReadOn(ctx context.Context, pos store.Position, from, to uint64) error {
	last, err := m.eventsLast(ctx)
	if err != nil {
		return err
	}
	stop := func(why string) error {
		return fmt.Errorf("%w: messages %d to %d are gone, and %s: another store has read them; restore this store from a backup that reaches there",
			ErrIngestBegins, from, to, why)
	}
	if last <= pos.EventsSeq {
		return nil
	}
	t, err := m.openTail(ctx, pos.EventsSeq+1, last)
	if err != nil {
		return err
	}
	defer t.close()
	for n := pos.EventsSeq + 1; n <= last; n++ {
		e, err := t.peek(ctx)
		switch {
		case err != nil:
			return err
		case e == nil || e.seq != n:
			return stop(fmt.Sprintf("so is EVENTS %d, which this store has not passed", n))
		case e.ours && e.row.Origin.Seq >= from && e.row.Origin.Seq <= to && e.row.Origin.Time > pos.IngestTime:
			return stop(fmt.Sprintf("EVENTS %d came from message %d", n, e.row.Origin.Seq))
		}
		t.take()
	}
	return nil
}
