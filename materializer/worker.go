package materializer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/materializer/store"
)

// idleCheck is how often an idle worker looks whether EVENTS holds rows that the
// table lacks although INGEST has nothing new to say.
const idleCheck = 2 * time.Second

// maxAppends is how many batches may be on their way to the committer: while one
// is synced to EVENTS' disk the next is projected.
const maxAppends = 2

// place is how far a worker has come.
type place struct {
	position uint64 // INGEST sequence
	highest  int64  // highest INGEST time applied, ns
	since    int64  // as the store's position has it, ns
	table    uint64 // EVENTS number
	end      end
	row      uint64     // the number of the last row that was copied; 0 if none was
	newest   *appending // the newest append, all but its last message sent; nil if there was none
}

// worker projects, follows and appends. One goroutine owns it.
type worker struct {
	m     *Materializer
	in    *intake
	units *handover
	sent  int64 // units handed to the committer, by earlier workers too
	cache *cache

	stretches []store.Stretch // what was read before

	place             // as if all in flight were taken
	landed place      // what all units handed over reach
	flight []*attempt // whose appends are not answered yet, oldest first

	attempts uint64 // begun so far

	troubled bool // health says that appending does not work
}

func (m *Materializer) newWorker(pos store.Position, before []store.Stretch, in *intake, units *handover) *worker {
	p := place{position: pos.IngestSeq, highest: pos.HighestTime, since: pos.Since, table: pos.EventsSeq}
	_, committed := m.committed.get()
	m.prunes = nil
	return &worker{m: m, in: in, units: units, sent: committed, cache: newCache(m.reader), stretches: before, place: p, landed: p}
}

func (w *worker) run(ctx context.Context) error {
	tick := time.NewTicker(idleCheck)
	defer tick.Stop()
	if err := w.settle(ctx); err != nil {
		return err
	}
	for {
		batch, err := w.in.take(ctx, tick.C)
		if err != nil {
			// A stop: what is on its way is still handed over, so that it is
			// committed now and not followed at the next start.
			for len(w.flight) > 0 && w.landOldest(ctx) == nil {
			}
			return err
		}
		if batch == nil {
			err = w.idle(ctx)
		} else if err = w.m.seam("read"); err == nil {
			err = w.process(ctx, batch)
		}
		if err != nil {
			return err
		}
		if w.in.empty() {
			wake(w.m.workerIdle)
		}
	}
}

