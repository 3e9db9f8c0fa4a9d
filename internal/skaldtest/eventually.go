package skaldtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Timeout is long enough for anything that a test waits for, on a machine that is
// busy with other tests. A condition that holds ends the waiting at once.
const Timeout = 30 * time.Second

// tick is how often a condition is tried.
const tick = 10 * time.Millisecond

// Eventually waits until cond holds, and fails the test after timeout. cond runs
// in a goroutine of its own, so it must not end the test; use [EventuallyWith]
// for conditions that are made of requirements.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, msgAndArgs ...any) {
	t.Helper()
	require.Eventually(t, cond, timeout, tick, msgAndArgs...)
}

// EventuallyWith waits until cond fails none of its requirements, which it makes
// of c, and reports the last ones that failed after timeout.
func EventuallyWith(t testing.TB, timeout time.Duration, cond func(c *assert.CollectT), msgAndArgs ...any) {
	t.Helper()
	require.EventuallyWithT(t, cond, timeout, tick, msgAndArgs...)
}

// InTime runs do until it takes less than the limit, and fails the test if it never does in
// ten tries. For promises of the kind "is refused within 3 s": a machine that is busy with
// other tests may miss the limit now and then, whatever is promised, but not every time.
func InTime(t testing.TB, limit time.Duration, do func()) {
	t.Helper()
	var took []time.Duration
	for range 10 {
		began := time.Now()
		do()
		d := time.Since(began)
		if d < limit {
			return
		}
		took = append(took, d)
	}
	require.Failf(t, "it takes too long", "took %v, limit %s", took, limit)
}
