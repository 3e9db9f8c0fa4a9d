package skaldtest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
)

// IngestBytes bounds INGEST in tests. JetStream sets the whole bound aside, so
// the default of a real bus would fill a small disk with a few parallel tests.
const IngestBytes = 256 << 20

// Server starts a server with a directory and a port of its own and stops it at
// the test's end. It does not sync to disk before it acknowledges: that guards
// against a failure of the machine only, and costs most of a test's time.
func Server(t testing.TB) *natsd.Server {
	t.Helper()
	return ServerWith(t, natsd.Options{SyncInterval: time.Minute})
}

// ServerWith starts a server with options, of which Dir, Listen and Logger are
// completed. SyncInterval 0 syncs always. For a restart, give the same Dir, and an
// address of [FreeAddress] as Listen both times.
func ServerWith(t testing.TB, o natsd.Options) *natsd.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Listen == "" && o.ConfigFile == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := natsd.Start(t.Context(), o)
	for end := time.Now().Add(Timeout); errors.Is(err, natsd.ErrListen) && time.Now().Before(end); {
		// A process that is being started has the sockets of this one for a moment, also
		// that of the server before, which is closed.
		time.Sleep(tick)
		s, err = natsd.Start(t.Context(), o)
	}
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

// Connect connects to s over TCP and closes the connection at the test's end.
func Connect(t testing.TB, s *natsd.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(Timeout))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

// Subjects returns the subjects under the default prefix.
func Subjects(t testing.TB) bus.Subjects {
	t.Helper()
	s, err := bus.NewSubjects("")
	require.NoError(t, err)
	return s
}

// Streams finds or creates the streams under the default prefix.
func Streams(t testing.TB, js jetstream.JetStream) bus.Streams {
	t.Helper()
	o := bus.StreamOptions{IngestBytes: IngestBytes, MaxPayload: js.Conn().MaxPayload()}
	out, err := Subjects(t).Open(t.Context(), js, o, "")
	require.NoError(t, err)
	return out
}

// Publish sends one INGEST message under the default prefix and returns its
// sequence. header may be nil. The body is not checked: tests send what they like.
func Publish(t testing.TB, js jetstream.JetStream, k bus.Key, class bus.Class, body string, header nats.Header) uint64 {
	t.Helper()
	m := &nats.Msg{Subject: Subjects(t).Ingest(k, class), Header: header, Data: []byte(body)}
	ctx, cancel := context.WithTimeout(t.Context(), Timeout) // else it is the client library's 5 s
	defer cancel()
	ack, err := js.PublishMsg(ctx, m)
	require.NoError(t, err)
	return ack.Sequence
}
