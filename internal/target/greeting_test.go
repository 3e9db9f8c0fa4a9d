package target_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/target"
)

// A NATS server that is asked over HTTP is recognized by its greeting, which is
// neither told nor logged, whichever of greeting and request comes first.
func TestHTTP_NATSServer(t *testing.T) {
	defer log.SetOutput(log.Writer())
	var logged bytes.Buffer
	log.SetOutput(&logged) // the HTTP client's, which takes no other
	server := skaldtest.Server(t)
	for _, scheme := range []string{"http://", "https://"} {
		d, err := target.Open(t.Context(), target.Options{URL: scheme + server.Addr().String()})
		require.NoError(t, err)
		for range 20 {
			_, err = d.Status(t.Context())
			require.ErrorIs(t, err, target.ErrNotHTTP)
			require.ErrorContains(t, err, server.Addr().String())
			require.ErrorContains(t, err, "--server")
			require.NotContains(t, err.Error(), "server_id")
		}
		require.NoError(t, d.Close())
	}
	require.Empty(t, logged.String())
}

// What does not greet, or greets otherwise, is no NATS server; where nothing listens
// at all is not called so.
func TestOpenNATS_AnotherProtocol(t *testing.T) {
	web := httptest.NewServer(nil) // waits for a request
	defer web.Close()
	ssh, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ssh.Close()
	go func() {
		for {
			c, err := ssh.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			c.Write([]byte("SSH-2.0-x\r\n"))
		}
	}()
	open := func(address string) error {
		_, err := target.Open(t.Context(), target.Options{
			Server: "nats://me:pa55@" + address, NATS: natsconn.Options{Timeout: time.Second},
		})
		require.Error(t, err)
		require.ErrorContains(t, err, address)
		require.NotContains(t, err.Error(), "pa55")
		return err
	}
	require.ErrorIs(t, open(strings.TrimPrefix(web.URL, "http://")), target.ErrNotNATS)
	require.ErrorIs(t, open(ssh.Addr().String()), target.ErrNotNATS)
	err = open("127.0.0.1:1")
	require.NotErrorIs(t, err, target.ErrNotNATS)
	require.ErrorIs(t, err, bus.ErrUnavailable)
	for _, other := range []error{nil, errors.New("x"), context.Canceled} {
		require.Equal(t, other, target.ExplainConnect(other))
	}
}
