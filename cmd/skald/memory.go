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
	// lessSpare is what the limit is below 3/2 of what lives. In a run of a million events
	// serve was 218 MiB larger than a server alone with 32 MiB here, 143 with 48 and 120
	// with 72, but with 72 the collector made the run half as long again.
	lessSpare = 48 << 20
	// memoryEvery is how often the limit follows what lives.
	memoryEvery = time.Second
)

// boundMemory keeps the heap from growing to three times what lives on it, as
// gcPercent allows, where that is much. NATS keeps blocks of 8 MiB that were written or
// read within ten seconds, for as long as no collection takes them: on a fast disk 19 of
// them lived and 370 MiB were resident in a run of a million events, but 215 MiB under
// a limit of 160 MiB. Up to smallHeap gcPercent decides, beyond it 3/2 of what lives less
// lessSpare is the limit, so the collector never has to run without end. GOMEMLIMIT overrides it.
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
func memoryLimit(live uint64) int64 { return int64(max(smallHeap, live/2*3-min(live, lessSpare))) }
