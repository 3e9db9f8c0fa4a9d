package materializer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// idleCheck is how often an idle worker looks whether EVENTS holds rows that the
// table lacks although INGEST has nothing new to say.
const idleCheck = 2 * time.Second

// worker projects, follows and appends. One goroutine owns it.
type worker struct {
	m     *Materializer
	in    *intake
	units chan<- *unit
	sent  int64 // units handed to the committer
	cache *cache

	position uint64 // INGEST sequence that all units sent reach
	highest  int64  // highest INGEST time applied, ns
	table    uint64 // EVENTS number that all units sent reach
	end      end
}

func (m *Materializer) newWorker(pos store.Position, in *intake, units chan<- *unit) *worker {
	return &worker{
		m: m, in: in, units: units, cache: newCache(m.reader),
		position: pos.IngestSeq, highest: pos.HighestTime, table: pos.EventsSeq,
	}
}

func (w *worker) run(ctx context.Context) error {
	tick := time.NewTicker(idleCheck)
	defer tick.Stop()
	if err := w.settle(ctx); err != nil {
		return err
	}
	for {
		if w.in.empty() {
			wake(w.m.workerIdle)
		}
		batch, err := w.in.take(ctx, tick.C)
		if err != nil {
			return err
		}
		if batch == nil {
			if err := w.idle(ctx); err != nil {
				return err
			}
			continue
		}
		if err := w.m.seam("read"); err != nil {
			return err
		}
		if err := w.process(ctx, batch); err != nil {
			return err
		}
		w.in.done(batch)
	}
}

