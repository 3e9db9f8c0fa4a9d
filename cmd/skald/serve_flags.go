package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/natsd"
)

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
	case o.sync < 0 || o.sync > 0 && o.sync < time.Millisecond:
		return nil, nil, usage("--sync-interval: must be 0 or at least 1ms")
	case o.idHorizon < time.Second:
		return nil, nil, usage("--id-horizon: must be at least 1s")
	case o.ingestBytes < 0:
		return nil, nil, usage("--ingest-max-bytes: must not be negative")
	case o.replicas < 1 || o.replicas > 5:
		return nil, nil, usage("--replicas: must be 1 to 5")
	case level.UnmarshalText([]byte(o.logLevel)) != nil:
		return nil, nil, usage("--log-level: must be debug, info, warn or error, not %q", o.logLevel)
	}
	if _, err := bus.NewSubjects(o.nats.prefix); err != nil {
		return nil, nil, usage("--%w", err)
	}
	if err := gateway.CheckListen(o.http); err != nil {
		return nil, nil, usage("--http: %w", err)
	}
	if err := o.checkEmbedded(); err != nil {
		return nil, nil, err
	}
	if log = newLogger(e, level); level < slog.LevelInfo {
		return log, log, nil
	}
	return log, newLogger(e, max(level, slog.LevelWarn)), nil
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
	for _, name := range []string{"server", "tlscert", "tlskey", "tlsca"} {
		if changed(name) {
			outside = append(outside, name)
		}
	}
	switch {
	case changed("server") && o.nats.server == "":
		return usage("--server: must not be empty")
	case len(embedded) > 0 && len(outside) > 0:
		return usage("--%s is for the embedded NATS server, --%s for one outside", embedded[0], outside[0])
	case len(embedded) == 0 && o.nats.server == "":
		o.nats.server, o.serverFrom = os.Getenv("NATS_URL"), "NATS_URL"
	default:
		o.serverFrom = "--server"
	}
	if o.nats.server != "" {
		return nil
	}
	if len(outside) > 0 {
		return usage("--%s is for a NATS server outside, which --server or NATS_URL names", outside[0])
	}
	for _, name := range []string{"creds", "nkey"} {
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
	if err := gateway.Try(o.http); err != nil {
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

func newLogger(e env, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
}
