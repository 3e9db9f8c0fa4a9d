package readers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
)

// ManyOptions are a load. Zero values are the bar's: 1,000 readers of 100 workspaces and
// 10 of everything at 500 facts a second.
type ManyOptions struct {
	Facts      int // in all; defaults to 10 seconds' worth
	PerSecond  int
	Readers    int
	Everything int
	Workspaces int
}

func (o ManyOptions) withDefaults() ManyOptions {
	for _, d := range []struct {
		v    *int
		zero int
	}{{&o.PerSecond, 500}, {&o.Readers, 1000}, {&o.Everything, 10}, {&o.Workspaces, 100}} {
		if *d.v == 0 {
			*d.v = d.zero
		}
	}
	if o.Facts == 0 {
		o.Facts = 10 * o.PerSecond
	}
	return o
}

// ManyResult is what was measured.
type ManyResult struct {
	Options   ManyOptions
	Deliver   Times         // from the call that publishes to each frame, of all readers
	Bare      Times         // from the publish of the same bytes to a subscriber, meanwhile
	Committed Times         // from the commit to each frame
	Lag       time.Duration // from the last publish to the last commit
	Wrong     int           // readers that lost or repeated a fact, or got them in another order
}

// Many has readers follow a steady load, and a bare subscriber beside them.
func Many(ctx context.Context, o ManyOptions) (r ManyResult, err error) {
	o = o.withDefaults()
	w, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()

	list := make([]*reader, 0, o.Readers+o.Everything)
	defer func() {
		for _, one := range list {
			one.conn.Close()
		}
	}()
	expect := func(i int) int { // facts of a reader: fact n is of workspace n mod Workspaces
		if i >= o.Readers {
			return o.Facts
		}
		return (o.Facts - i%o.Workspaces + o.Workspaces - 1) / o.Workspaces
	}
	for i := range o.Readers + o.Everything {
		workspace := ""
		if i < o.Readers {
			workspace = fmt.Sprint("w", i%o.Workspaces)
		}
		one, err := follow(ctx, w.gateway.Addr(), workspace, expect(i))
		if err != nil {
			return r, err
		}
		list = append(list, one)
	}
	bare, err := newBare(w.server.ClientURL(), o.Facts)
	if err != nil {
		return r, err
	}
	defer bare.close()
	var g errgroup.Group
	for i, one := range list {
		g.Go(func() error { return one.read(expect(i)) })
	}
	g.Go(func() error { return bare.publish(ctx, o.Facts, time.Second/time.Duration(o.PerSecond)) })
	published, err := w.publish(ctx, o.Facts, o.PerSecond, func(i int) bus.Key {
		return bus.Key{Workspace: fmt.Sprint("w", i%o.Workspaces), Session: fmt.Sprint("s", i%7)}
	})
	if err != nil {
		return r, err
	}
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// A reader that lost a fact would wait for ever.
	defer context.AfterFunc(patience, func() {
		for _, one := range list {
			one.conn.Close()
		}
	})()
	if err := errors.Join(w.settle(patience, uint64(o.Facts)), g.Wait()); err != nil {
		return r, err
	}
	_, last := w.end()
	r = ManyResult{Options: o, Bare: timesOf(bare.took), Lag: max(0, last.Sub(published[o.Facts-1]))}
	var deliver, committed []time.Duration
	for i, one := range list {
		var want []uint64
		for n := range o.Facts {
			if i >= o.Readers || n%o.Workspaces == i%o.Workspaces {
				want = append(want, uint64(n+1))
			}
		}
		if !slices.Equal(want, one.seqs) {
			r.Wrong++
			continue
		}
		for k, seq := range one.seqs {
			deliver = append(deliver, one.at[k].Sub(published[seq-1]))
			committed = append(committed, one.at[k].Sub(w.committed[seq]))
		}
	}
	r.Deliver, r.Committed = timesOf(deliver), timesOf(committed)
	return r, nil
}

// publish sends n facts at a steady pace over one connection, so that fact i has the
// number i+1, and returns when each was sent.
func (w *world) publish(ctx context.Context, n, perSecond int, key func(i int) bus.Key) ([]time.Time, error) {
	sent := make([]time.Time, n)
	begin := time.Now()
	for i := range n {
		if err := until(ctx, begin.Add(time.Duration(i)*time.Second/time.Duration(perSecond))); err != nil {
			return nil, err
		}
		sent[i] = time.Now()
		m := &nats.Msg{Subject: w.subjects.Ingest(key(i), bus.ClassError), Data: body(i)}
		if _, err := w.js.PublishMsgAsync(m); err != nil {
			return nil, fmt.Errorf("publish fact %d: %w", i, err)
		}
	}
	select {
	case <-w.js.PublishAsyncComplete():
		return sent, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for acknowledgements: %w", context.Cause(ctx))
	}
}

// body is an error of about 200 bytes, never twice the same.
func body(i int) []byte {
	return fmt.Appendf(nil, `{"message":"%0180d"}`, i)
}

func until(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
