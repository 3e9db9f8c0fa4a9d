package materializer

import (
	"context"
	"log/slog"
	"time"
)

// commitLoop makes units durable in the order they come, several in one
// transaction when they wait. stop is the context of Run's caller: when it ends
// the units that are appended already are still committed. ctx also ends when
// another stage failed; then nothing more is written, as after a crash.
func (m *Materializer) commitLoop(stop, ctx context.Context, units *handover) error {
	for {
		var u *unit
		var ok bool
		select {
		case u, ok = <-units.ch:
			if !ok {
				return nil
			}
		case <-ctx.Done():
			if stop.Err() == nil {
				return ctx.Err()
			}
			if u, ok = <-units.ch; !ok { // the worker closes it when it has stopped
				return nil
			}
		}
		units.took(u)
		m.gather(ctx, u, units)
		if err := m.commit(stop, ctx, u); err != nil {
			return err
		}
	}
}

// gather merges into u the units that wait. Under load, when a unit is big, it
// also waits for those that the worker has in hand: a transaction costs a write
// for each session it touches, so four batches in one cost little more than one.
// There is no timer: as soon as the worker has nothing in hand, it says so.
func (m *Materializer) gather(ctx context.Context, u *unit, units *handover) {
	for len(u.done) < maxCommitMessages {
		select {
		case v, ok := <-units.ch:
			if !ok {
				return
			}
			units.took(v)
			u.merge(v)
			continue
		default:
		}
		if len(u.done) < bigUnit || len(u.done) >= goodCommit {
			return
		}
		select {
		case v, ok := <-units.ch:
			if !ok {
				return
			}
			units.took(v)
			u.merge(v)
		case <-m.workerIdle:
			return
		case <-ctx.Done():
			return
		}
	}
}

// commit makes one unit durable, however long the store refuses it: an
// unwritable store is never a reason to give a message up. After a stop it tries
// once more; what is not committed then is followed at the next start.
func (m *Materializer) commit(stop, ctx context.Context, u *unit) error {
	if err := m.seam("before commit"); err != nil {
		return err
	}
	var wait backoff
	logged := time.Time{}
	for {
		m.health.waiting(checkStore)
		began := time.Now()
		err := m.o.Store.Commit(context.WithoutCancel(ctx), &u.commit)
		if err == nil {
			m.o.Observer.Committed(len(u.done), len(u.commit.Rows), time.Since(began))
			break
		}
		m.o.Observer.Refused()
		m.health.set(checkStore, err.Error())
		if time.Since(logged) > 5*time.Second {
			m.log.Error("the store refuses to commit; reading pauses and it is tried again", slog.Any("err", err))
			logged = time.Now()
		}
		if stop.Err() != nil {
			// Not nil: what comes after this unit must not be committed without it.
			return stop.Err()
		}
		if err := wait.wait(ctx); err != nil {
			if stop.Err() != nil {
				continue // one last try
			}
			return err
		}
	}
	m.health.set(checkStore, "")
	for i := range u.done {
		m.o.Observer.Message(u.done[i].outcome, u.done[i].reason)
	}
	if m.o.Tracer != nil {
		m.span(ctx, u)
	}
	m.committed.advance(u.commit.Position, u.units)
	if m.o.Committed != nil {
		m.o.Committed(u.commit.Position)
	}
	m.settleRestored(ctx, u.commit.Position)
	if u.removals {
		wake(m.removalsDue)
	}
	if u.irregular {
		m.irregular()
	}
	if err := m.seam("committed"); err != nil {
		return err
	}
	m.confirm(u.done)
	return nil
}
