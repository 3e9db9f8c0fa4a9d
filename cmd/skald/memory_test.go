package main

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// The limit leaves a small heap alone and always leaves room beyond what lives.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, smallHeap, memoryLimit(0))
	require.EqualValues(t, smallHeap, memoryLimit(50<<20))
	require.EqualValues(t, 150<<20+leastSpare, memoryLimit(150<<20))
	require.EqualValues(t, 5<<28, memoryLimit(1<<30))
}

// The limit holds while serve runs, and no longer.
func TestBoundMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- boundMemory(ctx) }()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return debug.SetMemoryLimit(-1) != before })
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, before, debug.SetMemoryLimit(-1))
}
