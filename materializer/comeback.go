package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/store"
)

// copyBytes bounds what is read of EVENTS before it is committed.
const copyBytes = 8 << 20

// errNoCheckpoint: there is none that the store could take.
var errNoCheckpoint = errors.New("no checkpoint to come back with")

// comeBack brings a store that can not read on to where it can: INGEST begins above the
// message after its position, since it is new, was restored, or was away while nobody
// waited for it. It copies the rows from EVENTS up to the number of the newest
// checkpoint, and then takes that one's state in their place, in one transaction. A
// crash before that leaves rows that are copied already, and it is done again.
//
// It returns false if the store has nothing to come back with: no checkpoint knows more
// than it does, nor does EVENTS hold rows of what is gone.
func (m *Materializer) comeBack(ctx context.Context, pos store.Position, in *jetstream.StreamInfo) (bool, error) {
	m.stopServing("the store can not read on from its position and looks for a checkpoint")
	err := m.takeCheckpoint(ctx, pos, in)
	if err == errNoCheckpoint { //nolint:errorlint // there is none; what is damaged is not passed over
		return m.takeOver(ctx, pos, in)
	}
	if errors.Is(err, errNoCheckpoint) {
		return false, fmt.Errorf("%w: messages %d to %d are gone, it begins at %d, and there is %w; restore the store from a backup that is as old",
			ErrIngestBegins, pos.IngestSeq+1, in.State.FirstSeq-1, in.State.FirstSeq, err)
	}
	return err == nil, err
}

// begin lets a new store take the newest checkpoint, if there is one, though it could
// read INGEST from its first message: that is the shorter way, and the only one to what
// INGEST has lost or never held.
func (m *Materializer) begin(ctx context.Context, pos store.Position, in *jetstream.StreamInfo) (bool, error) {
	if m.begun || pos.IngestSeq > 0 || pos.EventsSeq > 0 {
		return false, nil
	}
	m.stopServing("the store is new and looks for a checkpoint")
	err := m.takeCheckpoint(ctx, pos, in)
	if err != nil && !errors.Is(err, errNoCheckpoint) {
		return false, err
	}
	m.begun = true
	if err != nil && err != errNoCheckpoint { //nolint:errorlint // there is none
		m.log.Warn("the store is new and reads INGEST from its beginning", slog.Any("err", err))
	}
	return err == nil, nil
}

// takeCheckpoint takes the newest checkpoint that the store can take. The error is
// errNoCheckpoint if it can take none; by itself, if none is there that knows more than
// the store.
func (m *Materializer) takeCheckpoint(ctx context.Context, pos store.Position, in *jetstream.StreamInfo) error {
	dir, err := m.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the next start removes it
	c, path, err := m.fetchCheckpoint(ctx, pos, in, dir)
	if err != nil {
		return err
	}
	m.log.Warn("the store takes a checkpoint", slog.Uint64("ingest_seq", pos.IngestSeq), slog.Uint64("seq", pos.EventsSeq),
		slog.Uint64("checkpoint_ingest_seq", c.Position), slog.Uint64("checkpoint_seq", c.Number), slog.String("of_store", c.Store))
	// From now on nobody trims what is needed after the checkpoint. Whether it was in time
	// is seen when all is done: reading on finds out.
	if err := m.claim(ctx, &c.Position); err != nil {
		return err
	}
	err = m.copyRows(ctx, pos, c.Number)
	if err == nil {
		err = crash(m.seam("rows copied"))
	}
	if err == nil {
		err = m.take(ctx, c, path)
	}
	if err != nil {
		return errors.Join(err, m.claim(ctx, nil))
	}
	if err := crash(m.seam("checkpoint taken")); err != nil {
		return err
	}
	if pos, err = m.reader.Position(ctx); err != nil {
		return fmt.Errorf("read the store's position: %w", err)
	}
	m.committed.set(pos)
	if m.o.Committed != nil {
		m.o.Committed(pos)
	}
	m.seen = store.Mark{}
	m.log.Info("the store has taken the checkpoint", slog.Uint64("ingest_seq", pos.IngestSeq), slog.Uint64("seq", pos.EventsSeq))
	return m.claim(ctx, nil)
}

