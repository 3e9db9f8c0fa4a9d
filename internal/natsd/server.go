package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a running NATS server. It is safe for concurrent use.
type Server struct {
	ns   *server.Server
	url  string
	addr net.Addr

	batchMessages int
}

// Start starts the server and returns when clients can connect; that includes
// reading the streams on disk, which takes time after a crash. If ctx ends
// before, the server is shut down again and the cause returned. ctx has no
// meaning afterwards; call [Server.Shutdown].
//
// The errors are those of errors.go, or the server's own about its settings.
func Start(ctx context.Context, o Options) (*Server, error) {
	so, err := o.build()
	if err != nil {
		return nil, err
	}
	if err := checkDir(so.StoreDir); err != nil {
		return nil, err
	}
	to := o.Logger
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	if !loopback(so.Host) && open(so) {
		to.WarnContext(ctx, "NATS server lets in anyone who reaches it: its configuration has no users and no accounts",
			"file", o.ConfigFile, "host", so.Host)
	}
	ns, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("configure NATS server: %w", err)
	}
	log := newLogger(to)
	ns.SetLoggerV2(log, so.Debug || to.Enabled(ctx, slog.LevelDebug), so.Trace, false)
	if err := run(ctx, ns, log); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("start NATS server: %w", context.Cause(ctx))
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "listen" {
			return nil, listenError(op)
		}
		return nil, fmt.Errorf("start NATS server: %w", err)
	}
	return &Server{
		ns: ns, url: clientURL(so.Host, ns.Addr(), so.TLSConfig != nil), addr: ns.Addr(),
		batchMessages: so.JetStreamLimits.MaxBatchSize,
	}, nil
}

// run starts ns and waits until it is ready, has failed, or ctx has ended.
func run(ctx context.Context, ns *server.Server, log *logger) error {
	if ctx.Err() != nil {
		return ctx.Err() // or a fast start would go unnoticed
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		ns.Start()
	}()
	select {
	case <-started:
	case <-ctx.Done():
		ns.Shutdown()
		<-started
		return ctx.Err()
	}
	// Listeners for other servers are opened in the background.
	for log.failure() == nil && !ns.ReadyForConnections(100*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return log.started()
}

// listenError says what to do about an address that can not be bound.
func listenError(err error) error {
	return fmt.Errorf("%w: %w: if another program has the address, stop it or choose another one", ErrListen, err)
}

// checkDir makes JetStream's directory and tries to write there: the server
// itself names neither the directory nor the reason.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStoreDir, dir, err)
	}
	f, err := os.CreateTemp(dir, "write-test-")
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStoreDir, dir, err)
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStoreDir, dir, err)
	}
	return nil
}

// ClientURL returns the URL at which clients on this machine reach the server,
// without credentials.
func (s *Server) ClientURL() string { return s.url }

// BatchMessages returns the most messages that the server takes as one atomic batch.
func (s *Server) BatchMessages() int { return s.batchMessages }

// Addr returns the address that the server listens on; the port is the one that
// was picked if none was given. It stays the same after [Server.Shutdown].
func (s *Server) Addr() net.Addr { return s.addr }

// Shutdown closes all connections and the streams and returns when all is done.
// A second call only waits.
func (s *Server) Shutdown() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// clientURL keeps host as it was given, since a certificate may name it, unless
// it stands for all interfaces.
func clientURL(host string, bound net.Addr, tls bool) string {
	_, port, _ := net.SplitHostPort(bound.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	scheme := "nats"
	if tls {
		scheme = "tls"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
