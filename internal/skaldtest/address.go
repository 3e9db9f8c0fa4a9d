package skaldtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreeAddress returns a loopback address for a process that is to keep it over
// restarts. Its port lies below those that systems give to outgoing connections:
// otherwise a client that tries to reconnect while nobody listens could be given
// the very port, and find itself connected to itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const low, high = 10_000, 32_000 // Linux begins at 32768, others at 49152
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(low+rand.IntN(high-low)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}
