package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/live"
)

// DefaultListen is where the gateway listens unless it is configured.
const DefaultListen = "127.0.0.1:7525"

// Bounds of a connection. A request is a line and a few headers; what takes
// longer is a stuck or hostile client.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second // above the longest query and a page on a slow line
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	// stopTimeout is how long answers in progress may take once Run is told to stop.
	stopTimeout = 5 * time.Second
)

// Errors of New.
var (
	// ErrNotLoopback: the address is reachable from other machines, and there
	// are no tokens to tell who may read.
	ErrNotLoopback = errors.New("HTTP without tokens listens on loopback addresses only")
	// ErrListen: the address can not be listened on, mostly since it is in use.
	ErrListen = errors.New("can not listen for HTTP")
)

// Options are what a gateway works with.
type Options struct {
	// API answers the queries. Required.
	API *api.API
	// Health returns the checks of /readyz. It must not block. Required.
	Health func() []Check
	// Listen is the address, host:port; port 0 picks a free one. Without tokens the
	// host must be a loopback one. Defaults to DefaultListen.
	Listen string
	// Live feeds live streams. Required, and run by the caller.
	Live *live.Hub
	// Logger takes what the HTTP server complains of. Nil discards.
	Logger *slog.Logger
	// Metrics answers /metrics, to a token for all workspaces where there are tokens.
	// Nil has no such path.
	Metrics http.Handler
	// Tokens say who may read what. Nil lets everyone on this machine read everything.
	Tokens *access.Tokens

	commentEvery time.Duration // commentEvery, unless a test shortens it
	frameTimeout time.Duration // frameTimeout, unless a test shortens it
	maxStreams   int64         // maxStreams, unless a test lowers it
	readTimeout  time.Duration // readTimeout, unless a test shortens it
}

// Gateway is the HTTP door. Make one with [New], run it once with [Gateway.Run].
type Gateway struct {
	o        Options
	listener net.Listener
	files    map[string]file // of the page, by path
	cross    *http.CrossOriginProtection
	stopping chan struct{} // closed when streams have to end
	streams  atomic.Int64  // open now
	cutOff   atomic.Int64  // streams that were ended since their client took nothing
}

// New takes the address, so that one in use is an error before anything is
// served; connections wait until Run. The error is ErrNotLoopback or ErrListen,
// with the address. It panics if a required option is missing.
func New(o Options) (*Gateway, error) {
	if o.API == nil || o.Health == nil || o.Live == nil {
		panic("gateway.New: an option is missing")
	}
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.commentEvery == 0 {
		o.commentEvery = commentEvery
	}
	if o.frameTimeout == 0 {
		o.frameTimeout = frameTimeout
	}
	if o.maxStreams == 0 {
		o.maxStreams = maxStreams
	}
	if o.readTimeout == 0 {
		o.readTimeout = readTimeout
	}
	l, err := listen(o.Listen, o.Tokens != nil)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		o: o, listener: l, files: loadPage(o.Tokens != nil), cross: http.NewCrossOriginProtection(), stopping: make(chan struct{}),
	}, nil
}

// Try takes the address and gives it back, so that one in use is found before
// anything is made. The errors are those of [New]; nil promises nothing, since
// another program may come first.
func Try(address string, tokens bool) error {
	l, err := listen(address, tokens)
	if err != nil {
		return err
	}
	return l.Close()
}

func listen(address string, tokens bool) (net.Listener, error) {
	if err := CheckListen(address, tokens); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: if another program has the address, stop it or choose another one", ErrListen, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !tokens && (!ok || !a.IP.IsLoopback()) {
		_ = l.Close() // nothing was served
		return nil, fmt.Errorf("%w, and %s is %s", ErrNotLoopback, address, l.Addr())
	}
	return l, nil
}

// CheckListen reports whether listen is host:port and, unless there are tokens, has a
// loopback address or localhost as its host. The error is ErrNotLoopback or ErrListen.
func CheckListen(listen string, tokens bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrListen, err)
	}
	if tokens {
		return nil
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%w (127.0.0.1, [::1], localhost), not %q", ErrNotLoopback, listen)
	}
	return nil
}

// Addr returns the address it listens on, with the real port.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// URL returns the address as a URL.
func (g *Gateway) URL() string { return "http://" + g.Addr() }

// Streams returns how many live streams are open.
func (g *Gateway) Streams() int { return int(g.streams.Load()) }

// CutOff returns how many live streams were ended since their client did not take what
// was sent, since the gateway was made.
func (g *Gateway) CutOff() int64 { return g.cutOff.Load() }

// Close gives the address back, for a gateway that is not going to run.
func (g *Gateway) Close() error { return g.listener.Close() }

// protocols are HTTP/1.1, and HTTP/2 without TLS for proxies that speak it.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// Run serves until ctx ends, then ends the live streams, lets answers in progress end,
// for stopTimeout at most, and returns nil. Any other end is an error. It is run once.
func (g *Gateway) Run(ctx context.Context) error {
	s := &http.Server{
		Handler:           g.handler(),
		ReadHeaderTimeout: g.o.readTimeout,
		ReadTimeout:       g.o.readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols(),
		ErrorLog:          slog.NewLogLogger(g.o.Logger.Handler(), slog.LevelWarn),
		// Not derived from ctx: answers in progress outlive it a little.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ended := make(chan error, 1) // Serve's one return
	go func() { ended <- s.Serve(g.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	close(g.stopping)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		g.o.Logger.Warn("HTTP answers were cut off", slog.Any("err", err))
		if err := s.Close(); err != nil {
			return fmt.Errorf("stop HTTP: %w", err)
		}
	}
	<-ended
	return nil
}
