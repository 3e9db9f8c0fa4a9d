package natsd

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// DefaultListen is where the server listens unless told otherwise.
	DefaultListen = "127.0.0.1:4222"
	// DefaultMaxPayload is the largest message, header and body, in bytes: the
	// most that the server accepts without a warning.
	DefaultMaxPayload = 8 << 20
	// DefaultBatchMessages is the most messages of one atomic batch. nats-server
	// has 1,000 (2.15, streamDefaultMaxAtomicBatchSize); making and removing what it
	// keeps a batch in takes more than a millisecond, so catching up is faster by a
	// tenth with these.
	DefaultBatchMessages = 4000
)

// Options says how the server runs. Dir is required.
type Options struct {
	// Dir is JetStream's directory. It is made if it is not there; its parent
	// must belong to one server alone (see package dirlock).
	Dir string

	// ConfigFile is a NATS server's configuration. Its settings hold; missing
	// ones are completed from these options. It must not set JetStream's
	// store_dir, since the data directory is locked and backed up as a whole.
	// log_file is not used. Empty means no accounts and no TLS, and then Listen
	// must be a loopback address.
	ConfigFile string

	// Listen is host:port; port 0 or -1 picks a free one. It overrides the
	// configuration file. Defaults to what the file says, else DefaultListen.
	Listen string

	// Logger receives the server's log lines. Defaults to none.
	Logger *slog.Logger

	// MaxPayload is the largest message in bytes, unless the configuration file
	// sets max_payload. Defaults to DefaultMaxPayload.
	MaxPayload int32

	// SyncInterval is how often JetStream syncs to disk, unless the configuration
	// file sets sync_interval. 0 is before each acknowledgement: anything else
	// can lose acknowledged messages when the machine fails.
	SyncInterval time.Duration
}

// Check returns the error that [Start] would return for what o says and its
// configuration file holds. It makes and listens to nothing.
func (o Options) Check() error {
	_, err := o.build()
	return err
}

// Try binds the address once and gives it back, so that one in use is found before
// anything is made for the server. The errors are those of [Options.Check] and
// ErrListen; nil promises nothing, since another program may come first.
func (o Options) Try() error {
	so, err := o.build()
	if err != nil {
		return err
	}
	// RANDOM_PORT is the server's own word for what is 0 elsewhere.
	l, err := net.Listen("tcp", net.JoinHostPort(so.Host, strconv.Itoa(max(so.Port, 0))))
	if err != nil {
		return listenError(err)
	}
	return l.Close()
}

// build returns the server's own options, or which of o's can not be used.
func (o Options) build() (*server.Options, error) {
	switch {
	case o.Dir == "":
		return nil, fmt.Errorf("%w: none is named", ErrStoreDir)
	case o.MaxPayload < 0:
		return nil, fmt.Errorf("max payload %d: must not be negative", o.MaxPayload)
	case o.SyncInterval < 0:
		return nil, fmt.Errorf("sync interval %s: must not be negative", o.SyncInterval)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStoreDir, err)
	}
	so := &server.Options{}
	if o.ConfigFile != "" {
		if so, err = server.ProcessConfigFile(o.ConfigFile); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, o.ConfigFile, err)
		}
		if so.StoreDir != "" && so.StoreDir != dir {
			return nil, fmt.Errorf("%w: %s sets JetStream's store_dir to %s, but this server keeps its data in %s: remove the setting",
				ErrConfig, o.ConfigFile, so.StoreDir, dir)
		}
	}
	so.StoreDir = dir
	if err := o.listen(so); err != nil {
		return nil, err
	}
	so.JetStream = true
	so.DisableJetStreamBanner = true
	so.NoSigs = true // the process has its own handler
	so.NoLog = true  // no log of the server's own: see logger
	if so.MaxPayload == 0 {
		so.MaxPayload = o.MaxPayload
		if so.MaxPayload == 0 {
			so.MaxPayload = DefaultMaxPayload
		}
	}
	if so.SyncInterval == 0 && !so.SyncAlways { // the file does not set it
		so.SyncInterval = o.SyncInterval
		so.SyncAlways = o.SyncInterval == 0
	}
	if so.JetStreamLimits.DefaultMaxConsumers == 0 {
		// The server's default of 1,000 a stream would be a limit of readers.
		so.JetStreamLimits.DefaultMaxConsumers = -1
	}
	if so.JetStreamLimits.MaxBatchSize == 0 {
		so.JetStreamLimits.MaxBatchSize = DefaultBatchMessages
	}
	return so, nil
}

// listen sets so's host and port, and refuses what would open a server without
// accounts to the network.
func (o Options) listen(so *server.Options) error {
	addr := o.Listen
	if addr == "" {
		if so.Host != "" || so.Port != 0 {
			return nil // the file decides
		}
		addr = DefaultListen
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%w: %q: must be host:port: %w", ErrAddress, addr, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < -1 || n > 65535 {
		return fmt.Errorf("%w: %q: port must be a number from 0 to 65535", ErrAddress, addr)
	}
	if n == 0 {
		n = server.RANDOM_PORT // 0 is the server's word for its default port
	}
	if o.ConfigFile == "" && !loopback(host) {
		return fmt.Errorf("%w: %s: it needs a NATS configuration that says who may connect (accounts, TLS), or a loopback address such as %s",
			ErrExposed, addr, DefaultListen)
	}
	so.Host, so.Port = host, n
	return nil
}

// loopback reports whether host can be reached from this machine only. A name
// other than localhost may resolve to anything; an empty host is every interface.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// open reports whether anyone who reaches the server may do anything.
func open(so *server.Options) bool {
	return so.Username == "" && so.Authorization == "" && len(so.Users) == 0 && len(so.Nkeys) == 0 &&
		len(so.TrustedOperators) == 0 && len(so.TrustedKeys) == 0 && so.AuthCallout == nil && !so.TLSVerify
}
