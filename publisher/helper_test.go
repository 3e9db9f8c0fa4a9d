package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
	"github.com/skaldbus/skald/publisher"
)

// world is a server with a bus, and a materializer with its service.
type world struct {
	t       testing.TB
	server  *natsd.Server
	o       natsd.Options
	opts    []nats.Option // of the test's own connections
	nc      *nats.Conn
	js      jetstream.JetStream
	streams bus.Streams
	path    string // of the store
	node    *node
}

// newWorld starts everything.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	w.create(bus.StreamOptions{})
	w.startNode()
	return w
}

// newWorldFor does so on a server with users; "admin" with the password "a" is the test's own.
func newWorldFor(t testing.TB, users string) *world {
	t.Helper()
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, []byte(`
listen: "127.0.0.1:-1"
authorization { users = [
  { user: admin, password: a }
  `+users+`
]}`), 0o600))
	w := newServer(t, natsd.Options{SyncInterval: time.Minute, ConfigFile: config}, nats.UserInfo("admin", "a"))
	w.create(bus.StreamOptions{})
	w.startNode()
	return w
}

// newServer starts a server without streams.
func newServer(t testing.TB, o natsd.Options, opts ...nats.Option) *world {
	t.Helper()
	o.Dir = t.TempDir()
	if o.ConfigFile == "" {
		o.Listen = skaldtest.FreeAddress(t)
	}
	w := &world{t: t, o: o, opts: opts, path: filepath.Join(t.TempDir(), "skald.db")}
	w.server = skaldtest.ServerWith(t, o)
	w.nc = w.connect(w.server.ClientURL(), opts...)
	var err error
	w.js, err = jetstream.New(w.nc)
	require.NoError(t, err)
	return w
}

// create creates the streams.
func (w *world) create(o bus.StreamOptions) {
	w.t.Helper()
	if o.IngestBytes == 0 {
		o.IngestBytes = skaldtest.IngestBytes
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = w.nc.MaxPayload()
	}
	var err error
	w.streams, err = skaldtest.Subjects(w.t).Open(w.t.Context(), w.js, o, "")
	require.NoError(w.t, err)
}

func (w *world) connect(url string, opts ...nats.Option) *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(skaldtest.Timeout),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	return nc
}

func (w *world) stopServer() { w.server.Shutdown() }

func (w *world) startServer() {
	w.t.Helper()
	w.server = skaldtest.ServerWith(w.t, w.o)
}

// node is a materializer and a service over one store.
type node struct {
	nc     *nats.Conn
	st     *store.Store
	cancel context.CancelFunc
	done   chan error
}

func (w *world) startNode() {
	w.t.Helper()
	st, err := store.Open(w.path, store.Options{})
	require.NoError(w.t, err)
	require.NoError(w.t, st.Adopt(w.t.Context(), store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID}))
	nc := w.connect(w.server.ClientURL(), w.opts...)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	streams, err := skaldtest.Subjects(w.t).Open(w.t.Context(), js, bus.StreamOptions{MaxPayload: nc.MaxPayload()}, w.streams.Epoch)
	require.NoError(w.t, err)
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	m, err := materializer.New(materializer.Options{
		Conn: nc, JS: js, Store: st, Streams: streams, Subjects: skaldtest.Subjects(w.t), Logger: log,
	})
	require.NoError(w.t, err)
	svc := service.New(service.Options{
		API: api.New(api.Options{Reader: st.Reader()}), Conn: nc, Subjects: skaldtest.Subjects(w.t), Version: "1.0.0",
	})
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{nc: nc, st: st, cancel: cancel, done: make(chan error, 2)}
	go func() { n.done <- m.Run(ctx) }()
	go func() { n.done <- svc.Run(ctx) }()
	w.node = n
	w.t.Cleanup(func() {
		if w.node == n {
			w.stopNode()
		}
	})
	// The service answers once the server knows of its subscriptions.
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		_, err := nc.Request("skald.op.status", nil, time.Second)
		return err == nil
	})
}

func (w *world) stopNode() {
	w.t.Helper()
	n := w.node
	w.node = nil
	n.cancel()
	for range 2 {
		require.NoError(w.t, <-n.done)
	}
	// As the end of its process would: a connection that was lost while the service stopped
	// brings the service's subscriptions back with it, and questions go where nobody is.
	n.nc.Close()
	require.NoError(w.t, n.st.Close())
}

// pub is a running publisher.
type pub struct {
	*publisher.Publisher
	t      testing.TB
	nc     *nats.Conn
	cancel context.CancelFunc
	done   chan error
}

// publisher starts one on a connection of its own.
func (w *world) publisher(o publisher.Options, opts ...nats.Option) *pub {
	w.t.Helper()
	return w.publisherAt(w.server.ClientURL(), o, append(w.opts, opts...)...)
}

