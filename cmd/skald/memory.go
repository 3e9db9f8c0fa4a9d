package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// smallHeap is up to where memory is cheaper than the processor time that
	// collecting it more often takes.
	smallHeap = 160 << 20
	// leastSpare is what the limit leaves at least beyond what lives. The runtime's own
	// memory, some 20 MiB, is within the limit as well: where 6 MiB were left for garbage,
	// the collector ran 50 times a second and took 17% of two cores.
	leastSpare = 44 << 20
	// memoryEvery is how often the limit follows what lives.
	memoryEvery = time.Second
)

// boundMemory keeps the heap from growing to three times what lives on it, as
// gcPercent allows, where that is much. NATS keeps a block of 8 MiB for ten seconds after
// one of its messages was read, and the materializer reads all of INGEST: at 24,000
// messages a second 15 such blocks live. Up to smallHeap gcPercent decides, beyond it what
// lives and a quarter more is the limit, at which the collector ran 10 times a second and
// took 5% of two cores. GOMEMLIMIT overrides it.
func boundMemory(ctx context.Context) error {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	t := time.NewTicker(memoryEvery)
	defer t.Stop()
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(memoryLimit(live[0].Value.Uint64()))
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// memoryLimit returns the limit for so many bytes that live.
func memoryLimit(live uint64) int64 { return int64(max(smallHeap, live+max(leastSpare, live/4))) }
