//go:build unix

package sdnotify_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/sdnotify"
)

// listen stands for systemd.
func listen(t *testing.T) (next func() string) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 100)
		n, err := c.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

// systemd hears that the service is ready, that it lives as long as it is well, and
// that it stops.
func TestRun(t *testing.T) {
	next := listen(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	n, err := sdnotify.New()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	done := make(chan error)
	go func() {
		done <- n.Run(ctx, slog.New(slog.DiscardHandler), func(context.Context) error {
			if asked.Add(1) > 2 {
				return errors.New("ill")
			}
			return nil
		})
	}()
	require.Equal(t, "READY=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	for asked.Load() < 2+5 {
		time.Sleep(time.Millisecond) // before the next look
	}
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, "STOPPING=1", next(), "nothing since it fell ill")
}

// A systemd that reads nothing holds nobody up: what it is not told is logged, and the
// service stops.
func TestRun_NobodyReads(t *testing.T) {
	listen(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	n, err := sdnotify.New()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	done := make(chan error)
	full := make(chan struct{})
	go func() {
		l := slog.New(slog.NewTextHandler(&log, nil))
		is := sync.OnceFunc(func() { close(full) })
		done <- n.Run(ctx, l, func(context.Context) error {
			if strings.Contains(log.String(), "no sign of life") {
				is()
				<-ctx.Done()
			}
			return nil
		})
	}()
	<-full // of signs of life
	cancel()
	require.NoError(t, <-done)
	require.Contains(t, log.String(), "systemd was not told")
}

// Without a socket, or with another process' watchdog, there is nothing to say.
func TestNew(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n, err := sdnotify.New()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.Run(ctx, slog.New(slog.DiscardHandler), nil))

	t.Setenv("NOTIFY_SOCKET", "relative")
	_, err = sdnotify.New()
	require.ErrorIs(t, err, sdnotify.ErrEnvironment)

	next := listen(t)
	t.Setenv("WATCHDOG_USEC", "many")
	_, err = sdnotify.New()
	require.ErrorIs(t, err, sdnotify.ErrEnvironment)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(1))
	n, err = sdnotify.New()
	require.NoError(t, err)
	require.NoError(t, n.Run(ctx, slog.New(slog.DiscardHandler), nil))
	require.Equal(t, "READY=1", next())
	require.Equal(t, "STOPPING=1", next())
}
