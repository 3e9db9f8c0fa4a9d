package consumer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// serveTable answers for a store over NATS until the returned function is called or
// the test ends.
func (w *world) serveTable(st *store.Store) (stop func()) {
	w.t.Helper()
	nc, err := nats.Connect(w.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(skaldtest.Timeout))
	require.NoError(w.t, err)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	ends := func(ctx context.Context) (e api.Ends, err error) {
		s, err := js.Stream(ctx, w.subj.EventsStream())
		if err != nil {
			return e, err
		}
		return api.Ends{EventsLast: s.CachedInfo().State.LastSeq}, nil
	}
	s := service.New(service.Options{
		API: api.New(api.Options{Reader: st.Reader(), Ends: ends}), Conn: nc, Subjects: w.subj, Version: "1.2.3", Logger: logger(w.t),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		_, err := nc.Request(w.subj.Prefix()+".op.status", nil, time.Second)
		return err == nil
	})
	stop = sync.OnceFunc(func() { cancel(); <-done; nc.Close() })
	w.t.Cleanup(stop)
	return stop
}

// second starts a materializer with a store of its own, which runs until stop.
func (w *world) second() (st *store.Store, stop func()) {
	w.t.Helper()
	st, err := store.Open(filepath.Join(w.t.TempDir(), "skald.db"), store.Options{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, st.Close()) })
	require.NoError(w.t, st.Adopt(w.t.Context(), store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID}))
	nc, err := nats.Connect(w.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(skaldtest.Timeout))
	require.NoError(w.t, err)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	streams, err := w.subj.Open(w.t.Context(), js, bus.StreamOptions{MaxPayload: nc.MaxPayload()}, w.streams.Epoch)
	require.NoError(w.t, err)
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: w.subj, Logger: logger(w.t)})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done; nc.Close() })
	w.t.Cleanup(stop)
	return st, stop
}

// prune removes the table's rows below the number.
func (w *world) prune(before uint64) {
	w.t.Helper()
	_, err := w.js.Publish(w.t.Context(), w.subj.IngestAdmin(), fmt.Appendf(nil, `{"op":"prune","before_seq":%d}`, before))
	require.NoError(w.t, err)
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool {
		p, err := w.store.Reader().Page(context.Background(), store.PageQuery{Limit: 1})
		return err == nil && p.Oldest >= before
	})
}

// following is a follower that is ranged over.
type following struct {
	*loop
	f *consumer.Follower
}

// follow starts a follower on js that pages when it is more than far behind.
func (w *world) follow(js jetstream.JetStream, o consumer.FollowOptions, far uint64, each func(bus.Event)) *following {
	w.t.Helper()
	o.Subjects = w.subj
	o.Logger = logger(w.t)
	f, err := consumer.Follow(js, o)
	require.NoError(w.t, err)
	f.Turn(far, far/2)
	return &following{f: f, loop: w.start(f.Cursor, func(ctx context.Context, note func(bus.Event)) (last error) {
		for ev, err := range f.Events(ctx) {
			if err != nil {
				last = err
				continue // it is the last
			}
			if each != nil {
				each(ev)
			}
			note(ev)
		}
		return last
	})}
}

// same fails the test unless the events are those of the table, byte for byte.
func same(t testing.TB, want, got []bus.Event, what string) {
	t.Helper()
	require.Equal(t, seqs(want), seqs(got), what)
	for i := range want {
		require.Equal(t, string(want[i].AppendJSON(nil)), string(got[i].AppendJSON(nil)), what)
	}
}

// failing is a store of cursors that fails as it is told.
type failing struct {
	load, save error
	at         atomic.Uint64
}

func (f *failing) Load(context.Context) (*bus.Cursor, error) { return nil, f.load }

func (f *failing) Save(_ context.Context, at bus.Cursor) error {
	f.at.Store(at.Seq)
	return f.save
}
