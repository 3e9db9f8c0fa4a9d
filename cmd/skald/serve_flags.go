package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/config"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/logs"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer"
)

// flags returns serve's flags, which are the one table of what can be configured.
func (o *serveOptions) flags() *pflag.FlagSet {
	o.patience = startTimeout
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.StringVar(&o.data, "data", target.DefaultData, "data `directory`, made if it is not there")
	f.StringVar(&o.listen, "listen", natsd.DefaultListen, "`address` of the embedded NATS server, port 0 picks a free one")
	f.StringVar(&o.http, "http", gateway.DefaultListen, "`address` of the HTTP gateway, port 0 picks a free one")
	f.StringVar(&o.tokens, "tokens", "", "`file` of the tokens that may read over HTTP (see skald token new); read again when it changes")
	f.StringVar(&o.natsConfig, "nats-config", "", "configuration `file` of the embedded NATS server (accounts, TLS)")
	f.DurationVar(&o.sync, "sync-interval", 0, "how often the embedded NATS server syncs to disk; 0 syncs before each acknowledgement, more can lose acknowledged messages when the machine fails")
	f.DurationVar(&o.idHorizon, "id-horizon", bus.DefaultIDHorizon, "how long bare event ids are known, for a new bus")
	f.Int64Var(&o.ingestBytes, "ingest-max-bytes", 0, "bound of INGEST in `bytes`, for a new bus (default 8 GiB, less on a small disk)")
	f.DurationVar(&o.ingestKeep, "ingest-keep", 24*time.Hour, "how long INGEST keeps messages that no store needs any more, up to 672h; 0 removes them as soon as that is safe")
	f.IntVar(&o.replicas, "replicas", 1, "copies of each stream, for a new bus")
	f.DurationVar(&o.maxLag, "max-lag", time.Minute, "age of the oldest message that waits from which /readyz says so; 0 sets no bound")
	f.StringVar(&o.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal, else JSON")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.configFile, config.FileFlag, "", "YAML `file` with flags (without the dashes) and their values")
	o.nats.add(f)
	return f
}

// check completes the options, and refuses flags that would do nothing. The second
// logger is for the embedded server, whose life cycle is of interest seldom.
func (o *serveOptions) check(cmd *cobra.Command, e env) (log, quiet *slog.Logger, err error) {
	if err := o.choose(cmd); err != nil {
		return nil, nil, err
	}
	var level slog.Level
	switch {
	case o.data == "":
		return nil, nil, usage("--data: must not be empty")
	case o.tokens == "" && cmd.Flags().Changed("tokens"):
		return nil, nil, usage("--tokens: must not be empty")
	case o.sync < 0 || o.sync > 0 && o.sync < time.Millisecond:
		return nil, nil, usage("--sync-interval: must be 0 or at least 1ms")
	case o.idHorizon < time.Second:
		return nil, nil, usage("--id-horizon: must be at least 1s")
	case o.ingestBytes < 0:
		return nil, nil, usage("--ingest-max-bytes: must not be negative")
	case o.ingestKeep < 0 || o.ingestKeep > materializer.MaxIngestKeep:
		return nil, nil, usage("--ingest-keep: must be 0 to %s", materializer.MaxIngestKeep)
	case o.replicas < 1 || o.replicas > 5:
		return nil, nil, usage("--replicas: must be 1 to 5")
	case o.maxLag < 0:
		return nil, nil, usage("--max-lag: must not be negative")
	case level.UnmarshalText([]byte(o.logLevel)) != nil:
		return nil, nil, usage("--log-level: must be debug, info, warn or error, not %q", o.logLevel)
	}
	if _, err := bus.NewSubjects(o.nats.prefix); err != nil {
		return nil, nil, usage("--%w", err)
	}
	if err := gateway.CheckListen(o.http, o.tokens != ""); errors.Is(err, gateway.ErrNotLoopback) {
		return nil, nil, usage("--http: %w; --tokens lets other machines in", err)
	} else if err != nil {
		return nil, nil, usage("--http: %w", err)
	}
	if err := o.checkEmbedded(); err != nil {
		return nil, nil, err
	}
	return o.loggers(e, level)
}

// choose decides between the embedded server and one outside: a flag of either says
// it, then NATS_URL. What the other one would be told by is refused.
func (o *serveOptions) choose(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	var embedded, outside []string
	for _, name := range []string{"listen", "nats-config", "sync-interval"} {
		if changed(name) {
			embedded = append(embedded, name)
		}
	}
	for _, name := range []string{"server", "context", "tlscert", "tlskey", "tlsca"} {
		if changed(name) {
			outside = append(outside, name)
		}
	}
	switch {
	case changed("server") && o.nats.server == "":
		return usage("--server: must not be empty")
	case len(embedded) > 0 && len(outside) > 0:
		return usage("--%s is for the embedded NATS server, --%s for one outside", embedded[0], outside[0])
	case len(embedded) == 0:
		// The embedded server is none that the environment of the nats tool means.
		flags := o.nats
		from, err := o.nats.complete()
		if err != nil {
			return err
		}
		if from == byFlag {
			from = "--server"
			if !changed("server") {
				from = "--context"
			}
		}
		if o.serverFrom = from; from == "" {
			o.nats = flags
		}
	}
	if o.nats.server != "" {
		return nil
	}
	if len(outside) > 0 {
		return usage("--%s is for a NATS server outside, which --server, --context or NATS_URL names", outside[0])
	}
	for _, name := range []string{"creds", "nkey", "user", "password"} {
		if changed(name) && o.natsConfig == "" {
			return usage("--%s: the embedded NATS server knows no users without --nats-config", name)
		}
	}
	return nil
}

// checkEmbedded looks at what the embedded server is told, before anything is made
// for it.
func (o *serveOptions) checkEmbedded() error {
	if o.nats.server != "" {
		return nil
	}
	err := o.embedded(nil).Check()
	switch {
	case errors.Is(err, natsd.ErrAddress), errors.Is(err, natsd.ErrExposed):
		return usage("--listen: %w", err)
	case err != nil:
		return err
	case o.replicas > 1 && o.natsConfig == "":
		return usage("--replicas: the embedded NATS server is one server; more copies need --server, or a cluster in --nats-config")
	}
	return nil
}

// tryAddresses finds an address that is in use.
func (o *serveOptions) tryAddresses() error {
	if o.nats.server == "" {
		if err := o.embedded(nil).Try(); err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
	}
	if err := gateway.Try(o.http, o.tokens != ""); err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	return nil
}

// listenError names the flag of an address that the embedded server could not have
// when it started. Its configuration may open more of them.
func (o *serveOptions) listenError(err error) error {
	switch {
	case !errors.Is(err, natsd.ErrListen):
		return err
	case o.natsConfig != "":
		return fmt.Errorf("--listen, or a port that --nats-config opens: %w", err)
	}
	return fmt.Errorf("--listen: %w", err)
}

// loggers returns serve's logger, and the one for the embedded server, which limits its
// own lines.
func (o *serveOptions) loggers(e env, level slog.Level) (log, quiet *slog.Logger, err error) {
	ours, err := logs.Handler(e.stderr, o.logFormat, level, terminal(e.stderr))
	if level >= slog.LevelInfo {
		level = max(level, slog.LevelWarn)
	}
	server, sameErr := logs.Handler(e.stderr, o.logFormat, level, terminal(e.stderr))
	if err = cmp.Or(err, sameErr); err != nil {
		return nil, nil, usage("--log-format: %w", err)
	}
	return slog.New(logs.Limit(ours)), slog.New(server), nil
}

func newLogger(e env, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
}
