package materializer_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// stuck is a dialer that, once told so, does not come back before it is released.
type stuck struct {
	on      atomic.Bool
	entered chan struct{}
	release chan struct{}
}

func (s *stuck) Dial(network, address string) (net.Conn, error) {
	if s.on.CompareAndSwap(true, false) {
		close(s.entered)
		<-s.release
	}
	return net.Dial(network, address)
}

// While the client library tries to connect it holds its lock. Health and the state of the
// connection are told all the same, and once it is back they say that.
func TestHealth_WhileConnecting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := &stuck{entered: make(chan struct{}), release: make(chan struct{})}
	proxy := skaldtest.NewProxy(t, w.server.Addr().String())
	n := w.node()
	n.url, n.connect = proxy.URL(), []nats.Option{nats.SetCustomDialer(d)}
	n.start(nil)
	w.fail(alpha, "before")
	n.catchUp()
	require.True(t, n.check("nats").OK)

	d.on.Store(true)
	proxy.Cut()
	<-d.entered
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !n.check("nats").OK })
	status, again := n.m.Connection()
	require.Equal(t, nats.RECONNECTING, status)
	require.Zero(t, again)
	close(d.release)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("nats").OK })
	_, again = n.m.Connection()
	require.EqualValues(t, 1, again)
	w.fail(alpha, "after")
	n.catchUp()
	n.stop()
}
