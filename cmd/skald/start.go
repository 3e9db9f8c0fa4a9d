package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// startTimeout is how long serve waits for a NATS server that is starting, or
	// electing a leader.
	startTimeout = 30 * time.Second
	// startRetry is the pause between tries.
	startRetry = 500 * time.Millisecond
	// connectionName is what NATS servers list serve's connection as.
	connectionName = "skald serve"
)

// connect connects to the embedded server, or to the one outside, and checks that
// it can carry a bus.
func connect(ctx context.Context, o serveOptions, server *natsd.Server, log *slog.Logger) (*nats.Conn, error) {
	opts := o.nats.options(o.nats.server)
	opts.Name, opts.Logger = connectionName, log
	var nc *nats.Conn
	err := patiently(ctx, log, o.patience, func(ctx context.Context) (err error) {
		if nc == nil {
			if server != nil {
				if nc, err = inProcess(server, opts); errors.Is(err, nats.ErrAuthorization) {
					err = fmt.Errorf("%w: its configuration has users, name one of them with --creds, --nkey or --user", err)
				}
			} else {
				nc, err = natsconn.Connect(ctx, opts)
				err = target.ExplainConnect(err)
			}
			if err != nil {
				return err
			}
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return fmt.Errorf("use JetStream: %w", err)
		}
		return natsconn.Check(ctx, nc, js)
	})
	if err != nil && nc != nil {
		nc.Close()
	}
	return nc, err
}

// inProcess connects to the embedded server without a socket. A configuration
// with users asks for credentials like any other server.
func inProcess(server *natsd.Server, o natsconn.Options) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Logger.Warn("NATS", slog.Any("err", err))
		}),
	}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey file %s: %w", o.NKey, err)
		}
		opts = append(opts, opt)
	}
	if o.User != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	return server.InProcess(opts...)
}

// openStreams finds or makes the streams, and makes the store one of their bus.
func openStreams(ctx context.Context, o serveOptions, nc *nats.Conn, js jetstream.JetStream, subjects bus.Subjects, st *store.Store, log *slog.Logger) (streams bus.Streams, err error) {
	known, err := st.Bus(ctx)
	if err != nil {
		return streams, err
	}
	err = patiently(ctx, log, o.patience, func(ctx context.Context) (err error) {
		streams, err = subjects.Open(ctx, js, bus.StreamOptions{
			IDHorizon: o.idHorizon, IngestBytes: o.ingestBytes, MaxPayload: nc.MaxPayload(), Replicas: o.replicas,
		}, known.Epoch)
		return err
	})
	switch {
	case errors.Is(err, bus.ErrStreamMissing):
		return streams, fmt.Errorf("%w: restore the stream from a backup, or make it again: %s", err, o.repair())
	case errors.Is(err, bus.ErrOtherBus):
		return streams, fmt.Errorf("%w: check --data, --server and --prefix; if they are right: %s", err, o.repair())
	case err != nil:
		return streams, err
	}
	for _, d := range streams.Differs {
		log.Warn("stream has settings of its own", slog.String("setting", d))
	}
	return streams, st.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID})
}

// patiently tries until it works, the error is one that waiting does not mend, or
// the time is over. The error is the last one, or the cause of ctx.
func patiently(ctx context.Context, log *slog.Logger, most time.Duration, try func(context.Context) error) error {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	for {
		err := try(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		log.Warn("NATS is not ready yet", slog.Any("err", err))
		again := time.NewTimer(startRetry)
		select {
		case <-again.C:
		case <-deadline.C:
			again.Stop()
			return fmt.Errorf("gave up after %s: %w", most, err)
		case <-ctx.Done():
			again.Stop()
			return context.Cause(ctx)
		}
	}
}

// noPeers is JetStream's "no suitable peers for placement": they may yet come.
const noPeers = 10005

// final reports whether an error stays what it is until somebody acts.
func final(err error) bool {
	var invalid *bus.InvalidError
	var refused *jetstream.APIError
	if errors.As(err, &invalid) {
		return true
	}
	if errors.As(err, &refused) {
		return refused.Code != http.StatusServiceUnavailable && refused.ErrorCode != noPeers
	}
	for _, f := range []error{
		bus.ErrOtherBus, bus.ErrContract, bus.ErrStreamSettings, bus.ErrStreamMissing, bus.ErrServerTooOld, bus.ErrNoJetStream,
		natsconn.ErrURL, natsconn.ErrOptions, natsconn.ErrRefused, natsconn.ErrTLS, natsconn.ErrPermission, nats.ErrAuthorization,
	} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}
