package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Batch is what is written and synced in one go. Nil stands for what is kept
// already. It is safe for concurrent use.
type Batch struct {
	b       *Box
	done    chan struct{} // closed when it is kept or has failed
	payload []byte
	groups  []group
	err     error // valid once done is closed
}

// group is what one call of Add has put into a batch.
type group struct {
	state   State
	of      *session // nil if it was not known
	entries []added
}

type added struct {
	number uint64
	size   int64
}

// Kept reports whether the batch is on disk.
func (t *Batch) Kept() bool { return t == nil || t.ended() && t.err == nil }

// Failed reports whether the batch will never be on disk.
func (t *Batch) Failed() bool { return t != nil && t.ended() && t.err != nil }

func (t *Batch) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait returns when the batch is on disk, or why it can not be: then the box is as
// if it had not been added, and later batches may succeed. Of those who wait one
// writes and syncs for all; it can not be broken off.
func (t *Batch) Wait() error {
	if t == nil {
		return nil
	}
	select {
	case <-t.done:
	case t.b.lead <- struct{}{}:
		t.b.flush(t)
		<-t.b.lead
	}
	return t.err
}

// flush writes the batch unless someone has. The caller leads.
func (b *Box) flush(t *Batch) {
	b.mu.Lock()
	if t.ended() {
		b.mu.Unlock()
		return
	}
	// What is not written is next: only those who lead take it.
	b.next = nil
	releases := b.releases
	b.releases = nil
	b.mu.Unlock()
	in, err := b.write(append(t.payload, releases...))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settleLocked(t, in, err)
	if err == nil {
		return
	}
	b.releases = append(releases, b.releases...)
	if b.next != nil {
		// It may build on what has failed.
		b.settleLocked(b.next, nil, err)
		b.next = nil
	}
}

// settleLocked ends the waiting for a batch that was written to the segment, or
// not.
func (b *Box) settleLocked(t *Batch, in *segment, err error) {
	t.err = err
	for _, g := range t.groups {
		if g.of != nil {
			g.of.pending--
		}
		if err != nil {
			continue
		}
		s := b.states[g.state.Key]
		if s == nil {
			s = &session{}
			b.states[g.state.Key] = s
		}
		s.State = g.state
		for _, e := range g.entries {
			b.keptLocked(e.number, place{in: in, of: s, size: e.size})
		}
	}
	t.payload, t.groups = nil, nil
	close(t.done)
}

