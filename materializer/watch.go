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
	// SilentStores counts the other stores of the bus that are listed and were not heard of
	// at the last look; see [Materializer.Silent].
	SilentStores int
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
	return Ends{IngestLast: in.State.LastSeq, EventsLast: ev.State.LastSeq, SilentStores: len(m.Silent())}, nil
}

// watch keeps health truthful. It stops the materializer when EVENTS is no longer the
// one that the store belongs to, and the reader when INGEST is no longer what was read.
func (m *Materializer) watch(ctx context.Context, stopReading context.CancelCauseFunc) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	moved, last := time.Now(), uint64(0)
	for {
		m.noteIrregular(ctx)
		ends, err := m.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case hasMoved(err):
			stopReading(err) // and when what was read is committed, the round ends
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

// look asks for both streams and compares what their metadata say and what they hold with
// the store's position.
func (m *Materializer) look(ctx context.Context) (Ends, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTimeout, fmt.Errorf("no answer within %s", watchTimeout))
	defer cancel()
	// Before the server is asked: while it answers, messages are stored and
	// committed, and INGEST would seem to end below what the store has read.
	pos, _ := m.committed.get()
	in, ev, err := m.askStreams(ctx)
	if err != nil {
		m.health.set(checkStreams, err.Error())
		return Ends{}, err
	}
	if err := m.stillOurs(ctx, pos, in, ev); err != nil {
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
	if err := m.measure(ctx, in, ev); err != nil {
		m.health.set(checkStreams, err.Error())
		return Ends{}, err
	}
	return Ends{IngestLast: in.State.LastSeq, EventsLast: ev.State.LastSeq}, nil
}

// measure notes how far the store is behind. The age is measured by the server's
// clock, which has stamped the message, so that clocks need not agree.
func (m *Materializer) measure(ctx context.Context, in, ev *jetstream.StreamInfo) error {
	pos, _ := m.committed.get()
	l := Lag{
		At: time.Now(), IngestLast: in.State.LastSeq, IngestBytes: in.State.Bytes, IngestMax: in.Config.MaxBytes,
		EventsLast: ev.State.LastSeq,
	}
	if in.State.LastSeq > pos.IngestSeq {
		l.Messages = in.State.LastSeq - pos.IngestSeq
		next, err := m.getMsg(ctx, m.o.Streams.Ingest, pos.IngestSeq+1, true)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // they are gone
		case err != nil:
			return fmt.Errorf("ask INGEST for the oldest message that waits: %w", err)
		default:
			l.Age = max(0, in.TimeStamp.Sub(next.Time))
		}
	}
	m.lag.Store(&l)
	detail := ""
	if m.o.MaxLag > 0 && l.Age > m.o.MaxLag {
		detail = fmt.Sprintf("%d messages wait, the oldest for %s, longer than %s", l.Messages, l.Age.Round(time.Second), m.o.MaxLag)
	}
	m.health.set(checkBound, detail)
	return nil
}

// noteIrregular keeps health degraded as long as an irregularity of INGEST has not been
// acknowledged.
func (m *Materializer) noteIrregular(ctx context.Context) {
	i, err := m.reader.Irregular(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("the store's irregularities can not be read", slog.Any("err", err))
		}
		return
	}
	detail := ""
	if i.Entries > 0 {
		detail = fmt.Sprintf("%d to acknowledge by discarding rejects; the newest, %d: %s", i.Entries, i.Newest, i.Detail)
	}
	m.health.set(checkLoss, detail)
}
