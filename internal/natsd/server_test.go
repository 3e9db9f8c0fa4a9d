package natsd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

func start(t *testing.T, o natsd.Options) *natsd.Server {
	t.Helper()
	if o.Listen == "" && o.ConfigFile == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := natsd.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

func streams(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// Messages outlive the server, and its address is free again at once.
func TestServer_Restart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "the server")
	s := start(t, natsd.Options{Dir: dir, Listen: skaldtest.FreeAddress(t)})
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	js := streams(t, nc)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s.1", []byte("kept"))
	require.NoError(t, err)
	addr := s.Addr().String()
	s.Shutdown()
	s.Shutdown() // no harm
	require.Equal(t, addr, s.Addr().String())

	again := start(t, natsd.Options{Dir: dir, Listen: addr})
	require.Equal(t, "nats://"+addr, again.ClientURL())
	inside, err := again.InProcess(nats.Name("inside"))
	require.NoError(t, err)
	defer inside.Close()
	st, err := streams(t, inside).Stream(t.Context(), "S")
	require.NoError(t, err)
	m, err := st.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "kept", string(m.Data))
}

// A message of 8 MiB passes, one byte more does not.
func TestServer_Payload(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Options{Dir: t.TempDir(), SyncInterval: time.Minute})
	nc, err := s.InProcess()
	require.NoError(t, err)
	defer nc.Close()
	require.EqualValues(t, natsd.DefaultMaxPayload, nc.MaxPayload())
	js := streams(t, nc)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", bytes.Repeat([]byte("x"), natsd.DefaultMaxPayload))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", bytes.Repeat([]byte("x"), natsd.DefaultMaxPayload+1))
	require.ErrorIs(t, err, nats.ErrMaxPayload)
}

// A stream may have more consumers than the server's default of 1,000.
func TestServer_ManyConsumers(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Options{Dir: t.TempDir(), SyncInterval: time.Minute})
	nc, err := s.InProcess()
	require.NoError(t, err)
	defer nc.Close()
	st, err := streams(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	for i := range 1001 {
		_, err := st.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true})
		require.NoError(t, err, "consumer %d", i+1)
	}
}

// A taken address is named, and the server that has it goes on.
func TestStart_AddressInUse(t *testing.T) {
	t.Parallel()
	first := start(t, natsd.Options{Dir: t.TempDir()})
	var log bytes.Buffer
	o := natsd.Options{Dir: filepath.Join(t.TempDir(), "new"), Listen: first.Addr().String(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	tried := o.Try()
	require.NoDirExists(t, o.Dir)
	_, err := natsd.Start(t.Context(), o)
	for _, err := range []error{err, tried} {
		require.ErrorIs(t, err, natsd.ErrListen)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.ErrorContains(t, err, first.Addr().String())
	}
	require.NotContains(t, log.String(), "address already in use", "it is returned, so it is not logged too")
	require.NoError(t, natsd.Options{Dir: o.Dir, Listen: "127.0.0.1:0"}.Try())
	require.ErrorIs(t, natsd.Options{Dir: o.Dir, Listen: "4223"}.Try(), natsd.ErrAddress)
	require.ErrorIs(t, natsd.Options{Dir: o.Dir, Listen: "4223"}.Check(), natsd.ErrAddress)
	require.NoError(t, natsd.Options{Dir: o.Dir, Listen: o.Listen}.Check(), "it listens to nothing")
	nc, err := nats.Connect(first.ClientURL())
	require.NoError(t, err)
	nc.Close()
}

// A directory that can not be used is named with the reason.
func TestStart_DirNotWritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	dirs := []string{file, filepath.Join(file, "below")}
	if os.Geteuid() != 0 { // root may write anywhere
		locked := filepath.Join(t.TempDir(), "locked")
		require.NoError(t, os.Mkdir(locked, 0o500))
		dirs = append(dirs, locked, filepath.Join(locked, "below"))
	}
	for _, dir := range dirs {
		_, err := natsd.Start(t.Context(), natsd.Options{Dir: dir, Listen: "127.0.0.1:0"})
		require.ErrorIs(t, err, natsd.ErrStoreDir, dir)
		require.ErrorContains(t, err, dir)
	}
}

// JetStream's own complaint about its directory ends the start, too.
func TestStart_JetStreamFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600)) // the server's own folder
	_, err := natsd.Start(t.Context(), natsd.Options{Dir: dir, Listen: "127.0.0.1:0"})
	require.ErrorContains(t, err, "start NATS server")
	require.ErrorContains(t, err, "JetStream")
}

// Outside of loopback a configuration must say who may connect.
func TestStart_Exposed(t *testing.T) {
	t.Parallel()
	_, err := natsd.Start(t.Context(), natsd.Options{Dir: t.TempDir(), Listen: "0.0.0.0:0"})
	require.ErrorIs(t, err, natsd.ErrExposed)
}

// With users in the configuration, nobody connects without credentials, not even
// in process; what is missing in the file is completed.
func TestStart_ConfigFile(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, []byte(`
		listen: "0.0.0.0:-1"
		accounts { BUS { jetstream: enabled, users: [ { user: skald, password: pa55 } ] } }
	`), 0o600))
	s := start(t, natsd.Options{Dir: t.TempDir(), ConfigFile: config})
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "nats://127.0.0.1:"+port, s.ClientURL())

	_, err = nats.Connect(s.ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
	_, err = s.InProcess()
	require.ErrorIs(t, err, nats.ErrAuthorization)

	nc, err := s.InProcess(nats.UserInfo("skald", "pa55"))
	require.NoError(t, err)
	defer nc.Close()
	require.EqualValues(t, natsd.DefaultMaxPayload, nc.MaxPayload())
	_, err = streams(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
}

// A configuration that lets anyone in from the network is used, but not in silence.
func TestStart_WarnsIfOpen(t *testing.T) {
	t.Parallel()
	for text, warns := range map[string]bool{
		`listen: "0.0.0.0:-1"`:   true,
		`listen: "127.0.0.1:-1"`: false,
		`listen: "0.0.0.0:-1", authorization { user: u, password: "$2a$11$W2zko751KUvVy59mUTWmpOdWjpEm5qhcCZRd05GjI/sSOT.xtiHyG" }`: false,
	} {
		config := filepath.Join(t.TempDir(), "nats.conf")
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		var b bytes.Buffer
		s := start(t, natsd.Options{
			Dir: t.TempDir(), ConfigFile: config,
			Logger: slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		s.Shutdown() // nothing writes any more
		require.Equal(t, warns, strings.Contains(b.String(), "lets in anyone"), "%s\n%s", text, b.String())
	}
}

// A context that ends stops the start and gives its cause back.
func TestStart_Cancelled(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := natsd.Start(ctx, natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.ErrorIs(t, err, cause)
}

// After Shutdown nothing of the server runs.
func TestShutdown_LeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, err := natsd.Start(t.Context(), natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	nc, err := s.InProcess()
	require.NoError(t, err)
	_, err = streams(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	nc.Close()
	s.Shutdown()
	_, err = net.DialTimeout("tcp", s.Addr().String(), time.Second)
	require.Error(t, err)
	goleak.VerifyNone(t, before)
}
