package skaldtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// What is published arrives in INGEST, with its headers, on the session's subject.
func TestPublish(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	st := skaldtest.Streams(t, js)
	key := bus.Key{Workspace: "w", Session: "a.b"}
	seq := skaldtest.Publish(t, js, key, bus.ClassError, `{"message":"m"}`, nats.Header{bus.HeaderEventID: {"e"}})
	require.EqualValues(t, 1, seq)

	m, err := st.Ingest.GetMsg(t.Context(), seq)
	require.NoError(t, err)
	require.Equal(t, "skald.in.w.a=2Eb.error", m.Subject)
	require.Equal(t, `{"message":"m"}`, string(m.Data))
	require.Equal(t, "e", m.Header.Get(bus.HeaderEventID))
	require.Equal(t, st.Epoch, skaldtest.Streams(t, js).Epoch)
}

// A server with the directory and the address of one before goes on with both.
func TestServerWith_Restart(t *testing.T) {
	t.Parallel()
	o := natsd.Options{Dir: t.TempDir(), Listen: skaldtest.FreeAddress(t)}
	s := skaldtest.ServerWith(t, o)
	nc, js := skaldtest.Connect(t, s)
	epoch := skaldtest.Streams(t, js).Epoch
	s.Shutdown()
	skaldtest.Eventually(t, skaldtest.Timeout, nc.IsReconnecting)
	skaldtest.ServerWith(t, o)
	skaldtest.Eventually(t, skaldtest.Timeout, nc.IsConnected)
	skaldtest.EventuallyWith(t, skaldtest.Timeout, func(c *assert.CollectT) {
		st, err := js.Stream(t.Context(), "SKALD_EVENTS")
		if assert.NoError(c, err) {
			assert.Equal(c, epoch, st.CachedInfo().Config.Metadata[bus.MetaEpoch])
		}
	})
}

// The program is built once a process and runs.
func TestBinary(t *testing.T) {
	t.Parallel()
	path := skaldtest.Binary(t)
	require.Equal(t, path, skaldtest.Binary(t))
	out, err := exec.Command(path, "version").CombinedOutput()
	require.NoError(t, err, string(out))
}

// The NATS server is built once a process, runs, and is of the module's version.
func TestNATSServerBinary(t *testing.T) {
	t.Parallel()
	path := skaldtest.NATSServerBinary(t)
	require.Equal(t, path, skaldtest.NATSServerBinary(t))
	out, err := exec.Command(path, "--version").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "v2.")

	nc, js := skaldtest.Connect(t, skaldtest.Server(t))
	require.Contains(t, string(out), "v"+nc.ConnectedServerVersion())
	_, err = js.AccountInfo(t.Context())
	require.NoError(t, err)
}

// What processes that have ended left behind goes with the next build.
func TestNATSServerBinary_RemovesOthers(t *testing.T) {
	ended := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, ended.Run())
	base := filepath.Join(os.TempDir(), "skald-test-"+strconv.Itoa(os.Getuid()))
	left := filepath.Join(base, strconv.Itoa(ended.Process.Pid))
	require.NoError(t, os.MkdirAll(left, 0o700))

	own := exec.Command(os.Args[0], "-test.run=^TestNATSServerBinary$")
	out, err := own.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoDirExists(t, left)
}
