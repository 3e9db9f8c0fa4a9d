package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// A page of a workspace holds the lowest of its rows behind the cursor, however many
// sessions it has, and whether its rows lie close together or far apart, have gaps in
// their numbers, or belong to sessions that are forgotten.
func TestPage_ManySessions(t *testing.T) {
	r := skaldtest.Rand(t)
	s := open(t)
	const sessions, steps = 60, 40
	var want []uint64
	gone := bus.Key{Workspace: "many", Session: "s7"}
	seq := uint64(0)
	for step := range steps {
		var rows []store.Row
		dense := step%4 != 3 // else others have nearly all
		for range 100 {
			seq += 1 + r.Uint64N(3)
			key := bus.Key{Workspace: "other", Session: fmt.Sprint("s", r.IntN(5))}
			if n := r.IntN(50); dense && n < 30 || n == 0 {
				key = bus.Key{Workspace: "many", Session: fmt.Sprint("s", r.IntN(sessions))}
			}
			if key.Workspace == "many" && key != gone {
				want = append(want, seq)
			}
			rows = append(rows, row(seq, key, "error"))
		}
		put(t, s, rows...)
	}
	forget(t, s, gone)
	for _, q := range []store.PageQuery{{Limit: 1}, {Limit: 5}, {Limit: 14}, {Limit: 40}, {Limit: 1000}, {Limit: 10, MaxBytes: 700}} {
		q.Workspace = "many"
		require.Equal(t, want, seqs(walk(t, s.Reader(), q)), "%+v", q)
	}
	// From every number, within the stretch and at its end.
	for from, i := uint64(0), 0; from <= seq; from++ {
		for i < len(want) && want[i] <= from {
			i++
		}
		next := want[i:min(i+10, len(want))]
		p := page(t, s.Reader(), store.PageQuery{Workspace: "many", After: after(from), Limit: 10})
		require.Equal(t, next, seqs(p.Events), "behind %d", from)
	}
}
