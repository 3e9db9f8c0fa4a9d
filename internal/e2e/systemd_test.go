//go:build unix

package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// serve tells systemd that it is ready only when it is, then that it lives, and at last
// that it stops.
func TestServe_Systemd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	said := make(chan string, 10_000)
	go func() { // at once, as systemd does: few fit into the socket
		b := make([]byte, 100)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	next := func() string {
		select {
		case s := <-said:
			return s
		case <-time.After(patience):
			require.Fail(t, "it says nothing")
			return ""
		}
	}
	cmd := command(t, "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=200000")
	s := &server{process: background(t, cmd)}
	require.Equal(t, "READY=1", next(), s.text())
	require.Eventually(t, s.ready, patience, patience/1000)
	require.Equal(t, "WATCHDOG=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	require.Equal(t, 0, s.terminate(), s.text())
	got := next()
	for got == "WATCHDOG=1" {
		got = next()
	}
	require.Equal(t, "STOPPING=1", got)
}

// The units are sound in the eyes of systemd, and as closed as they say.
func TestDeploy_Units(t *testing.T) {
	t.Parallel()
	analyze := skaldtest.NeedProgram(t, "systemd-analyze")
	for _, unit := range []string{"skald.service", "skald-edge.service"} {
		path := filepath.Join(deployed, "systemd", unit)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		// It looks for the program that a unit starts.
		here := strings.ReplaceAll(string(text), "/usr/local/bin/skald", skaldtest.Binary(t))
		require.NotEqual(t, string(text), here)
		copied := filepath.Join(t.TempDir(), unit)
		require.NoError(t, os.WriteFile(copied, []byte(here), 0o600))
		out, err := exec.Command(analyze, "verify", "--man=no", copied).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out), "no warning")
		out, err = exec.Command(analyze, "security", "--offline=true", "--threshold=15", path).CombinedOutput()
		require.NoError(t, err, "exposure is above 1.5: %s", out)
	}
}
