package auth_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/auth"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// An answer that is lost on its way is asked for again: the reader's durable is made.
func TestEnsure_AnswerLost(t *testing.T) {
	t.Parallel()
	server := skaldtest.Server(t)
	_, js := skaldtest.Connect(t, server)
	skaldtest.Streams(t, js)
	d, err := auth.Parse([]byte(`{
		"servers": ["nats://127.0.0.1:4222"], "materializers": ["m"], "edges": ["e"],
		"workspaces": [{"id": "acme", "readers": [{"name": "r", "durables": ["d"]}]}]}`))
	require.NoError(t, err)

	u, err := url.Parse(server.ClientURL())
	require.NoError(t, err)
	proxy := skaldtest.NewProxy(t, u.Host)
	nc, err := nats.Connect(proxy.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	through, err := jetstream.New(nc)
	require.NoError(t, err)

	proxy.Hold(true)
	before := nc.Stats().OutMsgs
	type result struct {
		made []string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		made, err := auth.Ensure(t.Context(), through, d)
		done <- result{made, err}
	}()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return nc.Stats().OutMsgs > before })
	proxy.Cut()
	proxy.Hold(false)
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, []string{"acme=r-d"}, r.made)

	// It is there, and as it should be.
	made, err := auth.Ensure(t.Context(), js, d)
	require.NoError(t, err)
	require.Empty(t, made)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = auth.Ensure(stopped, js, d)
	require.ErrorIs(t, err, context.Canceled)
}
