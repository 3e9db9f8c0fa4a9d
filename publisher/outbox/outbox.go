package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/dirlock"
)

const (
	// DefaultSegmentBytes is small enough that what is no longer needed goes soon,
	// and large enough that beginning a segment is rare.
	DefaultSegmentBytes = 8 << 20
	// keepStates is how long the state of a session with nothing to send is kept.
	keepStates = 24 * time.Hour
	// maxFrame bounds a batch: its length is a 32-bit number.
	maxFrame = 1 << 30
)

// Options are a box's settings. The zero value is usable.
type Options struct {
	// Logger takes what a human should know. Nil discards.
	Logger *slog.Logger
	// SegmentBytes is the size at which the next segment is begun. Defaults to
	// DefaultSegmentBytes.
	SegmentBytes int64
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	return o
}

func (o Options) validate() error {
	if o.SegmentBytes < 0 {
		return fmt.Errorf("outbox options: SegmentBytes is %d, must not be negative", o.SegmentBytes)
	}
	return nil
}

// Box is an open outbox. It is safe for concurrent use.
type Box struct {
	dir  string
	o    Options
	lock *dirlock.Lock
	lead chan struct{} // holds a token while someone writes for all

	// Of the one who writes.
	file     *os.File // of the last segment; nil if the next write begins one
	fileSize int64
	headSize int64 // how long the file's first frame is
	scratch  []byte

	mu       sync.Mutex
	closed   bool
	found    []Session
	number   uint64 // the highest that was given out
	states   map[bus.Key]*session
	places   map[uint64]place // of what is kept and not released
	segments []*segment       // oldest first; the last one may be written to
	bytes    int64            // of what is kept and not released
	next     *Batch           // takes records in; nil if there are none
	releases []byte           // records that go with the next batch
}

// session is what is kept of a session.
type session struct {
	State
	live    int // entries that are not released
	pending int // groups that are not on disk yet and may lack the state
}

// place is where an entry stands.
type place struct {
	in   *segment
	of   *session
	size int64
}

type segment struct {
	id   uint64
	size int64
	live int // entries that are not released
}

// Open opens the outbox in dir, which is made if it is missing, and locks it until
// Close. The error is ErrInUse if another process has it, a *[CorruptError] if something
// is missing that was kept.
func Open(dir string, o Options) (*Box, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	// What sessions do is nobody else's business.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	lock, err := dirlock.Acquire(dir)
	if errors.Is(err, dirlock.ErrHeld) {
		err = fmt.Errorf("%w: %w", ErrInUse, err) // which names the process
	}
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	b := &Box{
		dir: dir, o: o.withDefaults(), lock: lock,
		lead: make(chan struct{}, 1), states: map[bus.Key]*session{}, places: map[uint64]place{},
	}
	if err := b.recover(); err != nil {
		return nil, fmt.Errorf("open outbox: %w", errors.Join(err, lock.Release()))
	}
	return b, nil
}

// Dir returns the directory.
func (b *Box) Dir() string { return b.dir }

// Sessions returns what Open has found and forgets it: each session that is not
// finished or was used lately, with the entries that were not released.
func (b *Box) Sessions() []Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.found
	b.found = nil
	return out
}

// Held returns how many entries are kept and not released, and how many bytes they
// take.
func (b *Box) Held() (entries int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.places), b.bytes
}

// Add hands over entries of a session and its state with them. Those without a
// number get one. Entries with one stand for what was added under it before. They
// are kept when [Batch.Wait] says so, all of them or none. prev is the batch of
// what the entries build on, nil if that is kept: if it has failed the error is
// ErrStale, and nothing was added.
func (b *Box) Add(prev *Batch, s State, entries []Entry) (*Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ErrClosed
	case prev.Failed():
		return nil, ErrStale
	}
	batch := b.openLocked()
	old := b.states[s.Key]
	if old == nil || len(entries) == 0 || old.Placed != s.Placed || old.Presumed != s.Presumed || old.Publisher != s.Publisher {
		batch.payload = appendState(batch.payload, &s)
	}
	group := group{state: s, of: old}
	if old != nil {
		old.pending++
	}
	for i := range entries {
		if entries[i].Number == 0 {
			b.number++
			entries[i].Number = b.number
		}
		at := len(batch.payload)
		batch.payload = appendEntry(batch.payload, s.Key, &entries[i])
		group.entries = append(group.entries, added{entries[i].Number, int64(len(batch.payload) - at)})
	}
	batch.groups = append(batch.groups, group)
	return batch, nil
}

// openLocked returns the batch that takes records in.
func (b *Box) openLocked() *Batch {
	if b.next == nil {
		b.next = &Batch{b: b, done: make(chan struct{})}
	}
	return b.next
}

// Release gives up kept entries. It is written with what is added next, or by
// [Box.Tend]; until then a crash brings the entries back.
func (b *Box) Release(numbers ...uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range numbers {
		if at, ok := b.places[n]; ok {
			b.goneLocked(n, at)
			b.releases = appendRelease(b.releases, n)
		}
	}
}

// goneLocked forgets where an entry stands.
func (b *Box) goneLocked(n uint64, at place) {
	delete(b.places, n)
	b.bytes -= at.size
	at.in.live--
	at.of.live--
}

// keptLocked notes where an entry stands, perhaps instead of another place.
func (b *Box) keptLocked(n uint64, at place) {
	if old, ok := b.places[n]; ok {
		b.goneLocked(n, old)
	}
	b.places[n] = at
	b.bytes += at.size
	at.in.live++
	at.of.live++
}

// Tend writes what was released, removes segments that are not needed, and moves
// what keeps an old one from being removed. Call it now and then.
func (b *Box) Tend() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	var batch *Batch
	if len(b.releases) > 0 {
		batch = b.openLocked()
	}
	b.mu.Unlock()
	err := batch.Wait()
	b.lead <- struct{}{}
	defer func() { <-b.lead }()
	return errors.Join(err, b.shrink())
}

// Close writes what was released and gives the directory up. What is kept and not
// released is found by the next Open. A second call returns nil.
func (b *Box) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	err := b.Tend()
	b.lead <- struct{}{}
	defer func() { <-b.lead }()
	b.mu.Lock()
	b.closed = true
	if b.next != nil {
		b.settleLocked(b.next, nil, ErrClosed)
		b.next = nil
	}
	b.mu.Unlock()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
	}
	return errors.Join(err, b.lock.Release())
}

// nowMS is the time in ms since 1970.
func nowMS() int64 { return time.Now().UnixMilli() }

// finished reports whether the session's state can be forgotten.
func (s *session) finished(now int64) bool {
	return s.live == 0 && s.pending == 0 && s.Stopped == 0 && now-s.UsedAt > keepStates.Milliseconds()
}
