package materializer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// verifyStart checks, before the first message is projected, that the streams are
// those that the store has read and written so far: by their metadata, and by the
// messages that the position names, since a stream that was rolled back and has
// grown since keeps its metadata.
func (m *Materializer) verifyStart(ctx context.Context, pos store.Position) error {
	known, err := m.o.Store.Bus(ctx)
	if err != nil {
		return fmt.Errorf("read which bus the store belongs to: %w", err)
	}
	if known.Epoch != m.o.Streams.Epoch {
		return fmt.Errorf("%w: the store's epoch is %q, that of EVENTS %q", bus.ErrOtherBus, known.Epoch, m.o.Streams.Epoch)
	}
	if known.IngestID != m.o.Streams.IngestID {
		return fmt.Errorf("%w: its id is %q, not %q; restore the stream that was there, or start with a new data directory", ErrIngestReplaced, m.o.Streams.IngestID, known.IngestID)
	}
	var wait backoff
	for {
		err := m.verifyPositions(ctx, pos)
		if err == nil || ctx.Err() != nil || replaced(err) {
			return err
		}
		m.health.set(checkStreams, err.Error())
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}

// replaced reports whether err says that a stream is not the one that the store
// belongs to, or not in a state that belongs to the store's.
func replaced(err error) bool {
	for _, fatal := range []error{bus.ErrOtherBus, ErrIngestReplaced, ErrIngestBehind, ErrEventsDiffer, ErrEventsGone} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}

// verifyPositions asks for both streams and compares them with the store's position.
func (m *Materializer) verifyPositions(ctx context.Context, pos store.Position) error {
	in, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask for INGEST: %w", err)
	}
	ev, err := m.o.Streams.Events.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask for EVENTS: %w", err)
	}
	return m.compare(ctx, pos, in, ev)
}

// compare checks what the server has said of both streams against a position that
// was committed before it was asked.
func (m *Materializer) compare(ctx context.Context, pos store.Position, in, ev *jetstream.StreamInfo) error {
	if err := m.compareIngest(ctx, pos, in); err != nil {
		return err
	}
	if err := m.sameEvents(ev); err != nil {
		return err
	}
	if err := m.verifyReach(ev); err != nil {
		return err
	}
	// Rows beyond EVENTS' end are put back by the worker before anything else. What
	// EVENTS holds has to be theirs in any case.
	return m.compareLastRow(ctx, min(ev.State.LastSeq, pos.EventsSeq))
}

// verifyReach checks that a bounded EVENTS still holds the table's next number. Where
// nothing but a removal takes messages out, numbers that are gone are passed.
func (m *Materializer) verifyReach(info *jetstream.StreamInfo) error {
	// Not the position of before the question: EVENTS may have moved on with it.
	pos, _ := m.committed.get()
	c := &info.Config
	if bounded := c.MaxAge > 0 || c.MaxBytes > 0 || c.MaxMsgs > 0; bounded && info.State.FirstSeq > pos.EventsSeq+1 {
		return fmt.Errorf("%w: the table is at %d, EVENTS is bounded and begins at %d; restore the store from a backup that reaches there",
			ErrEventsGone, pos.EventsSeq, info.State.FirstSeq)
	}
	return nil
}

// sameEvents returns bus.ErrOtherBus if EVENTS is not that of this bus any more: made
// anew meanwhile, it has lost no end, and must not be given one.
func (m *Materializer) sameEvents(info *jetstream.StreamInfo) error {
	if epoch := info.Config.Metadata[bus.MetaEpoch]; epoch != m.o.Streams.Epoch {
		return fmt.Errorf("%w: EVENTS now has epoch %q, this store %q", bus.ErrOtherBus, epoch, m.o.Streams.Epoch)
	}
	return nil
}

// compareIngest checks that INGEST is still the stream that the store was reading, and
// holds the message that the position names.
func (m *Materializer) compareIngest(ctx context.Context, pos store.Position, info *jetstream.StreamInfo) error {
	if id := info.Config.Metadata[bus.MetaIngestID]; id != m.o.Streams.IngestID {
		return fmt.Errorf("%w: its id is %q, not %q; stop, and restore the stream that was there, or start with a new data directory",
			ErrIngestReplaced, id, m.o.Streams.IngestID)
	}
	if info.State.LastSeq < pos.IngestSeq {
		return fmt.Errorf("%w: it ends at %d, the store is at %d; restore INGEST from a copy that is not older than the store",
			ErrIngestBehind, info.State.LastSeq, pos.IngestSeq)
	}
	if pos.IngestSeq > 0 {
		switch raw, err := m.getMsg(ctx, m.o.Streams.Ingest, pos.IngestSeq, false); {
		case errors.Is(err, jetstream.ErrMsgNotFound): // trimmed, or a hole: the reader sees to it
		case err != nil:
			return fmt.Errorf("read INGEST %d: %w", pos.IngestSeq, err)
		default:
			h := sha256.Sum256(raw.Data)
			if raw.Time.UnixNano() != pos.IngestTime || !bytes.Equal(h[:len(pos.IngestHash)], pos.IngestHash[:]) {
				return fmt.Errorf("%w: message %d is another than the store has read: the stream was rolled back and has grown since; restore the store from a backup that is as old",
					ErrIngestReplaced, pos.IngestSeq)
			}
		}
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
	raw, err := m.getMsg(ctx, m.o.Streams.Events, row.Seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // aged out, or its session is being removed
	}
	if err != nil {
		return fmt.Errorf("read EVENTS %d: %w", row.Seq, err)
	}
	e := m.parseEntry(raw.Sequence, raw.Subject, raw.Header, raw.Data)
	if !e.ours || e.row.Key != row.Key || e.row.Origin != row.Origin || !bytes.Equal(e.row.Data, row.Data) {
		return fmt.Errorf("%w: number %d is another message in EVENTS than in the table; the streams were replaced or restored from another time: bring back the streams or the store that belong together",
			ErrEventsDiffer, row.Seq)
	}
	return nil
}