// idle follows EVENTS when no message is at hand.
func (w *worker) idle(ctx context.Context) error {
	last, err := w.m.eventsLast(ctx)
	if err != nil || last <= w.table {
		return nil // the watcher reports a server that does not answer
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.process(ctx, nil)
}

// process turns a batch into a unit, however often it takes, and hands it over.
// An attempt that lost a race, or whose append is a question, is taken back:
// what it did append is in EVENTS, and the next attempt follows it.
func (w *worker) process(ctx context.Context, batch []*message) error {
	var wait backoff
	troubled := false
	for {
		a := w.newAttempt(batch)
		err := a.run(ctx)
		if err == nil {
			w.accept(a)
			if troubled {
				w.m.health.set(checkEvents, "")
			}
			if len(batch) == 0 && a.unit.commit.Position.EventsSeq == w.tableCommitted() {
				return nil
			}
			return w.send(ctx, a)
		}
		w.cache.drop(a.touched)
		w.cache.forget(a.unit.commit.IDs)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var crash *seamError
		switch {
		case errors.As(err, &crash):
			return crash.err
		case errors.Is(err, errLostRace):
			w.m.stats.appendsLost.Add(1)
			wait.reset()
		default:
			troubled = true
			w.m.stats.questions.Add(1)
			w.m.health.set(checkEvents, err.Error())
			w.m.log.Warn("appending to EVENTS is interrupted", slog.Uint64("ingest_seq", w.position), slog.Any("err", err))
			if err := wait.wait(ctx); err != nil {
				return err
			}
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
	}
}

// tableCommitted is the EVENTS number that the table has reached.
func (w *worker) tableCommitted() uint64 {
	pos, _ := w.m.committed.get()
	return pos.EventsSeq
}

// accept moves the worker's position behind a successful attempt.
func (w *worker) accept(a *attempt) {
	w.position, w.highest, w.table, w.end = a.position, a.highest, a.table, a.end
}

// send hands the unit to the committer. A full channel is backpressure: the
// store is what is slow, and reading waits for it.
func (w *worker) send(ctx context.Context, a *attempt) error {
	select {
	case w.units <- a.unit:
	case <-ctx.Done():
		select {
		case w.units <- a.unit: // the committer empties the channel before it stops
		default:
		}
		return ctx.Err()
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
		if err == nil && last < w.table {
			last, err = w.m.putBack(ctx, last, w.table)
		}
		if err == nil {
			w.end = end{seq: last}
			if wait.d > 0 {
				w.m.health.set(checkEvents, "")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrEventsDiffer) {
			return err
		}
		w.m.health.set(checkEvents, err.Error())
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}

// attempt is one try at a batch: a copy of the worker's position that becomes the
// worker's if it succeeds.
type attempt struct {
	*worker
	batch    []*message
	unit     *unit
	touched  map[bus.Key]*cached
	position uint64
	highest  int64
	table    uint64
	end      end
	tail     *tail // open while EVENTS is being followed
	pending  pending
}

func (w *worker) newAttempt(batch []*message) *attempt {
	return &attempt{
		worker: w, batch: batch, unit: &unit{units: 1}, touched: make(map[bus.Key]*cached),
		position: w.position, highest: w.highest, table: w.table, end: w.end,
	}
}

func (a *attempt) run(ctx context.Context) error {
	defer func() { a.tail.close() }()
	if len(a.batch) == 0 {
		if err := a.followIdle(ctx); err != nil {
			return err
		}
	}
	for _, m := range a.batch {
		if err := a.message(ctx, m); err != nil {
			return err
		}
	}
	if err := crash(a.m.seam("projected")); err != nil {
		return err
	}
	if err := a.flush(ctx); err != nil {
		return err
	}
	return a.finish()
}

// message takes one message: the state moves by its own projection, the rows by
// what EVENTS holds, and what EVENTS lacks is queued to be appended.
func (a *attempt) message(ctx context.Context, m *message) error {
	if gap := m.Seq - a.position - 1; gap > 0 {
		a.unit.commit.Counters.Holes += int64(gap)
	}
	a.highest = max(a.highest, m.Time)
	res, err := a.project(ctx, m)
	if err != nil {
		return err
	}
	held, err := a.follow(ctx, m)
	if err != nil {
		return err
	}
	if err := a.place(ctx, m, res.Facts, held); err != nil {
		return err
	}
	a.position = m.Seq
	c := &a.unit.commit
	c.Position = store.Position{IngestSeq: m.Seq, IngestTime: m.Time, HighestTime: a.highest}
	return nil
}

// project applies the message to its session's state and notes what follows.
func (a *attempt) project(ctx context.Context, m *message) (projection.Result, error) {
	switch {
	case m.subjectErr != nil:
		return a.refuse(m, m.subjectErr), nil
	case m.admin:
		return a.projectAdmin(m), nil
	}
	e, err := a.cache.state(ctx, m.Key, m.Seq)
	if err != nil {
		return projection.Result{}, err
	}
	a.touched[m.Key] = e
	var known *projection.KnownID
	if id := m.Identity; id.EventID != "" && id.Publisher == "" {
		if known, err = a.cache.known(ctx, m.Key, id.EventID, a.highest-a.m.o.Streams.Horizon.Nanoseconds()); err != nil {
			return projection.Result{}, err
		}
	}
	res := e.state.Apply(m.Message, known)
	a.note(m, &res)
	if res.Outcome != projection.Dropped && m.Class == bus.ClassProjection {
		a.unit.done[len(a.unit.done)-1].frontier = e.state.Chain.Position
	}
	return res, nil
}

// projectAdmin takes a control message that belongs to no session.
func (a *attempt) projectAdmin(m *message) projection.Result {
	if m.Class != bus.ClassControl {
		return a.refuse(m, &bus.InvalidError{Reason: bus.ReasonClass, Field: "class", Rule: "must be control where the subject names no session"})
	}
	body, err := bus.Compact(m.Body)
	var c bus.Control
	if err == nil {
		c, err = bus.ParseControl(body, true)
	}
	if err != nil {
		return a.refuse(m, err)
	}
	a.unit.commit.PruneBefore = max(a.unit.commit.PruneBefore, c.Before)
	a.unit.removals = true
	res := projection.Result{Outcome: projection.Applied}
	a.note(m, &res)
	return res
}

// refuse rejects a message that no session's state has a say in.
func (a *attempt) refuse(m *message, why error) projection.Result {
	res := projection.Result{Outcome: projection.Rejected, Reason: bus.ReasonSubject, Detail: why.Error()}
	var invalid *bus.InvalidError
	if errors.As(why, &invalid) && invalid.Reason != "" {
		res.Reason = invalid.Reason
	}
	res.Rejects = []projection.Reject{{
		Seq: m.Seq, Time: m.Time, Class: m.Class, Reason: res.Reason, Detail: res.Detail,
		Payload: m.Body, Size: len(m.Body), Identity: m.Identity,
	}}
	a.note(m, &res)
	return res
}

// note writes into the unit what a result asks for beside its facts.
func (a *attempt) note(m *message, res *projection.Result) {
	c := &a.unit.commit
	switch res.Outcome {
	case projection.Applied:
		c.Counters.Applied++
	case projection.Duplicate:
		c.Counters.Duplicates++
	case projection.Dropped:
		c.Counters.Dropped++
	}
	c.Counters.Unprojected += int64(res.Unprojected)
	for _, r := range res.Rejects {
		a.reject(m, r)
	}
	for i := range res.Release {
		c.Held = append(c.Held, store.HeldWrite{Key: m.Key, Release: &res.Release[i]})
	}
	if res.Hold != nil {
		c.Held = append(c.Held, store.HeldWrite{Key: m.Key, Page: res.Hold})
	}
	if res.Remember {
		id := store.ID{Key: m.Key, EventID: m.Identity.EventID, Hash: res.Hash, AppliedTime: a.highest, IngestSeq: m.Seq}
		c.IDs = append(c.IDs, id)
		a.cache.remember(id)
	}
	if res.Forget {
		a.unit.session(m.Key).Forget = true
		a.unit.removals = true
	}
	a.unit.done = append(a.unit.done, done{msg: m, outcome: res.Outcome, reason: res.Reason})
}

// reject adds a reject entry. It belongs to the message's session, unless the
// subject names none.
func (a *attempt) reject(m *message, r projection.Reject) {
	w := store.RejectWrite{Subject: m.subject, Reject: r}
	if m.subjectErr == nil && !m.admin {
		w.Key = &m.Key
	}
	a.unit.commit.Rejects = append(a.unit.commit.Rejects, w)
}

// finish completes the unit: the positions it reaches, and the changed parts of
// the states it touched, encoded now since the next batch changes them again.
func (a *attempt) finish() error {
	c := &a.unit.commit
	c.Position.EventsSeq = a.table
	if n := len(a.batch); n > 0 {
		h := sha256.Sum256(a.batch[n-1].Body)
		copy(c.Position.IngestHash[:], h[:])
	} else {
		pos, _ := a.m.committed.get()
		pos.EventsSeq = a.table
		c.Position = pos
	}
	for k, e := range a.touched {
		st := e.state
		if _, forgotten := a.unit.sessions[k]; st.Changed == 0 && !forgotten {
			continue
		}
		w := a.unit.session(k)
		w.Exists = st.Exists
		w.HeldPages = len(st.Held)
		if st.Forgotten {
			st.Changed = 0
			a.cache.weigh(e, 0)
			continue
		}
		w.LastActivityAt = st.LastActivityAt
		size := int64(0)
		if st.Changed&projection.PartChain != 0 {
			w.Chain = st.AppendChain(nil)
			size += int64(len(w.Chain))
		}
		if st.Changed&projection.PartPublishers != 0 {
			w.Publishers = st.AppendPublishers(nil)
			size += int64(len(w.Publishers))
		}
		if st.Changed&projection.PartView != 0 {
			var err error
			if w.View, err = st.AppendView(nil); err != nil {
				return crash(fmt.Errorf("encode session %q of workspace %q: %w", k.Session, k.Workspace, err))
			}
			size += int64(len(w.View))
		}
		for _, h := range st.Held {
			size += int64(len(h.Body))
		}
		a.cache.weigh(e, max(size, e.bytes-stateOverhead))
		st.Changed = 0
	}
	return nil
}

// seamError carries an error that ends Run through the retry loop.
type seamError struct{ err error }

func (e *seamError) Error() string { return e.err.Error() }

func crash(err error) error {
	if err == nil {
		return nil
	}
	return &seamError{err}
}
