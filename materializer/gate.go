package materializer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skaldbus/skald/materializer/registry"
)

const (
	// gateEvery is how long the answer of the registry holds while nothing tells that
	// EVENTS may have been set back.
	gateEvery = 5 * time.Second
	// gatePatience is how long is waited for other stores to say how far they are, when
	// EVENTS has lost its end: the registry may have lost as much. Those that could be
	// further than we are ran a moment ago, and write every few seconds.
	gatePatience = 3 * registerIdle
)

// errWaits: nothing is appended until another store has put its rows back.
var errWaits = errors.New("waiting for another store")

// gate decides whether appending is allowed: not while EVENTS ends below the highest
// number that a registered store has committed, since the next number would get a second
// meaning. That store puts its rows back as soon as it runs. The gate belongs to the worker.
type gate struct {
	seen       uint64 // EVENTS' end when it was looked at last
	reconnects uint64 // of the connection, then
	checked    time.Time

	barrier uint64    // entries of other stores below this revision may be too old
	until   time.Time // and count all the same from then on
}

// mayAppend returns nil if the worker may append to an EVENTS that ends at last. lost
// says that it had ended below the table. It asks the registry at the start, after a
// reconnect, when EVENTS has lost its end, and otherwise at most every few seconds.
func (m *Materializer) mayAppend(ctx context.Context, last uint64, lost bool) error {
	own, reg, ok := m.registered()
	if !ok {
		return fmt.Errorf("%w: this one is not registered yet", errWaits)
	}
	g := &m.gate
	reconnects := m.o.Conn.Stats().Reconnects
	if lost || last < g.seen {
		g.checked = time.Time{}
		g.seen = last
		if err := m.register(ctx); err != nil {
			return err
		}
		if own, reg, ok = m.registered(); !ok {
			return fmt.Errorf("%w: this one is not registered", errWaits)
		}
		g.barrier, g.until = own.Revision, time.Now().Add(gatePatience)
	}
	if g.reconnects == reconnects && time.Since(g.checked) < gateEvery {
		g.seen = last
		return nil
	}
	entries, err := reg.List(ctx)
	if err != nil {
		return err
	}
	for i := range entries {
		if err := g.allows(&entries[i], own, last); err != nil {
			g.checked = time.Time{}
			return err
		}
	}
	g.seen, g.reconnects, g.checked, g.barrier = last, reconnects, time.Now(), 0
	return nil
}

// allows returns why the entry stands against appending after last.
func (g *gate) allows(e *registry.Entry, own registry.Entry, last uint64) error {
	if e.ID == own.ID || e.Epoch != own.Epoch {
		return nil
	}
	if e.Number > last {
		return fmt.Errorf("%w: EVENTS ends at %d, store %s (%s) has rows up to %d and puts them back when it runs; `skald replicas rm %s` if it never will",
			errWaits, last, e.ID, e.Label, e.Number, e.ID)
	}
	if e.Revision <= g.barrier && time.Now().Before(g.until) {
		return fmt.Errorf("%w: EVENTS has lost its end, and store %s (%s) may have rows beyond it: it was not heard of since", errWaits, e.ID, e.Label)
	}
	return nil
}
