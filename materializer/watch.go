package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	// watchEvery is how often the server is asked about both streams. With the
	// time an answer may take it keeps Health truthful within 5 s.
	watchEvery   = 2 * time.Second
	watchTimeout = 2 * time.Second
	// stuckAfter is how long messages may wait without the position moving.
	stuckAfter = 5 * time.Second
)

// Ends is where the streams end, as the server says.
type Ends struct {
	IngestLast uint64 // INGEST's last sequence
	EventsLast uint64 // EVENTS' last sequence
}

// Ends asks the server where the streams end. The error is or wraps
// bus.ErrUnavailable if it does not answer. Safe for concurrent use.
func (m *Materializer) Ends(ctx context.Context) (Ends, error) {
	in, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return Ends{}, fmt.Errorf("ask INGEST for its end: %w: %w", bus.ErrUnavailable, err)
	}
	ev, err := m.o.Streams.Events.Info(ctx)
	if err != nil {
		return Ends{}, fmt.Errorf("ask EVENTS for its end: %w: %w", bus.ErrUnavailable, err)
	}
	return Ends{IngestLast: in.State.LastSeq, EventsLast: ev.State.LastSeq}, nil
}

// watch keeps health truthful and stops the materializer when a stream is no
// longer the one that the store belongs to.
func (m *Materializer) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	moved, last := time.Now(), uint64(0)
	for {
		ends, err := m.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrIngestReplaced), errors.Is(err, ErrIngestBehind), errors.Is(err, bus.ErrOtherBus):
			return err
		case err != nil:
			m.log.Warn("the streams can not be looked at", slog.Any("err", err))
		default:
			pos, _ := m.committed.get()
			if pos.IngestSeq != last || pos.IngestSeq >= ends.IngestLast {
				moved, last = time.Now(), pos.IngestSeq
			}
			detail := ""
			if waits := time.Since(moved); waits > stuckAfter {
				detail = fmt.Sprintf("%d messages wait, none was committed for %s", ends.IngestLast-pos.IngestSeq, waits.Round(time.Second))
			}
			m.health.set(checkLag, detail)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks for both streams and compares what their metadata say.
func (m *Materializer) look(ctx context.Context) (Ends, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTimeout, fmt.Errorf("no answer within %s", watchTimeout))
	defer cancel()
	// Before the server is asked: while it answers, messages are stored and
	// committed, and INGEST would seem to end below what the store has read.
	pos, _ := m.committed.get()
	in, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		m.health.set(checkStreams, describe(ctx, "INGEST", err))
		return Ends{}, fmt.Errorf("ask for INGEST: %w", err)
	}
	ev, err := m.o.Streams.Events.Info(ctx)
	if err != nil {
		m.health.set(checkStreams, describe(ctx, "EVENTS", err))
		return Ends{}, fmt.Errorf("ask for EVENTS: %w", err)
	}
	if id := in.Config.Metadata[bus.MetaIngestID]; id != m.o.Streams.IngestID {
		return Ends{}, fmt.Errorf("%w: its id is %q, not %q; stop, and restore the stream that was there, or start with a new data directory", ErrIngestReplaced, id, m.o.Streams.IngestID)
	}
	if epoch := ev.Config.Metadata[bus.MetaEpoch]; epoch != m.o.Streams.Epoch {
		return Ends{}, fmt.Errorf("%w: EVENTS now has epoch %q, this store %q", bus.ErrOtherBus, epoch, m.o.Streams.Epoch)
	}
	if in.State.LastSeq < pos.IngestSeq {
		return Ends{}, fmt.Errorf("%w: it ends at %d, the store is at %d; restore INGEST from a copy that is not older than the store", ErrIngestBehind, in.State.LastSeq, pos.IngestSeq)
	}
	m.health.set(checkStreams, "")
	return Ends{IngestLast: in.State.LastSeq, EventsLast: ev.State.LastSeq}, nil
}

func describe(ctx context.Context, stream string, err error) string {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "stream " + stream + " is missing"
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return "stream " + stream + " does not answer: " + err.Error()
}
