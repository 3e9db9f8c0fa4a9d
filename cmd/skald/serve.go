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
	"github.com/skaldbus/skald/internal/config"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/metrics"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/sdnotify"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/internal/tracing"
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
	tokens      string
	natsConfig  string
	sync        time.Duration
	idHorizon   time.Duration
	ingestBytes int64
	ingestKeep  time.Duration
	replicas    int
	maxLag      time.Duration
	serverFrom  string // what nats.server was named by, if it is
	configFile  string
	logFormat   string
	logLevel    string
	patience    time.Duration // how long to wait for NATS to be ready
	summarize   time.Duration // how often the log says how it goes; 0 is summaryEvery
	// started is told the addresses instead of the banner, by who runs serve for
	// a purpose of its own. Nil says the banner.
	started func(natsURL, httpURL string)
}

func serveCommand(e env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the bus: streams, store, HTTP and NATS service",
		Long: `Run the bus. Without --server (or NATS_URL) it brings its own NATS server with
JetStream, kept in DIR/jetstream; with it, it uses that one. The store is
DIR/skald.db. SIGTERM or Ctrl-C stop it cleanly, a second one at once.

Each flag can also be a variable (--max-lag is SKALD_MAX_LAG) or a line of the file
that --config names (max-lag: 1m); a flag comes before a variable, that before the
file. skald config show prints what is in force.`,
		Args: cobra.NoArgs,
	}
	flags := o.flags()
	cmd.Flags().AddFlagSet(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := config.Apply(flags); err != nil {
			return err
		}
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
	tokens, err := openTokens(o.tokens, log)
	if err != nil {
		return err
	}
	notifier, err := sdnotify.New()
	if err != nil {
		return err
	}
	traces, err := tracing.Start(ctx, tracing.Options{Logger: log, Service: "skald", Version: buildVersion().Version})
	if err != nil {
		return err
	}
	defer traces.Close()
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
	if err := materializer.PendingRepair(o.data); err != nil {
		return fmt.Errorf("%w; end it: %s --yes", err, o.repair())
	}
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

	hub, err := live.New(ctx, live.Options{Logger: log, Reader: st.Reader()})
	if err != nil {
		return err
	}
	figures := metrics.New(metricsBuild())
	m, err := materializer.New(materializer.Options{
		AppendMessages: batchMessages(server), ChainAppends: server != nil, Committed: hub.Committed, Conn: nc, IngestKeep: o.ingestKeep, JS: js, Label: o.label(),
		Logger: log, MaxLag: o.maxLag, MayLose: o.mayLose(streams), Observer: figures, Store: st, Streams: streams, Subjects: subjects,
		Tracer: traces.Tracer(), Trim: true,
	})
	if err != nil {
		return err
	}
	answers := api.New(api.Options{
		Ends: func(ctx context.Context) (api.Ends, error) {
			ends, err := m.Ends(ctx)
			return api.Ends(ends), err
		},
		Horizon: streams.Horizon, Logger: log, Reader: st.Reader(), Ready: m.Ready,
	})
	health := func() []gateway.Check {
		var checks []gateway.Check
		for _, c := range m.Health() {
			checks = append(checks, gateway.Check(c))
		}
		return append(checks, tokenChecks(tokens)...)
	}
	svc := service.New(service.Options{API: answers, Conn: nc, Logger: log, Subjects: subjects, Version: buildVersion().Version})
	gw, err := gateway.New(gateway.Options{
		API: answers, Health: health, Listen: o.http, Live: hub, Logger: log, Metrics: figures.Handler(), Tokens: tokens,
	})
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	figures.Add(metrics.Sources{
		Checks: metricsChecks(health), CutOff: gw.CutOff, Hub: hub, Materializer: m, Store: st, Streams: gw.Streams,
	})
	if o.started != nil {
		o.started(server.ClientURL(), gw.URL())
	} else {
		e.banner(o, server, gw, streams)
	}
	log.Info("serving", slog.String("version", buildVersion().Version), slog.String("epoch", streams.Epoch))
	actors := []actor{
		{"materializer", m.Run},
		{"NATS service", svc.Run},
		{"live streams", hub.Run},
		{"summary", func(ctx context.Context) error { return summarize(ctx, o, log, m, hub, gw) }},
		{"tokens", func(ctx context.Context) error { return watchTokens(ctx, tokens) }},
		{"HTTP gateway", gw.Run},
		{"systemd", func(ctx context.Context) error { return notifier.Run(ctx, log, storeAnswers(st)) }},
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		actors = append(actors, actor{"memory limit", boundMemory})
	}
	err = runStack(ctx, actors...)
	log.Info("stopped")
	if errors.Is(err, materializer.ErrEventsDiffer) || errors.Is(err, materializer.ErrRestored) || errors.Is(err, bus.ErrOtherBus) {
		err = fmt.Errorf("%w\nnow run: %s", err, o.repair())
	}
	return err
}

// label is what the store is listed as among those of its bus.
func (o *serveOptions) label() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	dir, err := filepath.Abs(o.data)
	if err != nil {
		dir = o.data
	}
	return host + ":" + dir
}

// mayLose says why the server may lose what it has acknowledged when a machine fails,
// as far as that is known; "" if it does not.
func (o *serveOptions) mayLose(streams bus.Streams) string {
	switch {
	case streams.Ingest.CachedInfo().Config.Replicas >= 3 && streams.Events.CachedInfo().Config.Replicas >= 3:
		return ""
	case o.nats.server != "":
		return "the streams have fewer than three replicas, and it is not known whether the NATS server syncs before it acknowledges (sync_interval: always)"
	case o.sync > 0:
		return "the embedded NATS server syncs every " + o.sync.String() + " (--sync-interval)"
	}
	return ""
}

// storeAnswers is what systemd's watchdog looks at: a process whose store does not
// answer may be mended by a new start, one whose NATS server is away is not.
func storeAnswers(st *store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := st.Reader().Position(ctx)
		return err
	}
}

// batchMessages returns the most messages of an atomic batch. What an outside server
// allows can not be asked for; 0 is what all allow by default.
func batchMessages(embedded *natsd.Server) int {
	if embedded == nil {
		return 0
	}
	return embedded.BatchMessages()
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
