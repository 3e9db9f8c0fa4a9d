package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/store"
)

// A session that was forgotten with the wish to overwrite it passes four places, in this
// order: EVENTS and the table (remove.go), the store's log ([store.Store.CutErased]), the
// checkpoints, and INGEST. The last two are the keeper's, here. What is done can be seen
// in each place, so nothing but the wish itself has to survive a crash.

// rewrites reports whether a checkpoint was taken before a session was forgotten that is to
// be overwritten: then two new ones take the place of all that are there.
func (t *trimming) rewrites() bool {
	for _, c := range t.all {
		if !t.holdsForgets(&c) {
			return true
		}
	}
	return false
}

// holdsForgets reports whether a checkpoint was taken after all those forgets.
func (t *trimming) holdsForgets(c *checkpoint.Checkpoint) bool {
	if c.IngestID != t.info.Config.Metadata[bus.MetaIngestID] {
		return false
	}
	for i := range t.erasures {
		if e := &t.erasures[i]; e.Cut && c.Position < e.Until {
			return false
		}
	}
	return true
}

// eraseBelow overwrites in INGEST what is to be, below a sequence that INGEST is about to
// be trimmed to. A hole in INGEST is a loss, so each message becomes the first one
// before it is deleted.
func (m *Materializer) eraseBelow(ctx context.Context, t *trimming, to uint64) error {
	in := m.o.Streams.Ingest
	if t.info.Config.DenyDelete {
		return nil // they go with the trim as they are
	}
	first := t.info.State.FirstSeq
	next := make([]uint64, len(t.erasures)) // the session's next message, 0 before the first look
	for {
		least := -1
		for i := range t.erasures {
			e := &t.erasures[i]
			if next[i] == 0 {
				var err error
				if next[i], err = m.inIngest(ctx, e.Key, first, min(e.Until, to)); err != nil {
					return err
				}
			}
			if next[i] < min(e.Until, to) && (least < 0 || next[i] < next[least]) {
				least = i
			}
		}
		if least < 0 {
			return nil
		}
		seq := next[least]
		if seq > first {
			if err := in.Purge(ctx, jetstream.WithPurgeSequence(seq)); err != nil {
				return fmt.Errorf("trim INGEST below %d: %w", seq, err)
			}
		}
		if err := in.SecureDeleteMsg(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("overwrite INGEST %d: %w", seq, err)
		}
		first, next[least] = seq+1, 0
		if err := crash(m.seam("overwritten in INGEST")); err != nil {
			return err
		}
	}
}

// inIngest returns the first sequence from seq on, below to, under which INGEST holds a
// message of the session; to if there is none.
func (m *Materializer) inIngest(ctx context.Context, k bus.Key, seq, to uint64) (uint64, error) {
	raw, err := m.findMsg(ctx, m.o.Streams.Ingest, max(seq, 1), m.o.Subjects.Ingest(k, "*"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return to, nil
	case err != nil:
		return 0, fmt.Errorf("look for messages of a forgotten session in INGEST: %w", err)
	}
	return min(raw.Sequence, to), nil
}

// endErasures takes sessions off the list of which nothing is left anywhere.
func (m *Materializer) endErasures(ctx context.Context, t *trimming) error {
	if len(t.erasures) == 0 || t.rewrites() {
		return nil
	}
	for i := range t.erasures {
		e := &t.erasures[i]
		if !e.Cut {
			continue
		}
		left, err := m.inIngest(ctx, e.Key, 1, e.Until)
		if err != nil {
			return err
		}
		if left < e.Until {
			continue
		}
		if err := m.o.Store.EndErasure(ctx, e.Key); err != nil {
			return fmt.Errorf("end erasure: %w", err)
		}
		m.log.Info("a forgotten session was overwritten", slog.String("workspace", e.Key.Workspace), slog.String("session", e.Key.Session))
	}
	return nil
}

// pendingErasures returns the erasures, and whether the keeper has anything to do for one.
func (m *Materializer) pendingErasures(ctx context.Context) (all []store.Erasure, due bool, err error) {
	if all, err = m.reader.Erasures(ctx); err != nil {
		return nil, false, fmt.Errorf("list erasures: %w", err)
	}
	for i := range all {
		due = due || all[i].Cut
	}
	return all, due, nil
}
