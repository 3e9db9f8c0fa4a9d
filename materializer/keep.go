package materializer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/checkpoint"
)

const (
	// keepEvery is how often it is looked whether INGEST can be trimmed.
	keepEvery = 5 * time.Second
	// checkpointEvery is a checkpoint's least distance from the one before,
	// checkpointRest how many times as long as that one has taken, and checkpointShare how
	// much of the keep window it is: it costs time that grows with the number of sessions.
	checkpointEvery = 5 * time.Second
	checkpointRest  = 20
	checkpointShare = 24
	// dueEvery is how often a checkpoint that is due is tried: until it is written, a loss
	// of the store would be a loss of what INGEST does not hold.
	dueEvery = 200 * time.Millisecond
	// fullShare is from what part of its bytes on INGEST is trimmed as far as is safe,
	// whatever the keep window says.
	fullShare = 0.8
	// MaxIngestKeep is the longest keep window: the marks by which the age of a position
	// is known go back 30 days.
	MaxIngestKeep = 28 * 24 * time.Hour
)

// keepLoop writes checkpoints and trims INGEST until ctx ends. What fails is tried again.
func (m *Materializer) keepLoop(ctx context.Context) error {
	tick := time.NewTicker(m.keepEvery)
	defer tick.Stop()
	soon := time.NewTicker(dueEvery)
	defer soon.Stop()
	due, asked, said := false, false, ""
	for {
		select {
		case <-tick.C:
		case <-soon.C:
			if asked && !due {
				continue
			}
		case <-m.checkpointDue:
			due = true
		case <-ctx.Done():
			return nil
		}
		if m.notServing.Load() != nil || !m.working.Load() {
			continue
		}
		var err error
		if !asked {
			var owed bool
			if owed, err = m.owesCheckpoint(ctx); err == nil {
				asked, due = true, due || owed
			}
		}
		if err == nil {
			err = m.keep(ctx, due)
		}
		var crash *seamError
		switch {
		case errors.Is(err, errNotNow):
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &crash):
			return crash.err
		case err != nil:
			m.health.set(checkCheckpoints, err.Error())
			if err.Error() != said {
				m.log.Warn("no checkpoint is written, or INGEST is not trimmed", slog.Any("err", err))
			}
			said = err.Error()
		default:
			due, said = false, ""
			m.health.set(checkCheckpoints, "")
		}
	}
}

// errNotNow: the streams are not as the store knows them, and others find out what that means.
var errNotNow = errors.New("not the time for it")

// keep writes a checkpoint if it is due or something can be trimmed for it, and trims.
func (m *Materializer) keep(ctx context.Context, due bool) error {
	t, err := m.lookAtIngest(ctx)
	if err != nil {
		return err
	}
	gain := m.o.Trim && t.limit > t.info.State.FirstSeq
	var erasing bool
	if t.erasures, erasing, err = m.pendingErasures(ctx); err != nil {
		return err
	}
	if !due && !gain && !erasing {
		return t.stuck()
	}
	if t.bucket, err = checkpoint.Open(ctx, m.o.JS, m.o.Subjects, m.replicas()); err != nil {
		return err
	}
	list, damaged, err := t.bucket.List(ctx)
	if err != nil {
		return err
	}
	for _, d := range damaged {
		m.log.Error("a checkpoint is damaged and does not count", slog.Any("err", d))
	}
	t.all, t.list = list, m.ofThisBus(list, t.info)
	anew := due || erasing && t.rewrites()
	if anew || gain && m.wantsCheckpoint(t) {
		if err := m.writeCheckpoint(ctx, t, anew); err != nil {
			return err
		}
	}
	if gain {
		if err := m.trim(ctx, t); err != nil {
			return err
		}
	}
	return m.endErasures(ctx, t)
}

// ofThisBus returns the checkpoints that belong to the bus and its INGEST, and are not known
// to be damaged.
func (m *Materializer) ofThisBus(list []checkpoint.Checkpoint, info *jetstream.StreamInfo) []checkpoint.Checkpoint {
	return slices.DeleteFunc(slices.Clone(list), func(c checkpoint.Checkpoint) bool {
		return m.damaged[c.Name] || c.Epoch != m.o.Streams.Epoch || c.Contract != bus.Contract || c.IngestID != info.Config.Metadata[bus.MetaIngestID]
	})
}

