package natsconn_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/skaldtest"
)

func streams(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func TestCheck_Good(t *testing.T) {
	t.Parallel()
	nc := connect(t, natsconn.Options{URL: server(t, "127.0.0.1:0", "").ClientURL()})
	require.NoError(t, natsconn.Check(t.Context(), nc, streams(t, nc)))
}

// old is a server that greets with the version and answers pings.
func old(t *testing.T, version string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
				in := bufio.NewScanner(c)
				for in.Scan() {
					if strings.HasPrefix(in.Text(), "PING") {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return "nats://user:pa55@" + l.Addr().String()
}

// A server that is too old is named with both versions.
func TestCheck_TooOld(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.13.99", "2.9.0", "1.99.99", "odd", "2.14"} {
		nc := connect(t, natsconn.Options{URL: old(t, version)})
		err := natsconn.Check(t.Context(), nc, streams(t, nc))
		require.ErrorIs(t, err, bus.ErrServerTooOld, version)
		require.ErrorContains(t, err, version)
		require.ErrorContains(t, err, bus.MinServerVersion)
		require.NotContains(t, err.Error(), "pa55")
	}
	for _, version := range []string{bus.MinServerVersion, "2.15.0-RC.1", "v2.20.1", "3.0.0", "2.14.0+build"} {
		nc := connect(t, natsconn.Options{URL: old(t, version)})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := natsconn.Check(ctx, nc, streams(t, nc))
		cancel()
		require.NotErrorIs(t, err, bus.ErrServerTooOld, version)
		require.ErrorIs(t, err, context.DeadlineExceeded, version) // nobody answers for JetStream
	}
}

// A server, or an account, without JetStream is told apart from an outage.
func TestCheck_NoJetStream(t *testing.T) {
	t.Parallel()
	ns, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	nc := connect(t, natsconn.Options{URL: ns.ClientURL()})
	err = natsconn.Check(t.Context(), nc, streams(t, nc))
	require.ErrorIs(t, err, bus.ErrNoJetStream)
	require.ErrorContains(t, err, ns.Addr().String())

	s := server(t, "127.0.0.1:0", `accounts {
		A { users: [ {user: a, password: pa55} ] }
		B { jetstream: enabled, users: [ {user: b, password: pa55} ] } }`)
	nc = connect(t, natsconn.Options{URL: s.ClientURL(), User: "a", Password: "pa55"})
	err = natsconn.Check(t.Context(), nc, streams(t, nc))
	require.ErrorIs(t, err, bus.ErrNoJetStream)
	require.ErrorContains(t, err, "account")
	nc = connect(t, natsconn.Options{URL: s.ClientURL(), User: "b", Password: "pa55"})
	require.NoError(t, natsconn.Check(t.Context(), nc, streams(t, nc)))
}

// A server that went away is named without its password.
func TestCheck_Unreachable(t *testing.T) {
	t.Parallel()
	s := server(t, "127.0.0.1:0", `authorization { user: user, password: pa55 }`)
	nc := connect(t, natsconn.Options{URL: "nats://user:pa55@" + s.Addr().String()})
	s.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := natsconn.Check(ctx, nc, streams(t, nc))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "nats://"+s.Addr().String())
	require.NotContains(t, err.Error(), "pa55")

	nc.Close()
	require.ErrorIs(t, natsconn.Check(t.Context(), nc, streams(t, nc)), bus.ErrUnavailable)
}

// What the server refuses is a log line, once, and the reason in the error of
// the call that timed out.
func TestPermission(t *testing.T) {
	t.Parallel()
	s := server(t, "127.0.0.1:0", `
		jetstream: enabled
		authorization { users: [ {user: u, password: pa55, permissions: {
			publish: { allow: ["skald.in.A.>"] }, subscribe: { allow: ["_INBOX_u.>"] } } } ] }`)
	var l logs
	nc := connect(t, natsconn.Options{URL: s.ClientURL(), User: "u", Password: "pa55", InboxPrefix: "_INBOX_u", Logger: l.logger()})
	js := streams(t, nc)
	require.Nil(t, natsconn.Denied(nc))

	other := errors.New("other")
	require.Equal(t, other, natsconn.Explain(nc, other))
	require.NoError(t, natsconn.Explain(nc, nil))
	require.Equal(t, nats.ErrTimeout, natsconn.Explain(nc, nats.ErrTimeout)) // nothing was refused

	began := time.Now()
	for range 3 {
		// The refusal comes by itself, on a busy machine after a short time-out.
		skaldtest.EventuallyWith(t, patience, func(c *assert.CollectT) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := js.Publish(ctx, "skald.in.B.s.error", nil)
			require.ErrorIs(c, err, context.DeadlineExceeded)
			err = natsconn.Explain(nc, err)
			require.ErrorIs(c, err, context.DeadlineExceeded)
			require.ErrorIs(c, err, natsconn.ErrPermission)
			require.ErrorIs(c, err, nats.ErrPermissionViolation)
			var denied *natsconn.PermissionError
			require.ErrorAs(c, err, &denied)
			require.Equal(c, natsconn.PermissionError{Op: "publish", Subject: "skald.in.B.s.error"}, *denied)
		})
	}
	last := time.Now()
	eventually(t, func() bool { return l.count("op=publish subject=skald.in.B.s.error") > 0 })

	_, err := nc.QueueSubscribeSync("skald.ev.>", "readers")
	require.NoError(t, err)
	eventually(t, func() bool {
		d := natsconn.Denied(nc)
		return d != nil && *d == natsconn.PermissionError{Op: "subscribe", Subject: "skald.ev.>", Queue: "readers"}
	})
	require.EqualError(t, natsconn.Denied(nc), "no permission to subscribe to skald.ev.> in queue readers")
	eventually(t, func() bool { return l.count("op=subscribe subject=skald.ev.> queue=readers") == 1 })

	err = natsconn.Check(t.Context(), nc, js)
	var denied *natsconn.PermissionError
	require.ErrorAs(t, err, &denied)
	require.Equal(t, "$JS.API.INFO", denied.Subject)
	require.LessOrEqual(t, l.count("op=publish subject=skald.in.B.s.error"), lines(last.Sub(began)))
}