// idle follows EVENTS when no message is at hand.
func (w *worker) idle(ctx context.Context) error {
	if len(w.flight) > 0 {
		return nil
	}
	last, err := w.m.eventsLast(ctx)
	if err != nil || last == w.table {
		return nil // the watcher reports a server that does not answer
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.insist(ctx, nil)
}

// process turns a batch into units on their way. It leaves some in flight only
// while there is something to do beside them.
func (w *worker) process(ctx context.Context, batch []*message) error {
	for len(batch) > 0 {
		a, err := w.try(ctx, batch)
		failed := a
		if err == nil {
			failed = nil
		}
		batch = batch[len(a.batch):]
		for err == nil && w.mustLand(len(batch) == 0) {
			err = w.landOldest(ctx)
		}
		if err == nil {
			err = w.newest.push()
		}
		if err != nil {
			if err := w.recover(ctx, failed, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// mustLand reports whether the oldest append's answer is to be waited for before anything
// else. Where each append waits for the answer to the one before, some are left in flight
// only if many messages wait to be processed: where few come, the next batch would be taken
// with fewer yet and wait for the answer all the same, and those that come meanwhile would wait
// for two. Where they do not wait, what comes goes out at once. done says that the batch at
// hand is processed.
func (w *worker) mustLand(done bool) bool {
	switch {
	case len(w.flight) == 0:
		return false
	case w.newest.flows():
		oldest := w.flight[0]
		return len(w.flight) >= maxSeries || oldest.heard() || done && !w.in.comesFirst(oldest.appends[0])
	default:
		return len(w.flight) >= maxAppends || done && w.in.few()
	}
}

// try runs one attempt at a batch and puts it in flight, or returns it with the
// error that it ended with. The attempt may have taken less than the batch, from
// its beginning.
func (w *worker) try(ctx context.Context, batch []*message) (*attempt, error) {
	a := w.newAttempt(batch)
	if err := a.run(ctx); err != nil {
		return a, err
	}
	w.goTo(a.place)
	w.flight = append(w.flight, a)
	return a, nil
}

// landOldest hears that the oldest append was taken and hands its unit over. If
// it was not, the attempt stays in flight, for recover.
func (w *worker) landOldest(ctx context.Context) error {
	a := w.flight[0]
	if err := a.land(); err != nil {
		return err
	}
	w.flight = w.flight[1:]
	w.landed = a.place
	if w.troubled {
		w.troubled = false
		w.m.health.set(checkEvents, "")
	}
	w.in.done(a.batch)
	if len(a.batch) == 0 && a.table == a.from {
		return nil // an idle look that found nothing
	}
	return w.send(ctx, a)
}

// goTo is where the worker goes on, and how far it has EVENTS at hand.
func (w *worker) goTo(p place) {
	w.place = p
	w.m.atHand.Store(p.table)
}

// recover takes back all that is in flight, and a failed attempt that is not, and
// does those batches again one by one. What they did append is in EVENTS, and is
// followed.
func (w *worker) recover(ctx context.Context, failed *attempt, cause error) error {
	undo := w.flight
	if failed != nil {
		undo = append(undo, failed)
	}
	w.flight = nil
	w.goTo(w.landed)
	for i := len(undo) - 1; i >= 0; i-- {
		w.cache.drop(undo[i].touched)
		w.cache.forget(undo[i].unit.commit.IDs)
	}
	if err := w.blame(ctx, cause); err != nil {
		return err
	}
	for _, a := range undo {
		a.abandon()
	}
	for _, a := range undo {
		if err := w.settle(ctx); err != nil {
			return err
		}
		if err := w.insist(ctx, a.batch); err != nil {
			return err
		}
	}
	return nil
}

// insist does one batch, however often it takes, and hands its unit over.
func (w *worker) insist(ctx context.Context, batch []*message) error {
	var wait backoff
	for {
		a, err := w.try(ctx, batch)
		if err == nil {
			if err = w.landOldest(ctx); err == nil {
				if batch = batch[len(a.batch):]; len(batch) == 0 {
					return nil
				}
				continue
			}
			if len(w.flight) == 0 {
				return err // it landed; handing it over was cut short
			}
			a, w.flight = w.flight[0], nil
		}
		w.goTo(w.landed)
		w.cache.drop(a.touched)
		w.cache.forget(a.unit.commit.IDs)
		if err := w.blame(ctx, err); err != nil {
			return err
		}
		a.abandon()
		if !errors.Is(err, errLostRace) {
			if err := wait.wait(ctx); err != nil {
				return err
			}
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
	}
}

// blame notes why an attempt came to nothing. It returns an error if trying again
// is not the answer.
func (w *worker) blame(ctx context.Context, err error) error {
	var crash *seamError
	switch {
	case errors.As(err, &crash):
		return crash.err
	case replaced(err):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLostRace):
		w.m.stats.appendsLost.Add(1)
	default:
		w.m.stats.questions.Add(1)
		w.troubled = true
		w.m.health.set(checkEvents, err.Error())
		w.m.log.Warn("appending to EVENTS is interrupted", slog.Uint64("ingest_seq", w.position), slog.Any("err", err))
	}
	return nil
}

// send hands the unit to the committer.
func (w *worker) send(ctx context.Context, a *attempt) error {
	if err := w.units.put(ctx, a.unit); err != nil {
		return err
	}
	w.sent++
	pos, _ := w.m.committed.get()
	w.cache.trim(pos.IngestSeq)
	return nil
}

// settle waits until all that was sent is committed, so that states can be read
// from the store again, and asks EVENTS where it ends. An EVENTS that ends below
// the table has lost its end, and gets it back first.
func (w *worker) settle(ctx context.Context) error {
	wake(w.m.workerIdle)
	if err := w.m.committed.wait(ctx, w.sent); err != nil {
		return err
	}
	var wait backoff
	for {
		last, err := w.m.eventsLast(ctx)
		lost := err == nil && last < w.table
		if lost {
			last, err = w.m.putBack(ctx, last, w.table)
		}
		if err == nil {
			err = w.m.mayAppend(ctx, last, lost)
		}
		if err == nil {
			w.end, w.landed.end = end{seq: last}, end{seq: last}
			if wait.d > 0 {
				w.m.health.set(checkEvents, "")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if replaced(err) {
			return err
		}
		w.m.health.set(checkEvents, err.Error())
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}
