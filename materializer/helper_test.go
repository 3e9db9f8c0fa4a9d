package materializer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// errCrash is what a seam returns that plays a crash.
var errCrash = errors.New("crash")

// world is a server with a bus, and the test's own connection to it.
type world struct {
	t       testing.TB
	server  *natsd.Server
	o       natsd.Options
	subj    bus.Subjects
	nc      *nats.Conn
	js      jetstream.JetStream
	streams bus.Streams
}

func newWorld(t testing.TB) *world {
	return newWorldWith(t, bus.StreamOptions{})
}

func newWorldWith(t testing.TB, o bus.StreamOptions) *world {
	t.Helper()
	// It does not sync before it acknowledges: that guards against a failure of
	// the machine only.
	w := &world{t: t, subj: skaldtest.Subjects(t), o: natsd.Options{Dir: t.TempDir(), Listen: skaldtest.FreeAddress(t), SyncInterval: time.Minute}}
	w.server = skaldtest.ServerWith(t, w.o)
	w.nc, w.js = skaldtest.Connect(t, w.server)
	o.IngestBytes, o.MaxPayload = skaldtest.IngestBytes, w.nc.MaxPayload()
	var err error
	w.streams, err = w.subj.Open(t.Context(), w.js, o, "")
	require.NoError(t, err)
	return w
}

// stopServer stops the server; its directory stays.
func (w *world) stopServer() { w.server.Shutdown() }

// startServer starts it again, at the same address.
func (w *world) startServer() {
	w.t.Helper()
	w.server = skaldtest.ServerWith(w.t, w.o)
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		_, err := w.js.AccountInfo(context.Background())
		return err == nil
	})
}

// streamDir is where the server keeps a stream.
func (w *world) streamDir(name string) string {
	return filepath.Join(w.o.Dir, "jetstream", "$G", "streams", name)
}

// say publishes a message of the session.
func (w *world) say(k bus.Key, class bus.Class, body string, header ...string) uint64 {
	w.t.Helper()
	h := nats.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = []string{header[i+1]}
	}
	return skaldtest.Publish(w.t, w.js, k, class, body, h)
}

// fail publishes an error message, which gives one fact.
func (w *world) fail(k bus.Key, text string, header ...string) uint64 {
	w.t.Helper()
	return w.say(k, bus.ClassError, fmt.Sprintf(`{"recorded_at_ms":1,"message":%q}`, text), header...)
}

func (w *world) forget(k bus.Key) uint64 {
	w.t.Helper()
	return w.say(k, bus.ClassControl, `{"op":"forget"}`)
}

// last returns where a stream ends.
func (w *world) last(s jetstream.Stream) uint64 {
	w.t.Helper()
	info, err := s.Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.LastSeq
}

// node is a materializer with a store of its own that is started and stopped.
type node struct {
	w    *world
	path string
	url  string // of the server, or of what stands before it

	connect []nats.Option // more of them

	nc       *nats.Conn
	js       jetstream.JetStream
	st       *store.Store
	m        *materializer.Materializer
	cancel   context.CancelFunc
	done     chan error
	running  bool
	stats    materializer.Stats // of the runs that have ended
	bound    int64              // a lower bound on states at once; 0 is the usual one
	log      io.Writer          // of the materializer; nil is the test's output
	said     strings.Builder    // what all runs have logged; read it when none is under way
	tracer   trace.Tracer       // of the materializer; nil for none
	trims    bool               // INGEST is trimmed at once, and looked at all the time
	keep     time.Duration      // how long INGEST is kept then
	newEpoch bool               // a repair of it makes a new epoch
	batches  bool               // few facts go out together as well
	waits    bool               // each append waits for the one before, as beside an outside server
	appends  int                // facts of one append at most; 0 is the usual bound

	noted sync.Mutex
	backs []back // when it has gone back in INGEST, of all runs; see noteBack
}

func (w *world) node() *node {
	return &node{w: w, path: filepath.Join(w.t.TempDir(), "skald.db"), url: w.server.ClientURL()}
}

// open opens the store and a connection.
func (n *node) open() {
	t := n.w.t
	t.Helper()
	var err error
	n.nc, err = nats.Connect(n.url, append(n.connect, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(skaldtest.Timeout))...)
	require.NoError(t, err)
	n.js, err = jetstream.New(n.nc)
	require.NoError(t, err)
	n.st, err = store.Open(n.path, store.Options{})
	require.NoError(t, err)
}

// start opens everything and starts a materializer. seam may be nil.
func (n *node) start(seam func(name string) error) {
	t := n.w.t
	t.Helper()
	n.open()
	known, err := n.st.Bus(t.Context())
	require.NoError(t, err)
	streams, err := n.w.subj.Open(t.Context(), n.js, bus.StreamOptions{MaxPayload: n.nc.MaxPayload()}, known.Epoch)
	require.NoError(t, err)
	if known.Epoch == "" {
		require.NoError(t, n.st.Adopt(t.Context(), store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}))
	}
	n.run(streams, seam)
}

