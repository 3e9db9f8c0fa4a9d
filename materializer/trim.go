package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/registry"
	"github.com/skaldbus/skald/materializer/store"
)

// trimming is what one look at INGEST has found.
type trimming struct {
	info   *jetstream.StreamInfo
	now    time.Time // the server's
	pos    store.Position
	full   bool
	limit  uint64                  // no further than this, for other reasons than checkpoints
	holder registry.Entry          // the store with the lowest position
	bucket *checkpoint.Bucket      // opened when it is needed
	all    []checkpoint.Checkpoint // newest first
	list   []checkpoint.Checkpoint // those of this INGEST

	erasures []store.Erasure
}

// lookAtIngest finds out how far INGEST may be trimmed, checkpoints apart. The
// error is errNotNow if it is not the time for it.
func (m *Materializer) lookAtIngest(ctx context.Context) (*trimming, error) {
	pos, _ := m.committed.get() // before the server is asked
	info, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for INGEST: %w", err)
	}
	last, err := m.eventsLast(ctx)
	if err != nil {
		return nil, err
	}
	own, reg, ok := m.registered()
	if !ok || own.IngestID != info.Config.Metadata[bus.MetaIngestID] || last < pos.EventsSeq || pos.IngestSeq > info.State.LastSeq {
		return nil, errNotNow
	}
	t := &trimming{info: info, now: info.TimeStamp, pos: pos, limit: pos.IngestSeq}
	if t.now.IsZero() {
		t.now = time.Now()
	}
	c := &info.Config
	t.full = c.MaxBytes > 0 && float64(info.State.Bytes) > fullShare*float64(c.MaxBytes)
	entries, err := reg.List(ctx)
	if err != nil {
		return nil, err
	}
	m.noteSilent(entries, own.ID, t.now)
	for _, e := range entries {
		if e.IngestID != own.IngestID {
			e.Position = 0 // it will read this INGEST from its beginning
		}
		if t.holder.ID == "" || e.Position < t.holder.Position {
			t.holder = e
		}
		t.limit = min(t.limit, e.Position)
	}
	if !t.full && m.o.IngestKeep > 0 {
		old, err := m.positionAt(ctx, t.now.Add(-m.o.IngestKeep).UnixNano())
		if err != nil {
			return nil, err
		}
		t.limit = min(t.limit, old)
	}
	return t, nil
}

// stuck returns an error if INGEST is nearly full and a store that lags, or will never
// come back, is why it can not be trimmed.
func (t *trimming) stuck() error {
	if !t.full || t.holder.Position >= t.pos.IngestSeq {
		return nil
	}
	return fmt.Errorf("INGEST is nearly full and is not trimmed beyond %d, where store %s (%s) is: start it, or `skald replicas rm %s` if it will never come back",
		t.holder.Position, t.holder.ID, t.holder.Label, t.holder.ID)
}

// positionAt returns a message that was stored at that time or earlier (ns since 1970), by
// the marks that the store keeps; 0 if it knows none.
func (m *Materializer) positionAt(ctx context.Context, time int64) (uint64, error) {
	below := uint64(bus.MaxSeq)
	for {
		marks, err := m.reader.Marks(ctx, below, 100)
		if err != nil {
			return 0, fmt.Errorf("read marks: %w", err)
		}
		for _, mark := range marks {
			if mark.Time <= time {
				return mark.Seq, nil
			}
			below = mark.Seq
		}
		if len(marks) == 0 {
			return 0, nil
		}
	}
}

// trim removes INGEST's beginning, as far as both of the two newest checkpoints allow, which
// are read back first.
func (m *Materializer) trim(ctx context.Context, t *trimming) error {
	if len(t.list) < 2 {
		return nil
	}
	to := min(t.limit, t.list[0].Position, t.list[1].Position)
	first := t.info.State.FirstSeq
	if to <= first || to > t.info.State.LastSeq {
		return nil
	}
	for i := range t.list[:2] {
		c := &t.list[i]
		if err := t.bucket.Verify(ctx, c); err != nil {
			if !errors.Is(err, checkpoint.ErrDamaged) {
				return err
			}
			// It is of no use, and another one takes its place.
			m.log.Error("a checkpoint is damaged and does not count", slog.Any("err", err))
			m.damaged[c.Name] = true
			return nil
		}
		// A stream that was set back meanwhile would lose what nobody has read.
		if same, err := m.holdsPosition(ctx, c); err != nil || !same {
			return err
		}
	}
	if err := crash(m.seam("before trim")); err != nil {
		return err
	}
	if err := m.eraseBelow(ctx, t, to); err != nil {
		return err
	}
	if err := m.o.Streams.Ingest.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return fmt.Errorf("trim INGEST below %d: %w", to, err)
	}
	m.stats.trims.Add(1)
	m.stats.trimmed.Add(int64(to - first))
	m.log.Info("INGEST trimmed", slog.Uint64("from", first), slog.Uint64("below", to), slog.Bool("nearly_full", t.full))
	return crash(m.seam("trimmed"))
}
