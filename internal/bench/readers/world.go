package readers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// ingestBytes bounds INGEST: JetStream sets it aside.
	ingestBytes = 256 << 20
	// maxPending is how many facts may wait for their acknowledgement.
	maxPending = 1 << 16
)

// world is a bus, running, with its gateway.
type world struct {
	server   *natsd.Server
	nc       *nats.Conn // of the publisher
	js       jetstream.JetStream
	subjects bus.Subjects
	store    *store.Store
	gateway  *gateway.Gateway
	hub      *live.Hub

	stop func() error

	mu        sync.Mutex
	last      uint64
	noted     int64                // commits that brought numbers
	committed map[uint64]time.Time // when each number was
}

// start runs a bus in a directory of its own. The server syncs before it acknowledges.
func start(ctx context.Context) (w *world, err error) {
	w = &world{committed: map[uint64]time.Time{}}
	dir, err := os.MkdirTemp("", "skald-bench-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	var undo []func() error
	w.stop = func() error {
		var errs []error
		for i := len(undo) - 1; i >= 0; i-- {
			errs = append(errs, undo[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	undo = append(undo, func() error { return os.RemoveAll(dir) })
	if w.server, err = natsd.Start(ctx, natsd.Options{Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "jetstream")}); err != nil {
		return nil, err
	}
	undo = append(undo, func() error { w.server.Shutdown(); return nil })
	inside, err := w.server.InProcess()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	undo = append(undo, func() error { inside.Close(); return nil })
	if w.nc, err = nats.Connect(w.server.ClientURL()); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	undo = append(undo, func() error { w.nc.Close(); return nil })
	// The pace is kept where the disk is not: what waits is part of what is measured.
	if w.js, err = jetstream.New(w.nc, jetstream.WithPublishAsyncMaxPending(maxPending)); err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	own, err := jetstream.New(inside)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	if w.subjects, err = bus.NewSubjects(""); err != nil {
		return nil, err
	}
	streams, err := w.subjects.Open(ctx, own, bus.StreamOptions{IngestBytes: ingestBytes, MaxPayload: inside.MaxPayload()}, "")
	if err != nil {
		return nil, err
	}
	if w.store, err = store.Open(filepath.Join(dir, "skald.db"), store.Options{}); err != nil {
		return nil, err
	}
	undo = append(undo, w.store.Close)
	if err := w.store.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}); err != nil {
		return nil, err
	}
	if w.hub, err = live.New(ctx, live.Options{Reader: w.store.Reader()}); err != nil {
		return nil, err
	}
	m, err := materializer.New(materializer.Options{
		AppendMessages: w.server.BatchMessages(), ChainAppends: true,
		Committed: func(p store.Position) {
			w.note(p)
			w.hub.Committed(p)
		},
		Conn: inside, JS: own, Store: w.store, Streams: streams, Subjects: w.subjects,
	})
	if err != nil {
		return nil, err
	}
	w.gateway, err = gateway.New(gateway.Options{
		API: api.New(api.Options{Reader: w.store.Reader()}), Live: w.hub, Listen: "127.0.0.1:0",
		Health: func() []gateway.Check { return nil },
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	for _, part := range []func(context.Context) error{m.Run, w.hub.Run, w.gateway.Run} {
		g.Go(func() error { return part(running) })
	}
	undo = append(undo, func() error { cancel(); return g.Wait() })
	return w, nil
}

// note remembers when numbers were committed.
func (w *world) note(p store.Position) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last < p.EventsSeq {
		w.noted++
	}
	for w.last < p.EventsSeq {
		w.last++
		w.committed[w.last] = now
	}
}

// end returns the last number that is committed, and when it was.
func (w *world) end() (uint64, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.committed[w.last]
}

// commits returns how many brought numbers.
func (w *world) commits() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noted
}

// soon is when to look again.
func soon() time.Time { return time.Now().Add(time.Millisecond) }

// settle waits until n numbers are committed.
func (w *world) settle(ctx context.Context, n uint64) error {
	for {
		if last, _ := w.end(); last >= n {
			return nil
		}
		if err := until(ctx, soon()); err != nil {
			last, _ := w.end()
			return fmt.Errorf("wait for %d facts, %d are committed: %w", n, last, err)
		}
	}
}