// write appends a frame and syncs it. The caller leads.
func (b *Box) write(payload []byte) (*segment, error) {
	if len(payload) > maxFrame {
		return nil, fmt.Errorf("write outbox: %d bytes at once, at most %d", len(payload), maxFrame)
	}
	if b.file != nil && b.fileSize-b.headSize+int64(len(payload)) > max(b.o.SegmentBytes, b.headSize) && b.fileSize > b.headSize {
		err := b.file.Close()
		b.file = nil
		if err != nil {
			return nil, fmt.Errorf("write outbox: %w", err)
		}
	}
	if b.file == nil {
		if err := b.begin(); err != nil {
			return nil, fmt.Errorf("begin outbox segment: %w", err)
		}
	}
	b.scratch = appendFrame(b.scratch[:0], payload)
	err := b.put(b.scratch)
	if cap(b.scratch) > maxScratch {
		b.scratch = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.segments[len(b.segments)-1]
	if err != nil {
		return nil, fmt.Errorf("write outbox: %w", err)
	}
	last.size = b.fileSize
	return last, nil
}

// maxScratch is how much memory is kept between writes.
const maxScratch = 1 << 20

// put writes at the end of the file. If that fails the file is left for the next
// segment: after a failed fsync nobody knows what is on disk.
func (b *Box) put(frame []byte) error {
	_, err := b.file.WriteAt(frame, b.fileSize)
	if err == nil {
		err = b.file.Sync()
	}
	if err == nil {
		b.fileSize += int64(len(frame))
		return nil
	}
	err = errors.Join(err, b.file.Truncate(b.fileSize), b.file.Close())
	b.file = nil
	return err
}

// begin makes the next segment with its first frame. The caller leads.
func (b *Box) begin() error {
	b.mu.Lock()
	next := &segment{id: 1}
	h := head{number: b.number}
	if n := len(b.segments); n > 0 {
		next.id = b.segments[n-1].id + 1
		h.prevEnd = uint64(b.segments[n-1].size)
	}
	payload := appendHead(nil, h)
	now := nowMS()
	for k, s := range b.states {
		if s.finished(now) {
			delete(b.states, k)
			continue
		}
		payload = appendState(payload, &s.State)
	}
	b.mu.Unlock()
	path := b.path(next.id)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	b.file, b.fileSize = f, 0
	if err = b.put(appendFrame(nil, payload)); err == nil {
		err = syncDir(b.dir)
	}
	if err != nil {
		if b.file != nil {
			err = errors.Join(err, b.file.Close())
			b.file = nil
		}
		return errors.Join(err, os.Remove(path))
	}
	b.headSize = b.fileSize
	next.size = b.fileSize
	b.mu.Lock()
	b.segments = append(b.segments, next)
	b.mu.Unlock()
	return nil
}

// shrink removes old segments and moves what is left in the oldest ones while the
// journal is several times of what it has to hold. The caller leads.
func (b *Box) shrink() error {
	b.mu.Lock()
	rounds := len(b.segments) // each moves one segment's entries
	b.mu.Unlock()
	for range rounds {
		if err := b.drop(); err != nil {
			return fmt.Errorf("remove outbox segment: %w", err)
		}
		b.mu.Lock()
		var total int64
		for _, s := range b.segments {
			total += s.size
		}
		move := len(b.segments) > 1 && total > 4*max(b.o.SegmentBytes, b.bytes)
		b.mu.Unlock()
		if !move {
			return nil
		}
		if err := b.move(); err != nil {
			return fmt.Errorf("move outbox entries: %w", err)
		}
	}
	return b.drop()
}

// drop removes the oldest segments while nothing in them is needed, in their order,
// so that a release never goes before what it releases.
func (b *Box) drop() error {
	for {
		b.mu.Lock()
		if len(b.segments) < 2 || b.segments[0].live > 0 {
			b.mu.Unlock()
			return nil
		}
		path := b.path(b.segments[0].id)
		b.mu.Unlock()
		// Synced one by one: a hole between segments would look like a loss.
		if err := errors.Join(ignoreMissing(os.Remove(path)), syncDir(b.dir)); err != nil {
			return err
		}
		b.mu.Lock()
		b.segments = b.segments[1:]
		b.mu.Unlock()
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// move copies what is needed of the oldest segment to the end. Its sessions' states
// stand in the first frame of every later one.
func (b *Box) move() error {
	b.mu.Lock()
	oldest := b.segments[0]
	b.mu.Unlock()
	data, err := os.ReadFile(b.path(oldest.id))
	if err != nil {
		return err
	}
	data = data[:min(int64(len(data)), oldest.size)]
	var payload []byte
	var moved []uint64
	for len(data) > 0 {
		frame, size, ok := readFrame(data)
		if !ok {
			return &CorruptError{File: b.path(oldest.id), Offset: oldest.size - int64(len(data)), Why: "its bytes have changed"}
		}
		data = data[size:]
		err := visit(frame, visitor{entry: func(e found, record []byte) {
			b.mu.Lock()
			at, live := b.places[e.Number]
			b.mu.Unlock()
			// An entry that was added again has a size of its own; of two that
			// look the same the later one counts, here as at its old place.
			if live && at.in == oldest && at.size == int64(len(record)) {
				payload = append(payload, record...)
				moved = append(moved, e.Number)
			}
		}})
		if err != nil {
			return err
		}
	}
	in, err := b.write(payload)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range moved {
		if at, ok := b.places[n]; ok && at.in == oldest {
			b.keptLocked(n, place{in: in, of: at.of, size: at.size})
		}
	}
	b.o.Logger.Debug("outbox entries moved", slog.Uint64("segment", oldest.id), slog.Int("entries", len(moved)))
	return nil
}

func (b *Box) path(id uint64) string {
	return filepath.Join(b.dir, fmt.Sprintf("%0*d%s", idDigits, id, suffix))
}
