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
		case replaced(err):
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

// look asks for both streams and compares what their metadata say, and the
// messages that the store's position names.
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
	// A stream that was rolled back and has grown since keeps its metadata.
	if err := m.compare(ctx, pos, in, ev); err != nil {
		if !replaced(err) {
			m.health.set(checkStreams, err.Error())
		}
		return Ends{}, err
	}
	settings := ""
	if err := m.o.Subjects.Check(in.Config, ev.Config); err != nil {
		settings = err.Error() // changed while we run
	}
	m.health.set(checkStreams, settings)
	space := ""
	if left := in.Config.MaxBytes - int64(in.State.Bytes); in.Config.MaxBytes > 0 && left < int64(in.Config.MaxMsgSize) {
		space = fmt.Sprintf("INGEST is full: %d of %d bytes are left, publishers are refused", max(left, 0), in.Config.MaxBytes)
	}
	m.health.set(checkSpace, space)
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