// wantsCheckpoint reports whether another checkpoint would let more be trimmed, and the
// last one is old enough.
func (m *Materializer) wantsCheckpoint(t *trimming) bool {
	if len(t.list) >= 2 && min(t.list[0].Position, t.list[1].Position) >= t.limit {
		return false
	}
	if len(t.list) == 0 {
		return true
	}
	if t.list[0].Position > t.pos.IngestSeq {
		return false // another store has gone further, and writes the next one
	}
	apart := max(m.checkpointEvery, m.checkpointRest*m.checkpointTook)
	if !t.full {
		apart = max(apart, m.o.IngestKeep/checkpointShare)
	}
	return t.now.Sub(t.list[0].Made) >= apart
}

// owesCheckpoint reports whether the store has gone back in INGEST before, and was stopped
// before a checkpoint of what INGEST no longer holds was written.
func (m *Materializer) owesCheckpoint(ctx context.Context) (bool, error) {
	before, err := m.reader.Stretches(ctx)
	if err != nil || len(before) == 0 {
		return false, err
	}
	info, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for INGEST: %w", err)
	}
	bucket, err := checkpoint.Find(ctx, m.o.JS, m.o.Subjects)
	if errors.Is(err, bus.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	list, _, err := bucket.List(ctx)
	if err != nil {
		return false, err
	}
	for _, c := range m.ofThisBus(list, info) {
		if same, err := m.holdsPosition(ctx, &c); err != nil || same {
			return false, err
		}
	}
	return true, nil
}

// writeCheckpoint writes one, and removes those before the two newest. anew makes it
// independent of those before.
func (m *Materializer) writeCheckpoint(ctx context.Context, t *trimming, anew bool) error {
	began := time.Now()
	dir, err := m.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the next start removes it
	o := checkpoint.WriteOptions{
		Dir: dir, Horizon: m.o.Streams.Horizon.Nanoseconds(), Reader: m.reader,
		Seam: func(name string) error { return crash(m.seam("checkpoint: " + name)) },
	}
	if len(t.list) > 0 && !anew {
		// Its ids are those that this store knows only if both have read the same INGEST.
		base := t.list[0]
		same, err := m.holdsPosition(ctx, &base)
		if err != nil {
			return err
		}
		if same && base.Position <= t.pos.IngestSeq {
			o.Base = &base
		}
	}
	c, err := t.bucket.Write(ctx, o)
	if err != nil {
		return err
	}
	m.checkpointTook = time.Since(began)
	m.stats.checkpoints.Add(1)
	t.all = append([]checkpoint.Checkpoint{c}, t.all...)
	t.list = append([]checkpoint.Checkpoint{c}, t.list...)
	m.log.Info("checkpoint written", slog.Uint64("ingest_seq", c.Position), slog.Uint64("seq", c.Number),
		slog.Int64("bytes", c.State.Size), slog.Duration("took", m.checkpointTook))
	if err := crash(m.seam("checkpoint written")); err != nil {
		return err
	}
	if len(t.list) < 2 {
		return nil
	}
	// All that were made before the older of the two go.
	t.all = slices.Clone(t.list[:2])
	return t.bucket.Retain(ctx, t.list[:2], t.now, len(t.erasures) > 0)
}

// holdsPosition reports whether INGEST holds the message at a checkpoint's position.
func (m *Materializer) holdsPosition(ctx context.Context, c *checkpoint.Checkpoint) (bool, error) {
	if c.Position == 0 {
		return true, nil
	}
	raw, err := m.getMsg(ctx, m.o.Streams.Ingest, c.Position, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read INGEST %d: %w", c.Position, err)
	}
	return raw.Time.UnixNano() == c.Time && hex.EncodeToString(hash8(raw.Data)) == c.Hash, nil
}

// scratchInfix stands in the names of directories beside the store that a crash may leave.
const scratchInfix = "-checkpoint-"

// scratch makes such a directory.
func (m *Materializer) scratch() (string, error) {
	path := m.o.Store.Path()
	dir, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+scratchInfix+"*")
	if err != nil {
		return "", fmt.Errorf("make a directory for a checkpoint: %w", err)
	}
	return dir, nil
}

// removeScratch removes what a run before this one has left.
func (m *Materializer) removeScratch() error {
	dir, name := filepath.Split(m.o.Store.Path())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for what was left: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+scratchInfix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove what was left: %w", err)
			}
		}
	}
	return nil
}

// irregular asks for a checkpoint that does not build on those before: INGEST was found
// to be not what it was, and what it has lost is in the sessions' states alone.
func (m *Materializer) irregular() { wake(m.checkpointDue) }
