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
	// cutEvery is how soon the store's log is tried again that a reader holds.
	cutEvery = 200 * time.Millisecond
	// sweepStep is how many event ids are looked at each time, sweepEvery apart.
	sweepStep = 1000
)

// removeLoop takes the rows of forgotten sessions out of EVENTS and the table,
// rows below the oldest kept number out of the table, and expired ids out of
// the store, and has the store's log cut when it has grown: in steps so small that neither writer nor stream stalls. The rows
// are the work list, so a step that was cut short is taken again; what EVENTS still
// holds of a forgotten session that has none is looked for at last. Then, once a round and
// after each interruption, it is looked whether EVENTS holds again what was removed.
func (m *Materializer) removeLoop(ctx context.Context) error {
	tick := time.NewTicker(removeEvery)
	defer tick.Stop()
	var sweep store.SweepCursor
	var again int64 // the tombstone to go on behind
	var wait backoff
	for {
		more, err := m.removeSome(ctx)
		if err == nil && !more && (again > 0 || m.lookAgain.Swap(false)) {
			again, err = m.findReturned(ctx, again)
			more = true
			if err != nil {
				m.lookAgain.Store(true)
			}
		}
		if err == nil && !more {
			sweep, err = m.sweep(ctx, sweep)
		}
		if err == nil && !more {
			err = m.o.Store.CutLog(ctx)
		}
		cut := true
		if err == nil && !more {
			cut, err = m.o.Store.CutErased(ctx)
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
		if !cut {
			if err := pause(ctx, cutEvery); err != nil {
				return err
			}
			continue
		}
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
	if f, ok, err := m.o.Store.NextForgotten(ctx); err != nil {
		return false, fmt.Errorf("list forgotten sessions: %w", err)
	} else if ok {
		return true, m.removeRest(ctx, f)
	}
	n, err := m.o.Store.PruneStep(ctx, pruneStep)
	if err != nil {
		return false, fmt.Errorf("prune rows: %w", err)
	}
	return n > 0, nil
}

// removeRest takes what is left of a forgotten session out of EVENTS: messages whose
// rows were pruned before it was forgotten. It looks no further than the table reaches:
// what comes after that is copied, and is a row then.
func (m *Materializer) removeRest(ctx context.Context, f store.Forgotten) error {
	pos, _ := m.committed.get()
	seq := uint64(1)
	for range removeStep {
		e, err := m.factFrom(ctx, f.Key, seq, pos.EventsSeq)
		if err != nil {
			return err
		}
		if e == nil {
			if err := m.o.Store.EndRemoval(ctx, f.Key); err != nil {
				return fmt.Errorf("end removal: %w", err)
			}
			return nil
		}
		item := store.RemovalItem{Seq: e.seq, Key: f.Key, Origin: e.row.Origin, Erase: f.Erase}
		if err := m.removeMessage(ctx, e.seq, &item); err != nil {
			return err
		}
		seq = e.seq + 1
	}
	return nil
}

// factFrom returns the first fact of a forgotten session that EVENTS holds from seq on, up
// to a number; nil if there is none. What no materializer wrote only takes a number, and
// is passed.
func (m *Materializer) factFrom(ctx context.Context, k bus.Key, seq, to uint64) (*entry, error) {
	for {
		raw, err := m.findMsg(ctx, m.o.Streams.Events, seq, m.o.Subjects.Event(k, "*"))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > to {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for messages of a forgotten session: %w", err)
		}
		if e := m.parseEntry(raw.Sequence, raw.Subject, raw.Header, raw.Data); e.ours {
			return e, nil
		}
		seq = raw.Sequence + 1
	}
}

// findReturned looks at the next tombstones and has those removed again of which EVENTS
// holds a message, below what the table will copy anyway: EVENTS was set back to
// before they were forgotten. It returns where to go on, 0 at the end.
func (m *Materializer) findReturned(ctx context.Context, after int64) (next int64, err error) {
	keys, next, err := m.reader.Tombstones(ctx, after, removeStep)
	if err != nil {
		return after, fmt.Errorf("list forgotten sessions: %w", err)
	}
	pos, _ := m.committed.get()
	for _, k := range keys {
		e, err := m.factFrom(ctx, k, 1, pos.EventsSeq)
		if err != nil {
			return after, err
		}
		if e == nil {
			continue
		}
		m.log.Warn("EVENTS holds a forgotten session again, which is removed", slog.String("workspace", k.Workspace), slog.String("session", k.Session))
		if err := m.o.Store.RemoveAgain(ctx, k); err != nil {
			return after, fmt.Errorf("remove a forgotten session again: %w", err)
		}
	}
	return next, nil
}

// removeMessage deletes one number from EVENTS, if the message under it is still
// that of the row (a void message if item is nil). Numbers that are gone already
// are fine. If no fact comes behind it in EVENTS, what it came from is written down
// first: without that nobody could tell whether a message that was appended to
// its end still has to be.
func (m *Materializer) removeMessage(ctx context.Context, seq uint64, item *store.RemovalItem) error {
	e, err := m.entryAt(ctx, m.o.Streams.Events, seq)
	if err != nil || e == nil {
		return err
	}
	if item == nil && !e.void || item != nil && (!e.ours || e.row.Key != item.Key) {
		m.log.Error("a message to be removed from EVENTS is another one; it stays", slog.Uint64("seq", seq))
		return nil
	}
	last, err := m.lastFact(ctx, seq)
	if err != nil {
		return err
	}
	if last {
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
	remove := m.o.Streams.Events.DeleteMsg
	if item != nil && item.Erase {
		remove = m.o.Streams.Events.SecureDeleteMsg
	}
	if err := remove(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		// A message that another materializer deleted meanwhile is no error
		// either, but the server words that in several ways: look again.
		if _, gone := m.getMsg(ctx, m.o.Streams.Events, seq, false); !errors.Is(gone, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("delete EVENTS %d: %w", seq, err)
		}
	}
	return nil
}

// lastFact reports whether EVENTS holds no fact behind a number, and no void message, with
// whose removal the end is written down.
func (m *Materializer) lastFact(ctx context.Context, seq uint64) (bool, error) {
	for {
		raw, err := m.getMsg(ctx, m.o.Streams.Events, seq+1, true)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for EVENTS after %d: %w", seq, err)
		}
		if e := m.parseEntry(raw.Sequence, raw.Subject, raw.Header, raw.Data); e.ours || e.void {
			return false, nil
		}
		seq = raw.Sequence
	}
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

// removedEnd returns the origin of the number seq, which was EVENTS' last fact and is
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
