package materializer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// attempt is one try at a batch: it goes on from the worker's place to a place
// that becomes the worker's if nothing goes wrong.
type attempt struct {
	m       *Materializer
	number  uint64 // of the worker's attempts, from 1
	cache   *cache
	batch   []*message
	unit    *unit
	touched map[bus.Key]*cached
	ids     map[store.IDKey]store.KnownID // what the store knows of the batch's event ids
	from    uint64                        // the EVENTS number it began at
	place
	tail    *tail // open while EVENTS is being followed
	pending pending

	stateBytes int64 // what the touched states weigh

	stretches []store.Stretch        // what was read before
	rejected  map[store.Message]bool // those of the batch that were, and were rejected then
	again     bool                   // the message at hand was read before

	prune   uint64       // what the message at hand prunes below; 0 if it does not
	appends []*appending // under way, in the order they were sent
}

func (w *worker) newAttempt(batch []*message) *attempt {
	u := &unit{units: 1, done: make([]done, 0, len(batch))}
	u.commit.Rows = make([]store.Row, 0, len(batch)) // most messages give one fact
	w.attempts++
	if w.m.o.Tracer != nil {
		u.began = time.Now()
	}
	return &attempt{
		m: w.m, number: w.attempts, cache: w.cache, batch: batch, unit: u, touched: make(map[bus.Key]*cached),
		from: w.table, place: w.place, stretches: w.stretches,
	}
}

// maxStateBytes bounds the states that one attempt touches: each of them is loaded,
// and encoded when it has changed, and one may weigh tens of MiB.
const maxStateBytes = 64 << 20

// run takes the batch and sends what EVENTS lacks. Its last append may still be
// under way when it returns. Where the states are too big to be touched all at
// once, or a few facts are appended one by one, it takes only a beginning of the batch.
func (a *attempt) run(ctx context.Context) error {
	defer func() { a.tail.close() }()
	if len(a.batch) == 0 {
		if err := a.followIdle(ctx); err != nil {
			return err
		}
	}
	var err error
	if a.ids, err = a.cache.lookUp(ctx, a.batch, a.horizon()); err != nil {
		return err
	}
	if err := a.lookBack(ctx); err != nil {
		return err
	}
	for i, m := range a.batch {
		if err := a.message(ctx, m); err != nil {
			return err
		}
		if a.stateBytes > a.m.stateBytes || a.alone(len(a.batch)-i) {
			a.batch = a.batch[:i+1] // the rest is another attempt's
			break
		}
	}
	if err := crash(a.m.seam("projected")); err != nil {
		return err
	}
	if err := a.launch(); err != nil {
		return err
	}
	return a.finish()
}

// horizon is the time before which an event id must not have been applied to be
// known still, ns.
func (a *attempt) horizon() int64 { return a.highest - a.m.o.Streams.Horizon.Nanoseconds() }

// message takes one message: the state moves by its own projection, the rows by
// what EVENTS holds, and what EVENTS lacks is queued to be appended.
func (a *attempt) message(ctx context.Context, m *message) error {
	a.again = heldBy(a.stretches, m.Seq, m.Time)
	if gap := m.Seq - a.position - 1; gap > 0 {
		a.hole(m, gap)
	}
	if !a.again && (a.since == 0 || m.Time < a.since) {
		a.since = m.Time
	}
	a.highest = max(a.highest, m.Time)
	// Followed first: a row whose message INGEST has lost says what its session knows,
	// and m may be that very message, sent again.
	held, err := a.follow(ctx, m)
	if err != nil {
		return err
	}
	if err := a.bridge(ctx, m, held); err != nil {
		return err
	}
	res, err := a.project(ctx, m)
	if err != nil {
		return err
	}
	if err := a.give(ctx, m, res.Facts, held); err != nil {
		return err
	}
	a.position = m.Seq
	c := &a.unit.commit
	if a.prune > 0 {
		// Only what came before it is pruned, however far it reaches: what comes after
		// it may be in the same commit or not, and would be pruned here and kept there.
		c.PruneBefore = max(c.PruneBefore, min(a.prune, a.table+uint64(a.pending.rows)+1))
		a.prune = 0
	}
	c.Position = store.Position{IngestSeq: m.Seq, IngestTime: m.Time, HighestTime: a.highest, Since: a.since}
	return nil
}

// project applies the message to its session's state and notes what follows.
func (a *attempt) project(ctx context.Context, m *message) (projection.Result, error) {
	switch {
	case a.skips(m):
		return a.drop(m), nil
	case m.subjectErr != nil:
		return a.refuse(m, m.subjectErr), nil
	case m.admin:
		return a.projectAdmin(m), nil
	}
	e, err := a.cache.state(ctx, m.Key, m.Seq)
	if err != nil {
		return projection.Result{}, err
	}
	a.touch(m.Key, e)
	var known *projection.KnownID
	if id := m.Identity; id.EventID != "" && id.Publisher == "" {
		known = a.cache.known(store.IDKey{Key: m.Key, EventID: id.EventID}, a.ids, a.horizon())
		if a.expired(m, known) && !e.state.Forgotten {
			return a.drop(m), nil
		}
	}
	res := e.state.Apply(m.Message, known)
	a.note(m, &res)
	if res.Outcome != projection.Dropped && m.Class == bus.ClassProjection {
		a.unit.done[len(a.unit.done)-1].frontier = e.state.Chain.Position
	}
	return res, nil
}

// touch notes that the attempt may change a session's state.
func (a *attempt) touch(k bus.Key, e *cached) {
	if e.toucher != a.number {
		e.toucher = a.number
		a.touched[k] = e
		a.stateBytes += e.bytes
	}
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
	switch c.Op {
	case bus.OpPrune:
		a.prune = c.Before
		a.unit.removals = true
	case bus.OpDiscard:
		a.unit.commit.Discards = append(a.unit.commit.Discards, c.Entries...)
	}
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
		w := a.unit.session(m.Key)
		w.Forget = true
		if res.Erase {
			w.Erase = m.Seq
		}
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