func (w *world) publisherAt(url string, o publisher.Options, opts ...nats.Option) *pub {
	w.t.Helper()
	nc := w.connect(url, opts...)
	o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	p, err := publisher.New(nc, o)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	out := &pub{Publisher: p, t: w.t, nc: nc, cancel: cancel, done: make(chan error, 1)}
	go func() { out.done <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		// Whatever the test has left unsaid does not matter any more.
		gone, now := context.WithCancel(context.Background())
		now()
		_ = p.Close(gone)
		cancel()
		nc.Close()
	})
	return out
}

// idle returns a session of a publisher that nobody runs, so that what it accepts stays.
func (w *world) idle(o publisher.Options, k bus.Key) (*publisher.Publisher, *publisher.Session) {
	w.t.Helper()
	p, err := publisher.New(w.nc, o)
	require.NoError(w.t, err)
	s, err := p.Session(w.t.Context(), k)
	require.NoError(w.t, err)
	return p, s
}

// open opens a session.
func (p *pub) open(k bus.Key) *publisher.Session {
	p.t.Helper()
	s, err := p.Session(within(p.t, skaldtest.Timeout), k)
	require.NoError(p.t, err)
	return s
}

// shut closes the publisher and requires that all is stored.
func (p *pub) shut() {
	p.t.Helper()
	require.NoError(p.t, p.Close(within(p.t, 2*skaldtest.Timeout))) // of all that waits
	require.NoError(p.t, <-p.done)
	p.holdsNothing()
}

// holdsNothing requires that all room was given back, once each.
func (p *pub) holdsNothing() {
	p.t.Helper()
	messages, bytes, kept := p.Held()
	require.Zero(p.t, messages)
	require.Zero(p.t, bytes)
	require.Zero(p.t, kept)
}

// within returns a context that ends after d, or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func key(session string) bus.Key { return bus.Key{Workspace: "w", Session: session} }

// ended is an observation from which one turn_ended follows that names id.
func ended(id string) []byte {
	return fmt.Appendf(nil, `{"type":"command_completed","data":{"command_id":%q,"outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}}}}`, id)
}

// observe observes ended(id).
func observe(t testing.TB, s *publisher.Session, id string) *publisher.Receipt {
	t.Helper()
	r, err := s.Observe(within(t, skaldtest.Timeout), ended(id), publisher.ObserveOptions{})
	require.NoError(t, err)
	return r
}

// materialized waits for the receipt's outcome.
func materialized(t testing.TB, r *publisher.Receipt) publisher.Outcome {
	t.Helper()
	out, err := r.Materialized(within(t, skaldtest.Timeout))
	require.NoError(t, err)
	return out
}

// facts reads the session's events out of the table.
func (w *world) facts(k bus.Key) []bus.Event {
	w.t.Helper()
	var out []bus.Event
	at := bus.Cursor{}
	for {
		page, err := w.node.st.Reader().Page(w.t.Context(), store.PageQuery{After: &at, Limit: 1000, Session: k.Session, Workspace: k.Workspace})
		require.NoError(w.t, err)
		if len(page.Events) == 0 && page.NextAfter >= page.Latest {
			return out
		}
		out = append(out, page.Events...)
		at.Seq = page.NextAfter
	}
}

// ids returns what the session's turn_ended and error events name, in their order.
func (w *world) ids(k bus.Key) []string {
	w.t.Helper()
	out := []string{}
	for _, e := range w.facts(k) {
		var d struct {
			Turn struct {
				CommandID string `json:"command_id"`
			} `json:"turn"`
			Message string `json:"message"`
		}
		require.NoError(w.t, json.Unmarshal(e.Data, &d))
		switch {
		case e.Type == bus.TypeError:
			out = append(out, d.Message)
		case e.Type == bus.TypeTurnEnded:
			out = append(out, d.Turn.CommandID)
		}
	}
	return out
}

// settle waits until the store has read all of INGEST.
func (w *world) settle() store.Status {
	w.t.Helper()
	var s store.Status
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		info, err := w.streams.Ingest.Info(context.Background())
		if err != nil {
			return false
		}
		s, err = w.node.st.Reader().Status(context.Background())
		return err == nil && s.IngestSeq == info.State.LastSeq
	})
	return s
}

// names returns n names that begin with prefix.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// refuses opens the session for longer and longer, until what is wrong is known by the end.
func (p *pub) refuses(k bus.Key, want error) (err error) {
	p.t.Helper()
	for d := 300 * time.Millisecond; d < skaldtest.Timeout; d *= 2 {
		if _, err = p.Session(within(p.t, d), k); errors.Is(err, want) {
			return err
		}
	}
	require.ErrorIs(p.t, err, want)
	return err
}
