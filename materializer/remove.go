package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// removeStep is how many rows one step removes: about 2 ms of the writer.
	removeStep = 100
	pruneStep  = 200
	// removeEvery looks for work that nobody announced: after a start, or rows
	// of a forgotten session that were copied.
	removeEvery = 5 * time.Second
	// sweepStep is how many event ids are looked at each time, sweepEvery apart.
	sweepStep = 1000
)

// removeLoop takes the rows of forgotten sessions out of EVENTS and the table,
// rows below the oldest kept number out of the table, and expired ids out of
// the store: in steps so small that neither writer nor stream stalls. The rows
// are the work list, so a step that was cut short is taken again.
func (m *Materializer) removeLoop(ctx context.Context) error {
	tick := time.NewTicker(removeEvery)
	defer tick.Stop()
	var sweep store.SweepCursor
	var wait backoff
	for {
		more, err := m.removeSome(ctx)
		if err == nil && !more {
			sweep, err = m.sweep(ctx, sweep)
		}
		var crash *seamError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &crash):
			return crash.err
		case err != nil:
			m.health.set(checkRemovals, err.Error())
			m.log.Warn("removing is interrupted", slog.Any("err", err))
			if err := wait.wait(ctx); err != nil {
				return err
			}
			continue
		case more:
			m.health.set(checkRemovals, "")
			wait.reset()
			continue
		}
		m.health.set(checkRemovals, "")
		select {
		case <-m.removalsDue:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// removeSome takes one step and reports whether there may be another.
func (m *Materializer) removeSome(ctx context.Context) (bool, error) {
	items, err := m.o.Store.NextRemovals(ctx, removeStep)
	if err != nil {
		return false, fmt.Errorf("list rows to remove: %w", err)
	}
	if len(items) > 0 {
		seqs := make([]uint64, 0, len(items))
		for i := range items {
			if err := m.removeMessage(ctx, items[i].Seq, &items[i]); err != nil {
				return false, err
			}
			seqs = append(seqs, items[i].Seq)
		}
		if err := crash(m.seam("removed from EVENTS")); err != nil {
			return false, err
		}
		if err := m.o.Store.Removed(ctx, seqs); err != nil {
			return false, fmt.Errorf("remove rows: %w", err)
		}
		return true, nil
	}
	n, err := m.o.Store.PruneStep(ctx, pruneStep)
	if err != nil {
		return false, fmt.Errorf("prune rows: %w", err)
	}
	return n > 0, nil
}

// removeMessage deletes one number from EVENTS, if the message under it is still
// that of the row (a void message if item is nil). Numbers that are gone already
// are fine. If it is EVENTS' last message, what it came from is written down
// first: without that nobody could tell whether a message that was appended to
// its end still has to be.
func (m *Materializer) removeMessage(ctx context.Context, seq uint64, item *store.RemovalItem) error {
	raw, err := m.getMsg(ctx, m.o.Streams.Events, seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for EVENTS %d: %w", seq, err)
	}
	e := m.parseEntry(raw.Sequence, raw.Subject, raw.Header, raw.Data)
	if item == nil && !e.void || item != nil && (!e.ours || e.row.Key != item.Key) {
		m.log.Error("a message to be removed from EVENTS is another one; it stays", slog.Uint64("seq", seq))
		return nil
	}
	last, err := m.eventsLast(ctx)
	if err != nil {
		return err
	}
	if seq == last {
		origin := e.row.Origin
		if item == nil {
			// What stood there before has been committed here, and so has all that
			// INGEST held up to our position.
			pos, _ := m.committed.get()
			origin = bus.Origin{Seq: pos.IngestSeq, Time: pos.IngestTime, Index: math.MaxInt32}
		}
		if err := m.writeRemovedEnd(ctx, seq, origin); err != nil {
			return err
		}
	}
	if err := m.o.Streams.Events.DeleteMsg(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		// A message that another materializer deleted meanwhile is no error
		// either, but the server words that in several ways: look again.
		if _, gone := m.getMsg(ctx, m.o.Streams.Events, seq, false); !errors.Is(gone, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("delete EVENTS %d: %w", seq, err)
		}
	}
	return nil
}

// sweep looks at the next event ids, in the order of their keys.
func (m *Materializer) sweep(ctx context.Context, at store.SweepCursor) (store.SweepCursor, error) {
	pos, _ := m.committed.get()
	next, _, err := m.o.Store.SweepIDs(ctx, at, sweepStep, pos.HighestTime-m.o.Streams.Horizon.Nanoseconds())
	if err != nil {
		return at, fmt.Errorf("sweep event ids: %w", err)
	}
	return next, nil
}

// removedEnd returns the origin of the number seq, which was EVENTS' last and is
// gone; zero if nobody wrote it down.
func (m *Materializer) removedEnd(ctx context.Context, seq uint64) (bus.Origin, error) {
	bucket, err := m.o.JS.ObjectStore(ctx, m.o.Subjects.StateBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return bus.Origin{}, nil
	}
	if err != nil {
		return bus.Origin{}, fmt.Errorf("open %s: %w", m.o.Subjects.StateBucket(), err)
	}
	return readRemovedEnd(ctx, bucket, seq)
}
