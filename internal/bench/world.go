package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// serveGCPercent is what skald serve sets.
	serveGCPercent = 200
	startTimeout   = 30 * time.Second
	storeFile      = "skald.db"
)

// world is a bus in this process, on a server that syncs before it acknowledges.
type world struct {
	dir     string
	server  *natsd.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	subj    bus.Subjects
	streams bus.Streams
	store   *store.Store
}

func newWorld(ctx context.Context, dir string) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start bus: %w", err), w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp(dir, "world-"); err != nil {
		return w, err
	}
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if w.server, err = natsd.Start(start, natsd.Options{Dir: w.dir, Listen: "127.0.0.1:0"}); err != nil {
		return w, err
	}
	if w.nc, err = w.server.InProcess(); err != nil {
		return w, err
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		return w, err
	}
	if w.subj, err = bus.NewSubjects(""); err != nil {
		return w, err
	}
	if w.streams, err = w.subj.Open(ctx, w.js, bus.StreamOptions{MaxPayload: w.nc.MaxPayload()}, ""); err != nil {
		return w, err
	}
	if w.store, err = store.Open(filepath.Join(w.dir, storeFile), store.Options{}); err != nil {
		return w, err
	}
	return w, w.store.Adopt(ctx, store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID})
}

// close stops everything and removes the directory.
func (w *world) close() error {
	var errs []error
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	if w.nc != nil {
		w.nc.Close()
	}
	if w.server != nil {
		w.server.Shutdown()
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// catchUp runs a materializer until it has committed INGEST's message of that
// sequence, with the garbage collector set as serve sets it, and returns how long
// that took.
func (w *world) catchUp(ctx context.Context, ingestSeq uint64) (took time.Duration, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(serveGCPercent))
	reached := make(chan struct{}, 1)
	m, err := materializer.New(materializer.Options{
		AppendMessages: w.server.BatchMessages(), ChainAppends: true, Conn: w.nc, JS: w.js, Store: w.store, Streams: w.streams, Subjects: w.subj,
		Committed: func(p store.Position) {
			if p.IngestSeq >= ingestSeq {
				select {
				case reached <- struct{}{}:
				default:
				}
			}
		},
	})
	if err != nil {
		return 0, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- m.Run(running) }()
	select {
	case <-reached:
	case err = <-ended:
		cancel()
		return 0, errors.Join(errors.New("the materializer has ended"), err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	took = time.Since(start)
	cancel()
	return took, errors.Join(err, <-ended)
}

// facts returns how many messages EVENTS holds.
func (w *world) facts(ctx context.Context) (uint64, error) {
	info, err := w.streams.Events.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at EVENTS: %w", err)
	}
	return info.State.Msgs, nil
}
