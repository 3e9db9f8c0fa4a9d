package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/registry"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// registerMoved is how far apart entries are written while the store moves, and so
	// how far an entry may lag; registerIdle while it does not.
	registerMoved = time.Second
	registerIdle  = 5 * time.Second
	// registerTimeout bounds one try.
	registerTimeout = 2 * time.Second
)

// registration is the store's entry in the registry.
type registration struct {
	mu      sync.Mutex
	reg     *registry.Registry
	entry   registry.Entry // as it was written last; zero before
	claim   *uint64        // the position of a checkpoint that is being taken
	written time.Time
}

// registerLoop keeps the entry true until ctx ends, and writes it a last time then.
func (m *Materializer) registerLoop(ctx context.Context) error {
	var wait backoff
	troubled := false
	warned := m.o.MayLose == ""
	for {
		err := m.register(ctx)
		if err == nil && !warned {
			warned, err = m.warnSeveral(ctx)
		}
		switch {
		case ctx.Err() != nil:
			// What was committed last is what the others have to wait for.
			last := context.WithoutCancel(ctx)
			err := m.register(last)
			if errors.Is(err, registry.ErrChanged) {
				err = m.register(last) // by the try before, whose answer the stop cut off
			}
			if err != nil {
				m.log.Warn("the store's last position is not registered", slog.Any("err", err))
			}
			return nil
		case err != nil:
			m.health.set(checkReplicas, err.Error())
			if !troubled {
				m.log.Warn("the store can not be registered", slog.Any("err", err))
			}
			troubled = true
			_ = wait.wait(ctx)
			continue
		}
		troubled = false
		wait.reset()
		m.health.set(checkReplicas, "")
		_ = pause(ctx, registerMoved)
		for ctx.Err() == nil && !m.registrationDue() {
			_ = pause(ctx, registerMoved)
		}
	}
}

// warnSeveral says, once other stores are registered, that the server may lose what it has
// acknowledged: then one store may have rows of messages that another never sees.
func (m *Materializer) warnSeveral(ctx context.Context) (warned bool, err error) {
	own, reg, ok := m.registered()
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, fmt.Errorf("no answer within %s", registerTimeout))
	defer cancel()
	entries, err := reg.List(ctx)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.ID != own.ID {
			m.log.Warn("several stores are on this bus, which then needs a server that loses nothing", slog.Int("stores", len(entries)), slog.String("why", m.o.MayLose))
			return true, nil
		}
	}
	return false, nil
}

// registrationDue reports whether the entry is not what it should be, or is old.
func (m *Materializer) registrationDue() bool {
	r := &m.registration
	r.mu.Lock()
	defer r.mu.Unlock()
	pos, _ := m.committed.get()
	return r.entry.Number != pos.EventsSeq || r.entry.Position != r.position(pos) || time.Since(r.written) >= registerIdle
}

// position is INGEST's sequence up to which the store needs nothing any more.
func (r *registration) position(pos store.Position) uint64 {
	if r.claim != nil {
		return *r.claim
	}
	return pos.IngestSeq
}

// register writes the entry. A second store with this one's id, a copy that runs beside
// it, shows by writing over it: whoever was there first takes another id.
func (m *Materializer) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, fmt.Errorf("no answer within %s", registerTimeout))
	defer cancel()
	r := &m.registration
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reg == nil {
		reg, err := registry.Open(ctx, m.o.JS, m.o.Subjects, m.replicas())
		if err != nil {
			return err
		}
		r.reg = reg
	}
	id, err := m.reader.ID(ctx)
	if err != nil {
		return err
	}
	known, err := m.o.Store.Bus(ctx)
	if err != nil {
		return fmt.Errorf("read which bus the store belongs to: %w", err)
	}
	pos, _ := m.committed.get()
	e := registry.Entry{
		ID: id, Label: m.o.Label, Run: m.run, Epoch: known.Epoch, IngestID: known.IngestID, Contract: bus.Contract,
		Position: r.position(pos), Number: pos.EventsSeq,
	}
	if r.entry.ID != id {
		r.entry = registry.Entry{}
		// Whatever a run before this one has left is taken over.
		old, err := r.reg.Get(ctx, id)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return m.lostRegistry(err)
		}
		r.entry.Revision = old.Revision
	}
	e.Revision, err = r.reg.Put(ctx, e, r.entry.Revision)
	if errors.Is(err, registry.ErrChanged) {
		return m.contested(ctx, id)
	}
	if err != nil {
		return m.lostRegistry(err)
	}
	r.entry, r.written = e, time.Now()
	return nil
}

// lostRegistry opens the registry anew at the next try: it may have been removed.
func (m *Materializer) lostRegistry(err error) error {
	m.registration.reg = nil
	return err
}

// contested finds out who has changed the entry. One that was removed is made anew at
// the next try, and so is one that the server has lost.
func (m *Materializer) contested(ctx context.Context, id string) error {
	r := &m.registration
	now, err := r.reg.Get(ctx, id)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return m.lostRegistry(err)
	}
	// An older one says that the registry was set back, not that somebody has written.
	newer := r.entry.ID == id && now.Revision > r.entry.Revision
	r.entry = registry.Entry{}
	if err == nil && now.Run != m.run && newer {
		if err := m.o.Store.NewID(ctx); err != nil {
			return err
		}
		m.log.Warn("another process runs on a copy of this store; this one has taken an id of its own",
			slog.String("id", id), slog.String("label", now.Label))
	}
	return fmt.Errorf("register store %s: %w", id, registry.ErrChanged)
}

// registered returns the entry that was written last, and the registry; false before
// the first one.
func (m *Materializer) registered() (registry.Entry, *registry.Registry, bool) {
	r := &m.registration
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entry, r.reg, r.reg != nil && r.entry.ID != ""
}

// claim makes the entry say that INGEST is needed from behind a position that is not
// committed yet, nil for the committed one.
func (m *Materializer) claim(ctx context.Context, position *uint64) error {
	m.registration.mu.Lock()
	m.registration.claim = position
	m.registration.mu.Unlock()
	return m.register(ctx)
}

// replicas is how many copies there are of what stands beside the streams.
func (m *Materializer) replicas() int { return m.o.Streams.Events.CachedInfo().Config.Replicas }
