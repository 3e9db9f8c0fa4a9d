package materializer_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// repairing opens the stopped node's store and a connection and hands a repairer out.
func (n *node) repairing(rebuild bool, do func(r *materializer.Repairer)) {
	n.w.t.Helper()
	n.open()
	defer n.close()
	n.m = nil
	do(materializer.NewRepairer(materializer.RepairOptions{
		Conn: n.nc, JS: n.js, PlanFile: n.planFile(), Reader: n.st.Reader(), Store: n.st, Subjects: n.w.subj, Rebuild: rebuild, NewEpoch: n.newEpoch,
		Streams: bus.StreamOptions{MaxPayload: n.nc.MaxPayload(), IngestBytes: skaldtest.IngestBytes},
	}))
}

func (n *node) planFile() string { return filepath.Join(filepath.Dir(n.path), materializer.PlanFile) }

// diagnose requires a diagnosis.
func (n *node) diagnose(rebuild bool) (d *materializer.Diagnosis) {
	n.w.t.Helper()
	n.repairing(rebuild, func(r *materializer.Repairer) {
		var err error
		d, err = r.Diagnose(n.w.t.Context())
		require.NoError(n.w.t, err)
	})
	return d
}

// repair carries a repair out that crashes at the kth step, from 1, and again without.
// It returns the first diagnosis, and whether there was a kth step.
func (n *node) repair(rebuild bool, k int) (first *materializer.Diagnosis, crashed bool) {
	t := n.w.t
	t.Helper()
	steps := 0
	n.repairing(rebuild, func(r *materializer.Repairer) {
		r.SetSeam(func(string) error {
			if steps++; steps == k {
				return errCrash
			}
			return nil
		})
		d, err := r.Diagnose(t.Context())
		require.NoError(t, err)
		first = d
		err = r.Carry(t.Context(), d)
		if crashed = steps >= k; crashed {
			require.ErrorIs(t, err, errCrash)
			require.ErrorIs(t, materializer.PendingRepair(filepath.Dir(n.path)), materializer.ErrRepairPending)
		} else {
			require.NoError(t, err)
		}
	})
	n.newEpoch = false
	if crashed {
		n.repairing(false, func(r *materializer.Repairer) {
			d, err := r.Diagnose(t.Context())
			require.NoError(t, err)
			require.True(t, d.Todo())
			require.NoError(t, r.Carry(t.Context(), d))
		})
	}
	require.NoError(t, materializer.PendingRepair(filepath.Dir(n.path)))
	d := n.diagnose(false)
	require.Equal(t, materializer.RepairNothing, d.Action, d.Found)
	require.False(t, d.Todo())
	return first, crashed
}

// everyStep runs the scenario once for each step of the repair in it, with a crash
// there, and at last without one.
func everyStep(t *testing.T, scenario func(t *testing.T, w *world, k int) (crashed bool)) {
	for k, crashed := 1, true; crashed; k++ {
		crashed = false
		ok := t.Run(fmt.Sprintf("step=%d", k), func(t *testing.T) { crashed = scenario(t, newWorld(t), k) })
		require.True(t, ok)
		require.Less(t, k, 30, "the repair never ends")
	}
}

// readEvents reads all of EVENTS, which it finds anew.
func (w *world) readEvents() []said {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), w.subj.EventsStream())
	require.NoError(w.t, err)
	return w.read(s, 0)
}

// heardAll returns EVENTS as it is.
func (w *world) heardAll() (all []string) {
	w.t.Helper()
	for _, m := range w.readEvents() {
		all = append(all, m.heard())
	}
	return all
}

// sql changes the stopped node's store behind everyone's back.
func (n *node) sql(text string, args ...any) {
	n.w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+n.path)
	require.NoError(n.w.t, err)
	defer db.Close()
	_, err = db.Exec(text, args...)
	require.NoError(n.w.t, err)
}

// sound requires that table, EVENTS and sessions of the node that has caught up agree.
func (n *node) sound() {
	t := n.w.t
	t.Helper()
	s, err := n.js.Stream(t.Context(), n.w.subj.EventsStream())
	require.NoError(t, err)
	rows := map[uint64]bus.Event{}
	p := store.Page{}
	for {
		p, err = n.st.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{Seq: p.NextAfter}, Limit: 1000})
		require.NoError(t, err)
		if len(p.Events) == 0 && p.NextAfter == p.Latest {
			break
		}
		for _, e := range p.Events {
			rows[e.Seq] = e
		}
	}
	for _, m := range n.w.read(s, 0) {
		e, ok := rows[m.seq]
		if !ok {
			require.True(t, m.subject == n.w.subj.Void() || m.seq < p.Oldest, "EVENTS %d has no row: %s", m.seq, m.body)
			continue
		}
		require.Equal(t, string(m.body), string(e.AppendJSON(nil)))
		delete(rows, m.seq)
	}
	require.Empty(t, rows, "rows that EVENTS lacks")
	all, err := n.st.Reader().AuditSessions(t.Context(), 0, 1000)
	require.NoError(t, err)
	for _, a := range all {
		require.Equal(t, a.HasRows, a.Rows, a.Key)
		if !a.Forgotten {
			require.Equal(t, a.HasFirst, a.First, a.Key)
			require.Equal(t, a.HasLast, a.Last, a.Key)
		}
	}
}

// events finds EVENTS anew: the one that the world knows may be gone.
func (w *world) events() *jetstream.StreamInfo {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), w.subj.EventsStream())
	require.NoError(w.t, err)
	w.streams.Events = s
	return s.CachedInfo()
}
