package skaldtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreeAddress returns a loopback address for a process that is to keep it over
// restarts, or that nobody listens on. It is the test's own until the test ends: packages
// are tested side by side, so its port is held for UDP, which no test needs, and another
// test that draws the same number finds it held. The port lies below those that systems
// give to outgoing connections and to port 0: otherwise a client that tries to reconnect
// while nobody listens could be given the very port, and find itself connected to itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const low, high = 10_000, 32_000 // Linux begins at 32768, others at 49152
	for range 100 {
		address := "127.0.0.1:" + strconv.Itoa(low+rand.IntN(high-low))
		held, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			held.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { held.Close() })
		return address
	}
	t.Fatal("no free port")
	return ""
}
