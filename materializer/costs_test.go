package materializer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What each way has taken decides how a few facts are appended, and neither a single
// stall nor an old figure does so for long.
func TestAppendCosts(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	var c appendCosts
	require.True(t, c.inSeries(2, now), "nothing is known")
	require.False(t, c.inSeries(maxSeries+1, now))
	c.took(1, ms, now)
	require.True(t, c.inSeries(maxSeries/3, now), "no batch was tried")
	require.False(t, c.inSeries(maxSeries/3+1, now))
	c.took(1000, 2*ms, now)
	require.True(t, c.inSeries(maxSeries/3, now), "a large one says nothing")
	c.took(2, 5*ms, now)
	require.True(t, c.inSeries(10, now))
	require.False(t, c.inSeries(11, now))

	c.took(1, time.Second, now)
	require.True(t, c.inSeries(8, now), "one stall")
	for range 30 {
		c.took(1, 8*ms, now)
	}
	require.False(t, c.inSeries(2, now), "it has become slower")

	now = now.Add(probeEvery + 1)
	require.True(t, c.inSeries(8, now), "tried again")
	c.took(1, ms, now)
	require.False(t, c.inSeries(2, now), "the other too")
	c.took(2, 5*ms, now)
	for range 30 {
		c.took(1, ms, now)
	}
	require.True(t, c.inSeries(8, now))
}
