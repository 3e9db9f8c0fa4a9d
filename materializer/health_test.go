package materializer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stage that waits without an answer is told of within the 5 s that Health promises,
// though no error is known yet, and until it reports again.
func TestHealth_NoAnswer(t *testing.T) {
	require.Less(t, slowAfter, 5*time.Second)
	var m Materializer
	m.health.init()
	m.running.Store(true)
	store := func() Check {
		for _, c := range m.Health() {
			if c.Name == checkStore {
				return c
			}
		}
		return Check{}
	}
	m.health.waiting(checkStore)
	require.Equal(t, Check{Name: checkStore, OK: true}, store())
	m.health.since[checkStore] = time.Now().Add(-slowAfter - time.Millisecond)
	m.health.waiting(checkStore)
	require.False(t, store().OK)
	require.Contains(t, store().Detail, "no answer for ")
	m.health.set(checkStore, "")
	require.True(t, store().OK)
}
