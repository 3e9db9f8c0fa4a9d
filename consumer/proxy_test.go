package consumer_test

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// proxied connects to the server through a proxy of its own.
func (w *world) proxied() (*skaldtest.Proxy, *nats.Conn, jetstream.JetStream) {
	w.t.Helper()
	p := skaldtest.NewProxy(w.t, w.server.Addr().String())
	// A busy machine may need several tries, the first time as well.
	nc, err := nats.Connect(p.URL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.Timeout(500*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	skaldtest.Eventually(w.t, skaldtest.Timeout, nc.IsConnected)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	return p, nc, js
}
