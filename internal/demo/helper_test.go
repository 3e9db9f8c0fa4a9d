package demo_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/demo"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// world is a whole bus.
type world struct {
	t      *testing.T
	server *natsd.Server
	store  *store.Store
	js     jetstream.JetStream
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: skaldtest.Server(t)}
	nc, js := skaldtest.Connect(t, w.server)
	w.js = js
	streams := skaldtest.Streams(t, js)
	subjects := skaldtest.Subjects(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Adopt(t.Context(), store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}))
	w.store = st
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: subjects})
	require.NoError(t, err)
	svc := service.New(service.Options{API: api.New(api.Options{Reader: st.Reader()}), Conn: nc, Subjects: subjects, Version: "1.0.0"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- m.Run(ctx) }()
	go func() { ended <- svc.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
	return w
}

// options are those of a story on the world, as fast as it goes.
func (w *world) options() demo.Options {
	return demo.Options{
		Dial: func(_ context.Context, name string) (*nats.Conn, error) {
			return nats.Connect(w.server.ClientURL(), nats.Name(name), nats.MaxReconnects(-1))
		},
		Subjects: skaldtest.Subjects(w.t), Rate: 2000, Downtime: 1,
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
		Note:   func(s string) { w.t.Log(s) },
	}
}

// rows returns the table's events.
func (w *world) rows() []bus.Event {
	w.t.Helper()
	var all []bus.Event
	at := bus.Cursor{}
	for {
		p, err := w.store.Reader().Page(w.t.Context(), store.PageQuery{After: &at, Limit: store.MaxLimit})
		require.NoError(w.t, err)
		if len(p.Events) == 0 {
			return all
		}
		all = append(all, p.Events...)
		at.Seq = p.NextAfter
	}
}
