package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/target"
)

const (
	// localTimeout is how long a server on this machine may take to answer before
	// the demo brings its own.
	localTimeout = time.Second
	// demoIngestBytes bounds what a demo of its own may say in a directory that
	// is removed again.
	demoIngestBytes = 1 << 30
	// statusPause is the pause between questions whether a bus answers.
	statusPause = 50 * time.Millisecond
)

// demoBus is the bus that a demo plays on.
type demoBus struct {
	nats    natsFlags
	natsURL string
	httpURL string // empty: it is not ours, and where its gateway is is not known
	data    string // of its own
	removed bool   // data goes at the end
	conn    *target.NATS

	stop  context.CancelFunc // of its own
	ended chan struct{}      // closed when its own has ended; err is set then
	err   error
}

// bus returns the bus that the options mean.
func (o *demoOptions) bus(ctx context.Context, e env) (*demoBus, error) {
	b := &demoBus{nats: o.nats, natsURL: o.nats.server}
	if b.natsURL == "" && o.data == "" {
		b.natsURL = os.Getenv("NATS_URL")
	}
	if b.natsURL != "" {
		return b, b.reach(ctx, connectTimeout)
	}
	if o.data == "" {
		b.natsURL = target.DefaultServer
		if err := b.reach(ctx, localTimeout); err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return b, b.begin(ctx, e, o.data)
}

// reach connects to the server and asks whether a bus answers there.
func (b *demoBus) reach(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoServer)
	defer cancel()
	conn, err := target.OpenNATS(ctx, target.Options{Server: b.natsURL, Prefix: b.nats.prefix, NATS: b.nats.options(b.natsURL)})
	if err != nil {
		return err
	}
	for {
		if _, err = conn.Status(ctx); err == nil {
			b.conn = conn
			return nil
		}
		// One of our own has just begun, another one answers or does not.
		if b.ended == nil || ctx.Err() != nil || !errors.Is(err, bus.ErrUnavailable) {
			return errors.Join(err, conn.Close())
		}
		select {
		case <-time.After(statusPause):
		case <-b.ended:
			return errors.Join(b.err, conn.Close())
		case <-ctx.Done():
		}
	}
}

// begin starts a bus in this process, at the addresses that the other commands look
// at if they are free.
func (b *demoBus) begin(ctx context.Context, e env, data string) error {
	o := serveOptions{nats: b.nats, data: data, idHorizon: bus.DefaultIDHorizon, replicas: 1, patience: startTimeout}
	o.nats.server = ""
	if data == "" {
		dir, err := os.MkdirTemp("", "skald-demo-")
		if err != nil {
			return fmt.Errorf("make data directory: %w", err)
		}
		o.data, o.ingestBytes, b.removed = dir, demoIngestBytes, true
	}
	b.data = o.data
	o.listen, o.http = natsd.DefaultListen, gateway.DefaultListen
	const free = "127.0.0.1:0"
	if o.embedded(nil).Try() != nil {
		o.listen = free
	}
	if gateway.Try(o.http, false) != nil {
		o.http = free
	}
	for {
		err := b.run(ctx, e, o) // another program may still come first
		switch {
		case err == nil:
			return nil
		case errors.Is(err, natsd.ErrListen) && o.listen != free:
			o.listen = free
		case errors.Is(err, gateway.ErrListen) && o.http != free:
			o.http = free
		default:
			return errors.Join(err, b.close())
		}
	}
}

// run starts the bus and waits until it answers. With an error nothing runs.
func (b *demoBus) run(ctx context.Context, e env, o serveOptions) error {
	begun := make(chan struct{})
	o.started = func(natsURL, httpURL string) {
		b.natsURL, b.httpURL = natsURL, httpURL
		close(begun)
	}
	b.ended = make(chan struct{})
	// It outlives ctx: the end of the story is still said on it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	log := newLogger(e, slog.LevelWarn)
	go func() {
		defer close(b.ended)
		b.err = serve(serving, env{stdin: e.stdin, stdout: io.Discard, stderr: e.stderr}, o, log, log)
	}()
	var err error
	select {
	case <-begun:
		if err = b.reach(ctx, connectTimeout); err == nil {
			return nil
		}
	case <-b.ended: // which end tells of
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, b.end())
}

// watch calls end with the reason if the bus of its own ends under the story, until
// the returned function is called.
func (b *demoBus) watch(end context.CancelCauseFunc) (unwatch func()) {
	if b.ended == nil {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-b.ended:
			end(fmt.Errorf("the demo's own bus has ended: %w", b.err))
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// end lets go of the bus, and ends what is the demo's own.
func (b *demoBus) end() error {
	var errs []error
	if b.conn != nil {
		errs = append(errs, b.conn.Close())
		b.conn = nil
	}
	if b.stop != nil {
		b.stop()
		<-b.ended
		errs = append(errs, b.err)
		b.stop = nil
	}
	return errors.Join(errs...)
}

// close is end, and removes what is to be.
func (b *demoBus) close() error {
	err := b.end()
	if b.removed {
		err = errors.Join(err, os.RemoveAll(b.data))
	}
	return err
}

// where says which bus it is.
func (b *demoBus) where() string {
	if b.ended == nil {
		return "the bus on " + b.conn.String()
	}
	data := b.data
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	if b.removed {
		return "a bus of its own, in " + data + " until it ends"
	}
	return "a bus of its own, in " + data
}
