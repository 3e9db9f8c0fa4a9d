package skaldtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rand returns the source of a random test, and prints its seed. SKALD_TEST_SEED
// repeats one.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("SKALD_TEST_SEED"); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err, "SKALD_TEST_SEED")
	}
	t.Logf("SKALD_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
