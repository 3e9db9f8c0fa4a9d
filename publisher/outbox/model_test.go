package outbox_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/skaldbus/skald/publisher/outbox"
)

// Whatever is added, released, tidied up and closed or copied away as a crash would
// leave it, the box holds what a list holds.
func TestBox_Model(t *testing.T) {
	t.Parallel()
	base := fastDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "box")
		require.NoError(rt, err)
		o := outbox.Options{SegmentBytes: rapid.SampledFrom([]int64{1, 300, 2000, 1 << 20}).Draw(rt, "segment")}
		b, err := outbox.Open(dir, o)
		require.NoError(rt, err)
		defer func() { b.Close() }()
		live := map[uint64]string{}
		unsaid := map[uint64]string{} // released, and perhaps not on disk
		counts := map[int]uint64{}
		compare := func() {
			got := map[uint64]string{}
			for _, s := range b.Sessions() {
				var before uint64
				for _, e := range s.Entries {
					require.Greater(rt, e.Number, before)
					before = e.Number
					if _, ok := unsaid[e.Number]; ok {
						b.Release(e.Number)
						continue
					}
					got[e.Number] = string(e.Body)
				}
				var n int
				fmt.Sscanf(s.Key.Session, "s%d", &n)
				require.Equal(rt, counts[n], s.Count)
			}
			require.Equal(rt, live, got)
			held, _ := b.Held()
			require.Equal(rt, len(live), held)
		}
		reopen := func(from string) {
			b, err = outbox.Open(from, o)
			require.NoError(rt, err)
			compare()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				n := rapid.IntRange(0, 3).Draw(rt, "session")
				entries := make([]outbox.Entry, rapid.IntRange(1, 4).Draw(rt, "entries"))
				for i := range entries {
					counts[n]++
					entries[i] = counted(counts[n], fmt.Sprint(n, " ", counts[n]))
				}
				batch, err := b.Add(nil, outbox.State{Key: key(n), Publisher: "p", Count: counts[n], UsedAt: 1 << 60}, entries)
				require.NoError(rt, err)
				require.NoError(rt, batch.Wait())
				clear(unsaid) // written along
				for _, e := range entries {
					live[e.Number] = string(e.Body)
				}
			},
			"release": func(rt *rapid.T) {
				if len(live) == 0 {
					return
				}
				n := rapid.SampledFrom(slices.Sorted(maps.Keys(live))).Draw(rt, "number")
				b.Release(n)
				unsaid[n] = live[n]
				delete(live, n)
			},
			"tend": func(rt *rapid.T) {
				require.NoError(rt, b.Tend())
				clear(unsaid)
			},
			"close": func(rt *rapid.T) {
				require.NoError(rt, b.Close())
				clear(unsaid)
				reopen(dir)
			},
			"crash": func(rt *rapid.T) {
				from, err := os.MkdirTemp(base, "box")
				require.NoError(rt, err)
				require.NoError(rt, os.CopyFS(from, os.DirFS(dir)))
				require.NoError(rt, b.Close())
				dir = from
				reopen(dir)
			},
		})
	})
}
