package materializer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// replaced reports whether err says that a stream is not the one that the store
// belongs to, or not in a state that belongs to the store's: trying again is not the
// answer.
func replaced(err error) bool {
	for _, fatal := range []error{bus.ErrOtherBus, ErrIngestBegins, ErrEventsDiffer, ErrEventsGone, ErrRestored, store.ErrRowsMissing, store.ErrBadCommit} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return hasMoved(err)
}

// describe says in an operator's words why a stream was not to be asked.
func describe(ctx context.Context, stream string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("stream %s is missing: %w", stream, err)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("stream %s does not answer: %w", stream, err)
}

// askStreams asks the server for both streams.
func (m *Materializer) askStreams(ctx context.Context) (in, ev *jetstream.StreamInfo, err error) {
	if in, err = m.o.Streams.Ingest.Info(ctx); err != nil {
		return nil, nil, describe(ctx, "INGEST", err)
	}
	if ev, err = m.o.Streams.Events.Info(ctx); err != nil {
		return nil, nil, describe(ctx, "EVENTS", err)
	}
	return in, ev, nil
}

// compareEvents checks what the server has said of EVENTS against a position that was
// committed before it was asked.
func (m *Materializer) compareEvents(ctx context.Context, pos store.Position, ev *jetstream.StreamInfo) error {
	if err := m.reachesOn(ev); err != nil {
		return err
	}
	// Rows beyond EVENTS' end are put back by the worker before anything else. What
	// EVENTS holds has to be theirs in any case.
	return m.compareLastRow(ctx, min(ev.State.LastSeq, pos.EventsSeq))
}

// reachesOn checks what is known of EVENTS without reading it: that it is this bus's, and
// goes on from the table.
func (m *Materializer) reachesOn(ev *jetstream.StreamInfo) error {
	if err := m.sameEvents(ev); err != nil {
		return err
	}
	return m.verifyReach(ev)
}

// verifyReach checks that a bounded EVENTS still holds the table's next number, or that
// it is at hand and on its way into the table. Where nothing but a removal takes messages
// out, numbers that are gone are passed.
func (m *Materializer) verifyReach(info *jetstream.StreamInfo) error {
	// Not the position of before the question: EVENTS may have moved on with it.
	pos, _ := m.committed.get()
	reach := max(pos.EventsSeq, m.atHand.Load())
	if bounded(&info.Config) && info.State.FirstSeq > reach+1 {
		return fmt.Errorf("%w: the table is at %d, EVENTS is bounded and begins at %d; restore the store from a backup that reaches there",
			ErrEventsGone, reach, info.State.FirstSeq)
	}
	return nil
}

// sameEvents returns bus.ErrOtherBus if EVENTS is not that of this bus any more: made
// anew meanwhile, it has lost no end, and must not be given one.
func (m *Materializer) sameEvents(info *jetstream.StreamInfo) error {
	if epoch := info.Config.Metadata[bus.MetaEpoch]; epoch != m.o.Streams.Epoch {
		return fmt.Errorf("%w: EVENTS now has epoch %q, this store %q; stop, and run skald repair, which tells whether they belong together and what to do", bus.ErrOtherBus, epoch, m.o.Streams.Epoch)
	}
	return nil
}

// compareLastRow checks that the message under the number of the table's last
// present row up to a number is that row: by origin and data.
func (m *Materializer) compareLastRow(ctx context.Context, upTo uint64) error {
	row, err := m.reader.LastRow(ctx, upTo)
	if err != nil {
		return fmt.Errorf("read the table's last row: %w", err)
	}
	if row == nil {
		return nil
	}
	e, err := m.entryAt(ctx, m.o.Streams.Events, row.Seq)
	if err != nil {
		return err
	}
	if e == nil {
		return nil // aged out, or its session is being removed
	}
	if !e.ours || e.row.Key != row.Key || e.row.Origin != row.Origin || !bytes.Equal(e.row.Data, row.Data) {
		return fmt.Errorf("%w: number %d is another message in EVENTS than in the table; EVENTS was restored from another time and has gone on, or replaced: stop, and run skald repair, which shows what differs and sets it right",
			ErrEventsDiffer, row.Seq)
	}
	return nil
}