// take puts a checkpoint's state in place. Of sessions that were forgotten after it was
// made, and of rows that were pruned after it, EVENTS may hold nothing any more: then rows
// may be missing, since INGEST tells of that when it is read on.
func (m *Materializer) take(ctx context.Context, c *checkpoint.Checkpoint, path string) error {
	err := m.o.Store.Take(ctx, path)
	var missing *store.MissingRowsError
	if !errors.As(err, &missing) {
		return err
	}
	excused, lookErr := m.excused(ctx, c.Position, missing.Lacking)
	if lookErr != nil || len(excused) == 0 {
		return errors.Join(err, lookErr)
	}
	return m.o.Store.Take(ctx, path, excused...)
}

// excused returns which of the sessions may lack rows, by what INGEST says after a
// sequence: all after a prune, else those that were forgotten.
func (m *Materializer) excused(ctx context.Context, seq uint64, lacking []bus.Key) ([]bus.Key, error) {
	pruned, err := m.saidAfter(ctx, seq, m.o.Subjects.IngestAdmin(), bus.OpPrune)
	if err != nil || pruned {
		return lacking, err
	}
	var out []bus.Key
	for _, k := range lacking {
		forgotten, err := m.saidAfter(ctx, seq, m.o.Subjects.Ingest(k, bus.ClassControl), bus.OpForget)
		if err != nil {
			return nil, err
		}
		if forgotten {
			out = append(out, k)
		}
	}
	return out, nil
}

// saidAfter reports whether INGEST holds a control message of that subject and operation
// after a sequence.
func (m *Materializer) saidAfter(ctx context.Context, seq uint64, subject string, op bus.Op) (said bool, err error) {
	err = m.controlsAfter(ctx, seq, subject, func(_ uint64, c bus.Control) bool {
		said = c.Op == op
		return !said
	})
	return said, err
}

// controlsAfter hands out the control messages of a subject that INGEST holds after a
// sequence and that are applied, with their sequences, until each returns false.
func (m *Materializer) controlsAfter(ctx context.Context, seq uint64, subject string, each func(seq uint64, c bus.Control) bool) error {
	for {
		raw, err := m.findMsg(ctx, m.o.Streams.Ingest, seq+1, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look in INGEST for what removed rows: %w", err)
		}
		seq = raw.Sequence
		c, err := bus.ParseControl(raw.Data, subject == m.o.Subjects.IngestAdmin())
		if err == nil {
			_, err = bus.ParseIdentity(raw.Header, bus.ClassControl)
		}
		if err == nil && !each(seq, c) {
			return nil
		}
	}
}

// stopServing keeps readers and the trim away, and says why in the health.
func (m *Materializer) stopServing(why string) {
	m.notServing.Store(&why)
	m.health.set(checkIngest, why)
}

// Ready returns nil if the store may be read: the error is bus.ErrUnavailable while it
// takes a checkpoint, and says how far that is. Safe for concurrent use.
func (m *Materializer) Ready() error {
	if why := m.notServing.Load(); why != nil {
		return fmt.Errorf("%w: %s", bus.ErrUnavailable, *why)
	}
	return nil
}

