//go:build unix

package e2e_test

import (
	"fmt"
	"sync"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
)

// ledger remembers every row that any reader was given. It is safe for concurrent
// use.
type ledger struct {
	mu    sync.Mutex
	epoch string
	rows  map[uint64]string // a number's event, as it came
}

// enter takes down a page that was asked for with a cursor, and reports what it
// breaks: the order, the cursor's rules, or what a number meant before.
func (l *ledger) enter(after uint64, p *target.Page) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch == "" {
		l.epoch = p.Epoch
	}
	if p.Epoch != l.epoch {
		return fmt.Errorf("the epoch was %s and is %s", l.epoch, p.Epoch)
	}
	last := after
	for _, raw := range p.Events {
		e, err := bus.ParseEvent(raw)
		if err != nil {
			return fmt.Errorf("read row after %d: %w", last, err)
		}
		if e.Seq <= last {
			return fmt.Errorf("row %d comes after %d", e.Seq, last)
		}
		last = e.Seq
		if was, ok := l.rows[e.Seq]; ok && was != string(raw) {
			return fmt.Errorf("number %d changed its meaning:\n  was %.300s\n  is  %.300s", e.Seq, was, raw)
		}
		l.rows[e.Seq] = string(raw)
	}
	switch {
	case len(p.Events) > 0 && p.NextAfter != last:
		return fmt.Errorf("the last row is %d, the next cursor %d", last, p.NextAfter)
	case len(p.Events) == 0 && (p.NextAfter < after || p.NextAfter > p.Latest):
		return fmt.Errorf("an empty page moves the cursor from %d to %d, the newest is %d", after, p.NextAfter, p.Latest)
	case p.Latest < last:
		return fmt.Errorf("a page ends with %d, the newest is %d", last, p.Latest)
	}
	return nil
}

// knownEpoch returns the epoch of the pages so far.
func (l *ledger) knownEpoch() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}
