//go:build linux

package torture_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker())
	}
	os.Exit(m.Run())
}

// TestTorture runs fleets, each with a seed of its own, until the time is up: one
// every two minutes at most, so that a failure's schedule can be read, and two in a minute,
// since what was lost for good shows when a fleet has come to its end.
func TestTorture(t *testing.T) {
	total, seed := duration(t, 20*time.Second), firstSeed(t)
	each := min(2*time.Minute, max(20*time.Second, total/2))
	sum := result{faults: map[string]int{}}
	for end := time.Now().Add(total); time.Until(end) > 0 && !t.Failed(); seed++ {
		d := min(each, time.Until(end))
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { sum.add(run(t, seed, d)) })
	}
	t.Log(sum)
}

// duration is what SKALD_TORTURE_FOR says, or else.
func duration(t *testing.T, otherwise time.Duration) time.Duration {
	s := os.Getenv("SKALD_TORTURE_FOR")
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

// firstSeed is what SKALD_TEST_SEED says, or a fresh one.
func firstSeed(t *testing.T) uint64 {
	s := os.Getenv("SKALD_TEST_SEED")
	if s == "" {
		return rand.Uint64() >> 12 // readable
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err)
	return seed
}

// run is the life of one fleet.
func run(t *testing.T, seed uint64, d time.Duration) result {
	t.Logf("SKALD_TEST_SEED=%d", seed)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f := newFleet(t, ctx, seed)
	f.start(f.drawn())
	f.torture(d)
	return f.finish()
}

// finish lets the fleet come to its end and checks it.
func (f *fleet) finish() result {
	f.t.Helper()
	f.settle()
	r := result{fleets: 1, applied: f.check(), seen: f.ledger.rowsSeen(), faults: f.injected}
	f.look()
	for _, s := range f.stores {
		r.starts += s.starts
	}
	f.t.Log(r)
	return r
}

// result is what was done in all.
type result struct {
	fleets, applied, seen, starts int
	faults                        map[string]int
}

func (r *result) add(o result) {
	r.fleets += o.fleets
	r.applied += o.applied
	r.seen += o.seen
	r.starts += o.starts
	for name, n := range o.faults {
		r.faults[name] += n
	}
}

func (r result) String() string {
	var b strings.Builder
	total := 0
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&b, "; %s %d", name, r.faults[name])
		total += r.faults[name]
	}
	return fmt.Sprintf("%d fleets, %d messages and events of journals applied once and in order, %d rows given to readers, %d starts of serve, %d faults%s",
		r.fleets, r.applied, r.seen, r.starts, total, b.String())
}
