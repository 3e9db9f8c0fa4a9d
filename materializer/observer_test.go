package materializer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// meanings are what numbers were seen to stand for, by all readers of all tables.
type meanings struct {
	mu sync.Mutex
	of map[uint64]string
}

// see notes an event; the error tells that its number stood for another one.
func (m *meanings) see(e *bus.Event) error {
	now := string(e.AppendJSON(nil))
	m.mu.Lock()
	defer m.mu.Unlock()
	was, ok := m.of[e.Seq]
	m.of[e.Seq] = now
	if ok && was != now {
		return fmt.Errorf("number %d was\n%s and is\n%s", e.Seq, was, now)
	}
	return nil
}

// observer reads a node's pages all the while, as another process would, and
// keeps its cursor.
type observer struct {
	n      *node
	r      *rand.Rand
	m      *meanings
	cursor uint64
	latest uint64
	seen   map[uint64]bool
	pages  int

	stop chan struct{}
	done chan error
}

func (n *node) observer(r *rand.Rand, m *meanings) *observer {
	o := &observer{n: n, r: r, m: m, seen: map[uint64]bool{}}
	o.resume()
	return o
}

// resume goes on reading; pause stops it and requires that nothing was wrong.
func (o *observer) resume() {
	stop, done := make(chan struct{}), make(chan error, 1)
	o.stop, o.done = stop, done
	go func() { done <- o.watch(stop) }()
}

func (o *observer) pause() {
	o.n.w.t.Helper()
	close(o.stop)
	require.NoError(o.n.w.t, <-o.done)
}

// restart forgets the cursor, since the table was put back. What numbers mean holds.
func (o *observer) restart() {
	o.cursor, o.latest, o.seen = 0, 0, map[uint64]bool{}
}

func (o *observer) watch(stop chan struct{}) error {
	var r *store.Reader
	defer func() {
		if r != nil {
			r.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		if r == nil {
			var err error
			if r, err = store.OpenReader(o.n.path); err != nil {
				r = nil // not made yet
				continue
			}
		}
		if err := o.step(r); err != nil {
			return err
		}
	}
}

// step reads on, and now and then looks back.
func (o *observer) step(r *store.Reader) error {
	p, err := r.Page(context.Background(), store.PageQuery{After: &bus.Cursor{Seq: o.cursor}, Limit: 1 + o.r.IntN(60)})
	var gone *store.CursorError
	switch {
	case errors.As(err, &gone) && errors.Is(err, bus.ErrCursorGone):
		o.cursor = gone.Oldest - 1
		return nil
	case err != nil:
		return fmt.Errorf("read on after %d: %w", o.cursor, err)
	case p.Latest < o.latest:
		return fmt.Errorf("latest went from %d to %d", o.latest, p.Latest)
	case p.NextAfter < o.cursor:
		return fmt.Errorf("next_after went from %d to %d", o.cursor, p.NextAfter)
	}
	o.pages++
	o.latest = p.Latest
	last := o.cursor
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq <= last || e.Seq > p.NextAfter {
			return fmt.Errorf("number %d follows %d in a page up to %d", e.Seq, last, p.NextAfter)
		}
		last = e.Seq
		o.seen[e.Seq] = true
		if err := o.m.see(e); err != nil {
			return err
		}
	}
	o.cursor = p.NextAfter
	if o.r.IntN(4) > 0 || o.cursor == 0 {
		return nil
	}
	p, err = r.Page(context.Background(), store.PageQuery{After: &bus.Cursor{Seq: o.r.Uint64N(o.cursor)}, Limit: 20})
	if err != nil {
		if errors.Is(err, bus.ErrCursorGone) {
			return nil
		}
		return fmt.Errorf("look back from %d: %w", o.cursor, err)
	}
	for i := range p.Events {
		if e := &p.Events[i]; e.Seq <= o.cursor && !o.seen[e.Seq] {
			return fmt.Errorf("number %d appeared behind the cursor %d", e.Seq, o.cursor)
		} else if err := o.m.see(e); err != nil {
			return err
		}
	}
	return nil
}
