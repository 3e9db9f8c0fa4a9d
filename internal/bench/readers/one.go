package readers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/live"
)

// OneResult is what was measured.
type OneResult struct {
	Facts     int
	PerSecond int
	Frame     Times // from the commit of a fact to its frame
	Bare      Times // from the publish of the same bytes to a subscriber
}

// One measures facts at a pace with one reader and, between them, bare messages of the
// same size over connections of their own.
func One(ctx context.Context, facts, perSecond int) (r OneResult, err error) {
	w, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	one, err := follow(ctx, w.gateway.Addr(), "", facts)
	if err != nil {
		return r, err
	}
	defer one.conn.Close()
	bare, err := newBare(w.server.ClientURL(), facts)
	if err != nil {
		return r, err
	}
	defer bare.close()

	var g errgroup.Group
	g.Go(func() error { return one.read(facts) })
	key := bus.Key{Workspace: "w", Session: "s"}
	gap := time.Second / time.Duration(perSecond)
	g.Go(func() error { return bare.publish(ctx, facts, gap) })
	if _, err := w.publish(ctx, facts, perSecond, func(int) bus.Key { return key }); err != nil {
		return r, err
	}
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	defer context.AfterFunc(patience, func() { one.conn.Close() })()
	if err := errors.Join(w.settle(patience, uint64(facts)), g.Wait()); err != nil {
		return r, err
	}
	var frames []time.Duration
	for i, seq := range one.seqs {
		frames = append(frames, one.at[i].Sub(w.committed[seq]))
	}
	return OneResult{Facts: facts, PerSecond: perSecond, Frame: timesOf(frames), Bare: timesOf(bare.took)}, nil
}

// bare is a publisher and a subscriber on core NATS, each with a connection.
type bare struct {
	pub, sub *nats.Conn
	got      chan time.Time // room for all
	took     []time.Duration
}

func newBare(url string, n int) (*bare, error) {
	b := &bare{got: make(chan time.Time, n)}
	var err error
	if b.pub, err = nats.Connect(url); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if b.sub, err = nats.Connect(url); err != nil {
		b.pub.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	_, err = b.sub.Subscribe("bench.bare", func(*nats.Msg) { b.got <- time.Now() })
	if err == nil {
		err = b.sub.Flush()
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return b, nil
}

func (b *bare) close() {
	b.pub.Close()
	b.sub.Close()
}

// publish sends n messages, half a gap behind the facts, and notes how long each takes.
func (b *bare) publish(ctx context.Context, n int, gap time.Duration) error {
	// As many bytes as a fact's frame has.
	data := live.AppendFrame(nil, &bus.Event{Seq: uint64(n), Session: "s", Workspace: "w", Type: bus.TypeError, Data: body(0)})
	begin := time.Now().Add(gap / 2)
	for i := range n {
		if err := until(ctx, begin.Add(time.Duration(i)*gap)); err != nil {
			return err
		}
		sent := time.Now()
		if err := b.pub.Publish("bench.bare", data); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		select {
		case at := <-b.got:
			b.took = append(b.took, at.Sub(sent))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