// run starts a materializer over what open opened.
func (n *node) run(streams bus.Streams, seam func(name string) error) {
	t := n.w.t
	t.Helper()
	log := n.log
	if log == nil {
		log = t.Output()
	}
	var err error
	n.m, err = materializer.New(materializer.Options{
		AppendMessages: n.appends, ChainAppends: !n.waits, Conn: n.nc, JS: n.js, Store: n.st, Streams: streams, Subjects: n.w.subj, Trim: n.trims,
		IngestKeep: n.keep, Label: "test",
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(log, &n.said), &slog.HandlerOptions{Level: slog.LevelWarn})), Tracer: n.tracer,
	})
	require.NoError(t, err)
	if n.batches {
		n.m.AppendInBatches()
	}
	n.m.SetSeam(func(name string) error {
		if name == "gone back" {
			if err := n.noteBack(context.Background()); err != nil {
				return err
			}
		}
		if seam == nil {
			return nil
		}
		return seam(name)
	})
	if n.trims {
		n.m.SetKeepEvery(100 * time.Millisecond)
	}
	if n.bound > 0 {
		n.m.SetStateBytes(n.bound)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done, n.running = cancel, make(chan error, 1), true
	m, done := n.m, n.done
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		// Only if the test has ended early.
		if n.running && n.done == done {
			n.cancel()
			<-n.done
			n.close()
		}
	})
}

// back is where a node has gone back to in INGEST, and why.
type back struct {
	reason bus.Reason
	seq    uint64
}

func (n *node) noteBack(ctx context.Context) error {
	pos, err := n.st.Reader().Position(ctx)
	if err != nil {
		return err
	}
	i, err := n.st.Reader().Irregular(ctx)
	if err != nil {
		return err
	}
	r, err := n.st.Reader().Reject(ctx, i.Newest)
	if err == nil {
		n.noted.Lock()
		defer n.noted.Unlock()
		n.backs = append(n.backs, back{r.Reason, pos.IngestSeq})
	}
	return err
}

// wentBack returns when the node has gone back so far. The table may show it a moment
// earlier.
func (n *node) wentBack() []back {
	n.noted.Lock()
	defer n.noted.Unlock()
	return slices.Clone(n.backs)
}

// wait waits for the end of Run, closes everything and returns Run's error.
func (n *node) wait() error {
	n.w.t.Helper()
	select {
	case err := <-n.done:
		n.cancel()
		n.close()
		return err
	case <-time.After(2 * skaldtest.Timeout):
		require.Fail(n.w.t, "Run does not end")
		return nil
	}
}

// stop ends Run as its caller does, and closes everything.
func (n *node) stop() {
	n.w.t.Helper()
	n.cancel()
	require.NoError(n.w.t, n.wait())
}

func (n *node) close() {
	n.running = false
	if n.m != nil {
		s := n.m.Stats()
		n.stats.AppendsWon += s.AppendsWon
		n.stats.AppendsLost += s.AppendsLost
		n.stats.Questions += s.Questions
	}
	n.nc.Close()
	require.NoError(n.w.t, n.st.Close())
}

// copyTo copies the closed store.
func (n *node) copyTo(path string) {
	n.w.t.Helper()
	b, err := os.ReadFile(n.path)
	require.NoError(n.w.t, err)
	require.NoError(n.w.t, os.WriteFile(path, b, 0o600))
}

// restore puts a copy in the place of the closed store.
func (n *node) restore(path string) {
	n.w.t.Helper()
	for _, left := range []string{"-wal", "-shm"} {
		require.NoFileExists(n.w.t, n.path+left)
	}
	b, err := os.ReadFile(path)
	require.NoError(n.w.t, err)
	require.NoError(n.w.t, os.WriteFile(n.path, b, 0o600))
}

// check returns a part of the node's health.
func (n *node) check(name string) materializer.Check {
	for _, c := range n.m.Health() {
		if c.Name == name {
			return c
		}
	}
	return materializer.Check{}
}

// crashAt returns a seam that crashes at the nth time that it is called with name.
func crashAt(name string, nth int64) func(string) error {
	var count atomic.Int64
	return func(at string) error {
		if at == name && count.Add(1) == nth {
			return errCrash
		}
		return nil
	}
}

// failMany publishes n error messages of the session, which give one fact each and
// name their place.
func (w *world) failMany(k bus.Key, n int) {
	w.t.Helper()
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = &nats.Msg{Subject: w.subj.Ingest(k, bus.ClassError), Data: fmt.Appendf(nil, `{"recorded_at_ms":1,"message":"%d"}`, i)}
	}
	for len(msgs) > 0 {
		k := min(len(msgs), 1000)
		w.sayAll(msgs[:k])
		msgs = msgs[k:]
	}
}

// saysLoss waits until health says of INGEST's loss what is wanted: it looks every few
// seconds, and so may say for a while what was so before.
func (n *node) saysLoss(want string) {
	n.w.t.Helper()
	detail := func() string { return n.check("ingest_loss").Detail }
	skaldtest.EventuallyWith(n.w.t, skaldtest.Timeout, func(c *assert.CollectT) { assert.Contains(c, detail(), want) }, "health does not say so")
}
