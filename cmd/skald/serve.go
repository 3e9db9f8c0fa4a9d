package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// flushTimeout is how long serve waits for the server when it stops.
const flushTimeout = 2 * time.Second

// serveOptions are serve's flags.
type serveOptions struct {
	nats        natsFlags
	data        string
	listen      string
	http        string
	natsConfig  string
	sync        time.Duration
	idHorizon   time.Duration
	ingestBytes int64
	replicas    int
	serverFrom  string // what nats.server was named by, if it is
	logLevel    string
	patience    time.Duration // how long to wait for NATS to be ready
}

func serveCommand(e env) *cobra.Command {
	o := serveOptions{patience: startTimeout}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the bus: streams, store, HTTP and NATS service",
		Long: `Run the bus. Without --server (or NATS_URL) it brings its own NATS server with
JetStream, kept in DIR/jetstream; with it, it uses that one. The store is
DIR/skald.db. SIGTERM or Ctrl-C stop it cleanly, a second one at once.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.data, "data", target.DefaultData, "data `directory`, made if it is not there")
	f.StringVar(&o.listen, "listen", natsd.DefaultListen, "`address` of the embedded NATS server, port 0 picks a free one")
	f.StringVar(&o.http, "http", gateway.DefaultListen, "`address` of the HTTP gateway, port 0 picks a free one")
	f.StringVar(&o.natsConfig, "nats-config", "", "configuration `file` of the embedded NATS server (accounts, TLS)")
	f.DurationVar(&o.sync, "sync-interval", 0, "how often the embedded NATS server syncs to disk; 0 syncs before each acknowledgement, more can lose acknowledged messages when the machine fails")
	f.DurationVar(&o.idHorizon, "id-horizon", bus.DefaultIDHorizon, "how long bare event ids are known, for a new bus")
	f.Int64Var(&o.ingestBytes, "ingest-max-bytes", 0, "bound of INGEST in `bytes`, for a new bus (default 8 GiB, less on a small disk)")
	f.IntVar(&o.replicas, "replicas", 1, "copies of each stream, for a new bus")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	o.nats.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, quiet, err := o.check(cmd, e)
		if err != nil {
			return err
		}
		ctx, stop := stopOnSignal(cmd.Context(), e)
		defer stop()
		err = serve(ctx, e, o, log, quiet)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // stopped while it was starting
		}
		return err
	}
	return cmd
}

// stopOnSignal returns a context that the first SIGINT or SIGTERM ends. The second
// one ends the process.
func stopOnSignal(ctx context.Context, e env) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			e.note("skald: stopping; once more stops it at once")
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// gcPercent trades some memory for processor time: under load much of what is read
// and sent is garbage at once, and little lives on. GOGC overrides it.
const gcPercent = 200

// serve starts the parts in their order, runs them, and stops them in the reverse
// one: gateway, service, materializer, store, NATS connection, NATS server.
func serve(ctx context.Context, e env, o serveOptions, log, quiet *slog.Logger) (err error) {
	subjects, err := bus.NewSubjects(o.nats.prefix)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	closing := func(doing string, close func() error) {
		if closeErr := close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", doing, closeErr))
		}
	}

	// An outside server that is not there leaves no data directory behind. Our own
	// needs the directory, which belongs to one process.
	var server *natsd.Server
	var nc *nats.Conn
	if o.nats.server != "" {
		if nc, err = connect(ctx, o, nil, log); err != nil {
			return err
		}
		defer closeConn(nc, log)
	}
	lock, err := o.own()
	if err != nil {
		return err
	}
	defer closing("release data directory", lock.Release)
	if o.nats.server == "" {
		if server, err = natsd.Start(ctx, o.embedded(quiet)); err != nil {
			return o.listenError(err)
		}
		defer server.Shutdown()
		if nc, err = connect(ctx, o, server, log); err != nil {
			return err
		}
		defer closeConn(nc, log)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}

	// The store, and the bus it belongs to.
	st, err := store.Open(filepath.Join(o.data, target.StoreFile), store.Options{Logger: log})
	if err != nil {
		return err
	}
	defer closing("close store", st.Close)
	streams, err := openStreams(ctx, o, nc, js, subjects, st, log)
	if err != nil {
		return err
	}

	m, err := materializer.New(materializer.Options{
		Conn: nc, JS: js, Logger: log, Store: st, Streams: streams, Subjects: subjects,
	})
	if err != nil {
		return err
	}
	answers := api.New(api.Options{
		Ends: func(ctx context.Context) (api.Ends, error) {
			ends, err := m.Ends(ctx)
			return api.Ends(ends), err
		},
		Horizon: streams.Horizon, Logger: log, Reader: st.Reader(),
	})
	svc := service.New(service.Options{API: answers, Conn: nc, Logger: log, Subjects: subjects, Version: buildVersion().Version})
	gw, err := gateway.New(gateway.Options{
		API: answers, Listen: o.http, Logger: log,
		Health: func() []gateway.Check {
			var checks []gateway.Check
			for _, c := range m.Health() {
				checks = append(checks, gateway.Check(c))
			}
			return checks
		},
	})
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	e.banner(o, server, gw, streams)
	log.Info("serving", slog.String("version", buildVersion().Version), slog.String("epoch", streams.Epoch))
	err = runStack(ctx,
		actor{"materializer", m.Run},
		actor{"NATS service", svc.Run},
		actor{"HTTP gateway", gw.Run},
	)
	log.Info("stopped")
	return err
}

// embedded returns the embedded server's options.
func (o *serveOptions) embedded(log *slog.Logger) natsd.Options {
	return natsd.Options{
		Listen: o.listen, Dir: filepath.Join(o.data, "jetstream"), SyncInterval: o.sync, ConfigFile: o.natsConfig, Logger: log,
	}
}

// own makes the data directory, if it is not there, and locks it. An address in use
// is an error: of a new directory before it is made, of an existing one after it is
// locked, since a serve that has it mostly has the addresses too, and is the reason.
func (o *serveOptions) own() (*dirlock.Lock, error) {
	_, err := os.Stat(o.data)
	if errors.Is(err, fs.ErrNotExist) {
		if err := o.tryAddresses(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.data, 0o750); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := dirlock.Acquire(o.data)
	if err != nil {
		return nil, err
	}
	if err := o.tryAddresses(); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return lock, nil
}

// closeConn sends what is still buffered, as far as the server takes it. All that
// is lost otherwise are hints: what was promised is in the store.
func closeConn(nc *nats.Conn, log *slog.Logger) {
	if nc.IsConnected() {
		if err := nc.FlushTimeout(flushTimeout); err != nil {
			log.Warn("NATS did not take the last messages", slog.Any("err", err))
		}
	}
	nc.Close()
}
