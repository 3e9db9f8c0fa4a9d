package materializer

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Messages are compared at each look, and under load as often as a server forgets that
// they were read. A stream that was set back has not grown, and is compared.
func TestCompared_Due(t *testing.T) {
	now := time.Now()
	holds := func(last, msgs, bytes uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: last, Msgs: msgs, Bytes: bytes}}
	}
	quiet := holds(1000, 1000, 500_000)
	last := compared{at: now.Add(-2 * time.Second), ingest: 1000, events: 1000}
	load := holds(1000+40_000, 1000+40_000, 500*41_000)

	for name, c := range map[string]struct {
		last    compared
		in, ev  *jetstream.StreamInfo
		compare bool
	}{
		"at the start":                    {compared{}, load, load, true},
		"nothing was written":             {last, quiet, quiet, true},
		"a fleet's usual work":            {last, holds(3000, 3000, 1_500_000), holds(3000, 3000, 1_500_000), true},
		"much was written to INGEST":      {last, load, quiet, false},
		"much was written to EVENTS":      {last, quiet, load, false},
		"much was written and trimmed":    {last, holds(41_000, 500, 250_000), quiet, false},
		"much was written, ten seconds":   {compared{at: now.Add(-compareEvery), ingest: 1000, events: 1000}, load, load, true},
		"both were set back":              {last, holds(10, 10, 5_000), holds(10, 10, 5_000), true},
		"both are empty, and made anew":   {last, holds(0, 0, 0), holds(0, 0, 0), true},
		"large messages, few of them":     {last, holds(1010, 10, 40<<20), quiet, false},
		"all was trimmed that was stored": {last, holds(41_000, 0, 0), quiet, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.compare, c.last.due(now, c.in, c.ev)) })
	}
}