// fetchCheckpoint brings the newest checkpoint that the store can take into dir: whole, of
// this INGEST, not behind what the table holds, and with EVENTS up to its number. One that
// INGEST's beginning has left behind has to do where none reaches it: what is missing in
// between is then taken over from EVENTS, or lost to all.
func (m *Materializer) fetchCheckpoint(ctx context.Context, pos store.Position, in *jetstream.StreamInfo, dir string) (*checkpoint.Checkpoint, string, error) {
	bucket, err := checkpoint.Find(ctx, m.o.JS, m.o.Subjects)
	if errors.Is(err, bus.ErrNotFound) {
		return nil, "", errNoCheckpoint
	}
	if err != nil {
		return nil, "", err
	}
	list, damaged, err := bucket.List(ctx)
	if err != nil {
		return nil, "", err
	}
	last, err := m.eventsLast(ctx)
	if err != nil {
		return nil, "", err
	}
	var reach, short []checkpoint.Checkpoint
	why := errors.Join(damaged...)
	for _, c := range m.ofThisBus(list, in) {
		reaches := c.Position+1 >= in.State.FirstSeq
		if reaches && c.Position >= in.State.FirstSeq {
			same, err := m.holdsPosition(ctx, &c)
			if err != nil {
				return nil, "", err
			}
			if !same {
				// INGEST was set back since. Whoever has seen that owes a newer one.
				m.log.Info("a checkpoint was taken of messages that INGEST does not hold", slog.String("name", c.Name))
				continue
			}
		}
		switch {
		case !reaches && c.Position <= pos.IngestSeq:
			// It knows no more than the store.
		case c.Number > last:
			why = errors.Join(why, fmt.Errorf("%s has numbers up to %d, EVENTS ends at %d", c.Name, c.Number, last))
		case c.Number < pos.EventsSeq:
			why = errors.Join(why, fmt.Errorf("%s has numbers up to %d, the table up to %d", c.Name, c.Number, pos.EventsSeq))
		case reaches:
			reach = append(reach, c)
		default:
			short = append(short, c)
		}
	}
	for _, c := range append(reach, short...) {
		path, err := bucket.Load(ctx, &c, dir, m.o.Streams.Horizon.Nanoseconds())
		if err == nil {
			return &c, path, nil
		}
		if !errors.Is(err, checkpoint.ErrDamaged) {
			return nil, "", err
		}
		m.log.Error("a checkpoint is damaged; an older one has to do", slog.Any("err", err))
		why = errors.Join(why, err)
		if err := emptyDir(dir); err != nil {
			return nil, "", err
		}
	}
	if why == nil {
		return nil, "", errNoCheckpoint
	}
	return nil, "", fmt.Errorf("%w: %w", errNoCheckpoint, why)
}

func emptyDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("empty a directory: %w", err)
	}
	return os.Mkdir(dir, 0o700)
}

// copyRows takes EVENTS' rows into the table, up to a number, checked as when following.
func (m *Materializer) copyRows(ctx context.Context, pos store.Position, to uint64) error {
	from := pos.EventsSeq
	t, err := m.openTail(ctx, from+1, to)
	if err != nil {
		return err
	}
	defer t.close()
	c := store.Commit{Position: pos}
	bytes := 0
	flush := func() error {
		if c.Position.EventsSeq == pos.EventsSeq {
			return nil
		}
		if err := m.o.Store.Commit(ctx, &c); err != nil {
			return fmt.Errorf("copy rows: %w", err)
		}
		pos = c.Position
		m.committed.set(pos)
		m.stopServing(fmt.Sprintf("the store takes a checkpoint: %d of %d numbers are copied", pos.EventsSeq-from, to-from))
		c, bytes = store.Commit{Position: pos}, 0
		return crash(m.seam("some rows copied"))
	}
	for {
		e, err := t.peek(ctx)
		if err != nil {
			return errors.Join(err, flush())
		}
		if e == nil {
			c.Position.EventsSeq = to // what is left is only numbers
			return flush()
		}
		switch {
		case e.ours:
			c.Rows = append(c.Rows, e.row)
			bytes += len(e.row.Data)
		case !e.void:
			m.log.Warn("EVENTS holds a message that no materializer wrote", slog.Uint64("seq", e.seq))
		}
		c.Position.EventsSeq = e.seq
		t.take()
		if len(c.Rows) == maxAppendMessages || bytes > copyBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}
