package publisher

import (
	"context"
	"sync"
)

// budget bounds what waits for INGEST. Those who wait for room get it in the
// order they came, so that a large message is not overtaken for ever.
type budget struct {
	maxMessages int
	maxBytes    int64

	mu       sync.Mutex
	messages int
	bytes    int64
	waiters  []*waiter
}

type waiter struct {
	messages int
	bytes    int64
	ready    chan struct{} // closed when the room is the waiter's
}

// acquire waits for room. It returns ctx's cause, or ErrClosed once closed is.
func (b *budget) acquire(ctx context.Context, closed <-chan struct{}, messages int, bytes int64) error {
	b.mu.Lock()
	if len(b.waiters) == 0 && b.fitsLocked(messages, bytes) {
		b.messages += messages
		b.bytes += bytes
		b.mu.Unlock()
		return nil
	}
	w := &waiter{messages: messages, bytes: bytes, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-closed:
		err = ErrClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grantLocked() // it may have stood before one that fits
			return err
		}
	}
	// The room was granted meanwhile.
	b.messages -= messages
	b.bytes -= bytes
	b.grantLocked()
	return err
}

// take takes room without waiting, for what was accepted by an earlier process.
func (b *budget) take(messages int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages += messages
	b.bytes += bytes
}

// fitsLocked reports whether there is room. What is larger than the whole budget fits
// when nothing else waits, else it never would.
func (b *budget) fitsLocked(messages int, bytes int64) bool {
	if b.messages == 0 {
		return true
	}
	return b.messages+messages <= b.maxMessages && b.bytes+bytes <= b.maxBytes
}

func (b *budget) grantLocked() {
	for len(b.waiters) > 0 && b.fitsLocked(b.waiters[0].messages, b.waiters[0].bytes) {
		w := b.waiters[0]
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		b.messages += w.messages
		b.bytes += w.bytes
		close(w.ready)
	}
}

// release gives room back.
func (b *budget) release(messages int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages -= messages
	b.bytes -= bytes
	b.grantLocked()
}
