package skaldtest

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/dirlock"
)

// FreeAddress returns a loopback address for a process that is to keep it over
// restarts. Its port lies below those that systems give to outgoing connections:
// otherwise a client that tries to reconnect while nobody listens could be given
// the very port, and find itself connected to itself. Until the test ends no other
// test gets it, of whatever process: one that took it while nobody listens would keep
// the first from coming back, and meet its clients.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const low, high = 10_000, 32_000 // Linux begins at 32768, others at 49152
	for range 100 {
		port := strconv.Itoa(low + rand.IntN(high-low))
		if !reserve(t, port) {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

// reserve gives the port to the test until it ends, unless another has it. The system
// ends a reservation with its process.
func reserve(t testing.TB, port string) bool {
	t.Helper()
	dir := filepath.Join(testDir(), "ports", port)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	lock, err := dirlock.Acquire(dir)
	if err != nil {
		return false
	}
	t.Cleanup(func() { require.NoError(t, lock.Release()) })
	return true
}
