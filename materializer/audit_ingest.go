package materializer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// auditRounds is how often an audit beside a running materializer reads on to where
// the store is by then, until it finds it at rest.
const auditRounds = 5

// reprojection projects INGEST again from its first message, on a temporary store, and
// compares the facts that come of it with the rows, and the sessions' states with the
// store's. It runs the code that a materializer runs, less EVENTS.
type reprojection struct {
	a     *auditor
	m     *Materializer
	tmp   *store.Store
	w     *worker
	in    *intake
	left  []*message // taken from in and not yet projected
	facts *factMatch
}

// project makes the comparison with what INGEST's messages give, if it can be made.
func (a *auditor) project(ctx context.Context) (err error) {
	why, err := a.cannotProject(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		return a.unchecked("INGEST was not projected again: %s", why)
	}
	dir, err := os.MkdirTemp(a.o.TempDir, "skald-verify-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tmp, err := store.Open(filepath.Join(dir, "skald.db"), store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close()) }()
	if err := tmp.Adopt(ctx, a.start.Bus); err != nil {
		return err
	}
	m := &Materializer{o: a.m.o, log: a.m.log, ingestID: a.start.IngestID, reader: tmp.Reader(), seam: a.m.seam, stateBytes: maxStateBytes}
	m.o.Store = tmp
	m.committed.init()
	m.health.init()
	in := newIntake()
	p := &reprojection{a: a, m: m, tmp: tmp, in: in, w: m.newWorker(store.Position{}, nil, in, nil), facts: newFactMatch(a)}

	g, gctx := errgroup.WithContext(ctx)
	rctx, stop := context.WithCancel(gctx)
	g.Go(func() error {
		err := m.read(rctx, rctx, 0, in)
		if rctx.Err() != nil {
			return gctx.Err() // nil if it was p that has come to its end
		}
		return err
	})
	g.Go(func() error {
		defer stop()
		return p.run(gctx)
	})
	err = g.Wait()
	if hasMoved(err) || replaced(err) {
		return a.unchecked("INGEST was not projected again to its end: %v", err)
	}
	return err
}

// cannotProject says why INGEST can not be projected again, "" if it can.
func (a *auditor) cannotProject(ctx context.Context) (string, error) {
	if a.streams.Ingest == nil {
		return "it is not there", nil
	}
	before, err := a.o.Reader.Stretches(ctx)
	if err != nil {
		return "", err
	}
	c, s := a.ingest.Config, a.ingest.State
	ms, err := strconv.ParseInt(c.Metadata[bus.MetaIDHorizon], 10, 64)
	a.m.o.Streams.Horizon = time.Duration(ms) * time.Millisecond
	switch {
	case c.Metadata[bus.MetaIngestID] != a.start.IngestID:
		return "it is not the stream that the store has read", nil
	case len(before) > 0:
		return "it was set back or made anew, and the store knows messages that it has not", nil
	case err != nil || ms <= 0:
		return "its metadata do not say how long event ids are known", nil
	case s.FirstSeq > 1:
		return fmt.Sprintf("it begins at %d, what came before was trimmed", s.FirstSeq), nil
	case s.NumDeleted > 0 || a.start.Holes > 0:
		return "it has holes, and what stood there is not known any more", nil
	case s.LastSeq < a.start.IngestSeq:
		return "it ends below the store's position", nil
	}
	return "", nil
}

// run projects up to the store's position, and on, as long as that moves, to find the
// store at rest.
func (p *reprojection) run(ctx context.Context) error {
	at := p.a.start.Position
	for round := 0; ; round++ {
		if err := p.to(ctx, at); err != nil {
			return err
		}
		s, err := p.a.o.Reader.Status(ctx)
		if err != nil {
			return fmt.Errorf("read the store: %w", err)
		}
		now := s.Position
		if now.IngestSeq == at.IngestSeq || round == auditRounds {
			break
		}
		at = now
	}
	if err := p.facts.finish(ctx, at.EventsSeq); err != nil {
		return err
	}
	return p.states(ctx, at)
}

// to projects up to a position.
func (p *reprojection) to(ctx context.Context, at store.Position) error {
	for p.w.position < at.IngestSeq {
		if len(p.left) == 0 {
			batch, err := p.in.take(ctx, nil)
			if err != nil {
				return err
			}
			p.in.done(batch)
			p.left = batch
		}
		batch := p.left
		for len(batch) > 0 && batch[len(batch)-1].Seq > at.IngestSeq {
			batch = batch[:len(batch)-1]
		}
		if len(batch) == 0 {
			return nil // the position lies in a hole
		}
		n, err := p.step(ctx, batch, at.EventsSeq)
		if err != nil {
			return err
		}
		p.left = p.left[n:]
		p.a.progress("projecting INGEST again", p.w.position, at.IngestSeq)
	}
	return nil
}

// step projects a batch, or as much of it as touches states of a bounded size, compares
// its facts with the rows up to a number, and keeps the states. It returns how many
// messages it took.
func (p *reprojection) step(ctx context.Context, batch []*message, rows uint64) (int, error) {
	t := p.w.newAttempt(batch)
	var err error
	if t.ids, err = t.cache.lookUp(ctx, batch, t.horizon()); err != nil {
		return 0, err
	}
	for i, m := range batch {
		t.highest = max(t.highest, m.Time)
		res, err := t.project(ctx, m)
		if err != nil {
			return 0, err
		}
		if err := p.facts.take(ctx, m, res.Facts, rows); err != nil {
			return 0, err
		}
		p.a.sum.Messages++
		t.position, t.prune = m.Seq, 0
		t.unit.commit.Position = store.Position{IngestSeq: m.Seq, IngestTime: m.Time, HighestTime: t.highest}
		if t.stateBytes > p.m.stateBytes {
			t.batch = batch[:i+1]
			break
		}
	}
	if err := t.finish(); err != nil {
		return 0, err
	}
	if err := p.tmp.Commit(ctx, &t.unit.commit); err != nil {
		return 0, fmt.Errorf("keep states in a temporary store: %w", err)
	}
	p.w.place = t.place
	p.m.committed.advance(t.unit.commit.Position, 1)
	p.w.cache.trim(p.w.position)
	return len(t.batch), nil
}
