package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// world is a server with a bus and a materializer that fills its EVENTS.
type world struct {
	t       testing.TB
	server  *natsd.Server
	o       natsd.Options
	subj    bus.Subjects
	nc      *nats.Conn
	js      jetstream.JetStream
	streams bus.Streams
	store   *store.Store
	stop    func() // the materializer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, subj: skaldtest.Subjects(t), o: natsd.Options{Dir: t.TempDir(), Listen: skaldtest.FreeAddress(t), SyncInterval: time.Minute}}
	w.server = skaldtest.ServerWith(t, w.o)
	w.nc, w.js = skaldtest.Connect(t, w.server)
	w.streams = skaldtest.Streams(t, w.js)
	var err error
	w.store, err = store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	require.NoError(t, w.store.Adopt(t.Context(), store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID}))
	w.materialize()
	return w
}

// materialize starts a materializer that runs until stop or the test's end.
func (w *world) materialize() {
	nc, err := nats.Connect(w.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(skaldtest.Timeout))
	require.NoError(w.t, err)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	// Its own view of the streams: nothing of ours may be waited for by its pulls.
	streams, err := w.subj.Open(w.t.Context(), js, bus.StreamOptions{MaxPayload: nc.MaxPayload()}, w.streams.Epoch)
	require.NoError(w.t, err)
	m, err := materializer.New(materializer.Options{
		Conn: nc, JS: js, Store: w.store, Streams: streams, Subjects: w.subj, Logger: logger(w.t),
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			w.t.Log("the materializer has ended: ", err)
		}
	}()
	w.stop = sync.OnceFunc(func() { cancel(); <-done; nc.Close() })
	w.t.Cleanup(w.stop)
}

func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// fail publishes n error messages of the session, each of which gives one event.
func (w *world) fail(k bus.Key, n int) {
	w.t.Helper()
	for i := range n {
		skaldtest.Publish(w.t, w.js, k, bus.ClassError, fmt.Sprintf(`{"recorded_at_ms":%d,"message":"m%d"}`, i, i), nil)
	}
}

// active publishes an activity of the session, which gives one event.
func (w *world) active(k bus.Key, what string) {
	w.t.Helper()
	skaldtest.Publish(w.t, w.js, k, bus.ClassActivity, fmt.Sprintf(`{"recorded_at_ms":1,"activity":{"state":%q}}`, what), nil)
}

func (w *world) forget(k bus.Key) {
	w.t.Helper()
	skaldtest.Publish(w.t, w.js, k, bus.ClassControl, `{"op":"forget"}`, nil)
}

// catchUp waits until all that was said is in EVENTS and in the table, and what is
// forgotten out of both, and returns EVENTS' end.
func (w *world) catchUp() uint64 {
	w.t.Helper()
	var last uint64
	skaldtest.Eventually(w.t, 2*skaldtest.Timeout, func() bool {
		ctx := context.Background()
		in, err := w.js.Stream(ctx, w.subj.IngestStream())
		if err != nil {
			return false
		}
		ev, err := w.js.Stream(ctx, w.subj.EventsStream())
		if err != nil {
			return false
		}
		s, err := w.store.Reader().Status(ctx)
		last = ev.CachedInfo().State.LastSeq
		return err == nil && s.IngestSeq == in.CachedInfo().State.LastSeq && s.EventsSeq == last && s.Removals == 0
	}, "the materializer does not catch up")
	return last
}

// table lists what the table holds for the options' filter: what a reader must see.
func (w *world) table(o consumer.Options) []bus.Event {
	w.t.Helper()
	var out []bus.Event
	for after := uint64(0); ; {
		p, err := w.store.Reader().Page(w.t.Context(), store.PageQuery{
			After: &bus.Cursor{Seq: after}, Limit: store.MaxLimit, Session: o.Session, Workspace: o.Workspace,
		})
		require.NoError(w.t, err)
		for _, ev := range p.Events {
			if len(o.Types) == 0 || slices.Contains(o.Types, ev.Type) {
				out = append(out, ev)
			}
		}
		after = p.NextAfter
		if len(p.Events) == 0 && after == p.Latest {
			return out
		}
	}
}

// restart stops the server and starts it again, at the same address.
func (w *world) restart() {
	w.t.Helper()
	w.restartAfter(func() {})
}

// restartAfter does something while the server is down.
func (w *world) restartAfter(do func()) {
	w.t.Helper()
	w.server.Shutdown()
	do()
	w.server = skaldtest.ServerWith(w.t, w.o)
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		_, err := w.js.AccountInfo(context.Background())
		return err == nil
	})
}

// connect is another connection to the server, as another process has it.
func (w *world) connect() (*nats.Conn, jetstream.JetStream) {
	return skaldtest.Connect(w.t, w.server)
}

// consumers lists the names of EVENTS' consumers, but for those through which a
// materializer follows, which come and go.
func (w *world) consumers() []string {
	w.t.Helper()
	return w.consumersBut("materializer")
}

// consumersBut leaves out those whose description begins so.
func (w *world) consumersBut(description string) []string {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), w.subj.EventsStream())
	require.NoError(w.t, err)
	all := s.ListConsumers(w.t.Context())
	var out []string
	for info := range all.Info() {
		if !strings.HasPrefix(info.Config.Description, description) {
			out = append(out, info.Name)
		}
	}
	require.NoError(w.t, all.Err())
	slices.Sort(out)
	return out
}

// deleteConsumers deletes those of EVENTS' consumers that are chosen, a materializer's as
// well, which may be gone by then.
func (w *world) deleteConsumers(chosen func(name string) bool) {
	w.t.Helper()
	for _, name := range w.consumersBut("none") {
		if !chosen(name) {
			continue
		}
		if err := w.js.DeleteConsumer(w.t.Context(), w.subj.EventsStream(), name); err != nil {
			require.ErrorIs(w.t, err, jetstream.ErrConsumerNotFound)
		}
	}
}

// saved waits until the durable's position is seq.
func (w *world) saved(durable string, seq uint64) {
	w.t.Helper()
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		d, err := w.js.Consumer(context.Background(), w.subj.EventsStream(), consumer.DurableName(durable))
		return err == nil && d.CachedInfo().AckFloor.Stream == seq
	})
}

// reader is a consumer that runs.
type reader struct {
	*loop
	c *consumer.Consumer
}

// read starts a consumer on js. hook is called before an event is noted, and may be nil.
func (w *world) read(js jetstream.JetStream, o consumer.Options, hook func(context.Context, bus.Event) error) *reader {
	w.t.Helper()
	o.Subjects = w.subj
	if o.Logger == nil {
		o.Logger = logger(w.t)
	}
	c, err := consumer.New(js, o)
	require.NoError(w.t, err)
	return &reader{c: c, loop: w.start(c.Cursor, func(ctx context.Context, note func(bus.Event)) error {
		return c.Run(ctx, func(ctx context.Context, ev bus.Event) error {
			if hook != nil {
				if err := hook(ctx, ev); err != nil {
					return err
				}
			}
			note(ev)
			return nil
		})
	})}
}

func (r *reader) seqs() []uint64 { return seqs(r.seen()) }

func seqs(events []bus.Event) []uint64 {
	var out []uint64
	for _, ev := range events {
		out = append(out, ev.Seq)
	}
	return out
}

func from(seq uint64) *bus.Cursor { return &bus.Cursor{Seq: seq} }

// span is the numbers from first to last.
func span(first, last uint64) []uint64 {
	var out []uint64
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}
