package materializer

import (
	"context"
	"sync"

	"github.com/skaldbus/skald/materializer/store"
)

// progress is the newest committed position. The committer sets it, the worker
// waits for it before it reads the store again, and health reads it.
type progress struct {
	mu      sync.Mutex
	pos     store.Position
	units   int64         // units committed since the start
	changed chan struct{} // closed and replaced at each commit
}

func (p *progress) init() { p.changed = make(chan struct{}) }

func (p *progress) set(pos store.Position) { p.advance(pos, 0) }

// advance records that n more units are durable, the newest ending at pos.
func (p *progress) advance(pos store.Position, n int64) {
	p.mu.Lock()
	p.pos, p.units = pos, p.units+n
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
}

func (p *progress) get() (store.Position, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pos, p.units
}

// wait blocks until at least n units are committed.
func (p *progress) wait(ctx context.Context, n int64) error {
	return p.until(ctx, func() bool { return p.units >= n })
}

// reach blocks until INGEST's message seq is committed.
func (p *progress) reach(ctx context.Context, seq uint64) error {
	return p.until(ctx, func() bool { return p.pos.IngestSeq >= seq })
}

// until blocks until what holds of the fields that mu guards.
func (p *progress) until(ctx context.Context, what func() bool) error {
	for {
		p.mu.Lock()
		done, changed := what(), p.changed
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
