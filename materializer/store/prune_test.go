package store_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// pruneBefore commits a prune at the present position.
func pruneBefore(t *testing.T, s *store.Store, seq uint64) {
	t.Helper()
	commit(t, s, &store.Commit{Position: position(t, s), PruneBefore: seq})
}

// sessionEvents returns count, first_seq and last_seq as the session's view shows them.
func sessionEvents(t *testing.T, s *store.Store, key bus.Key) (out [3]uint64) {
	t.Helper()
	b, err := s.Reader().Session(t.Context(), key.Session, key.Workspace)
	require.NoError(t, err)
	var v struct {
		Events struct {
			Count    uint64
			FirstSeq *uint64 `json:"first_seq"`
			LastSeq  *uint64 `json:"last_seq"`
		}
	}
	require.NoError(t, json.Unmarshal(b, &v))
	out[0] = v.Events.Count
	if v.Events.FirstSeq != nil {
		out[1], out[2] = *v.Events.FirstSeq, *v.Events.LastSeq
	}
	return out
}

// A prune hides what lies below it at once, cursors into it are gone, and its steps
// delete the rows and keep the sessions' counts.
func TestPrune(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	for seq := uint64(1); seq <= 10; seq++ {
		put(t, s, row(seq, []bus.Key{alpha, beta}[seq/4%2], "error")) // alpha 1-3 8-10, beta 4-7
	}
	for _, filter := range []store.PageQuery{{}, {Workspace: "acme"}, {Session: "beta"}, {Session: "beta", Workspace: "acme"}, {Type: "error"}} {
		require.NotEmpty(t, walk(t, s.Reader(), filter))
	}
	pruneBefore(t, s, 6)
	require.Equal(t, []uint64{6, 7, 8, 9, 10}, seqs(walk(t, s.Reader(), store.PageQuery{})))
	require.Equal(t, []uint64{6, 7}, seqs(walk(t, s.Reader(), store.PageQuery{Session: "beta", Type: "error"})))
	require.Equal(t, []uint64{6, 7, 8, 9, 10}, seqs(walk(t, s.Reader(), store.PageQuery{Workspace: "acme"})))
	for _, seq := range []uint64{1, 4} {
		_, err := s.Reader().Page(t.Context(), store.PageQuery{After: after(seq), Limit: 1})
		require.ErrorIs(t, err, bus.ErrCursorGone)
		var ce *store.CursorError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, store.CursorError{Err: bus.ErrCursorGone, Cursor: *after(seq), Epoch: "e", Latest: 10, Oldest: 6}, *ce)
	}
	for _, seq := range []uint64{0, 5} {
		require.Equal(t, []uint64{6}, seqs(page(t, s.Reader(), store.PageQuery{After: after(seq), Limit: 1}).Events))
	}
	step := func(limit, want int) {
		t.Helper()
		n, err := s.PruneStep(t.Context(), limit)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	step(4, 4)
	require.Equal(t, [3]uint64{3, 8, 10}, sessionEvents(t, s, alpha))
	require.Equal(t, [3]uint64{3, 5, 7}, sessionEvents(t, s, beta))
	step(4, 1)
	step(4, 0)
	require.Equal(t, [3]uint64{2, 6, 7}, sessionEvents(t, s, beta))

	// Lower values and values beyond the end.
	pruneBefore(t, s, 2)
	require.EqualValues(t, 6, status(t, s.Reader()).Oldest)
	pruneBefore(t, s, 8)
	step(100, 2)
	require.Equal(t, [3]uint64{0, 0, 0}, sessionEvents(t, s, beta), "a session outlives its rows")
	put(t, s, row(11, beta, "error"))
	require.Equal(t, [3]uint64{1, 11, 11}, sessionEvents(t, s, beta))
	pruneBefore(t, s, 999)
	require.EqualValues(t, 12, status(t, s.Reader()).Oldest)
	require.NoError(t, s.Close())
	s = openAt(t, path)
	p := page(t, s.Reader(), store.PageQuery{After: after(0), Limit: 1})
	require.Equal(t, store.Page{NextAfter: 11, Latest: 11, Oldest: 12, Epoch: "e"}, p)
	require.Equal(t, p, page(t, s.Reader(), store.PageQuery{After: after(11), Limit: 1}))
	step(100, 4)
	put(t, s, row(12, alpha, "error"))
	require.Equal(t, []uint64{12}, seqs(walk(t, s.Reader(), store.PageQuery{})))
	// The commit that prunes may bring the rows it hides.
	commit(t, s, &store.Commit{Position: at(14, 14), Rows: []store.Row{row(13, alpha, "error"), row(14, alpha, "error")}, PruneBefore: 14})
	require.Equal(t, []uint64{14}, seqs(walk(t, s.Reader(), store.PageQuery{})))
	step(100, 2)
}

// Rows of a forgotten session are the work list of their removal from EVENTS: pruning
// leaves them, and does not come back to them at each step.
func TestPrune_LeavesRemovals(t *testing.T) {
	s := open(t)
	for seq := uint64(1); seq <= 20; seq++ {
		put(t, s, row(seq, []bus.Key{alpha, beta}[seq%2], "error"))
	}
	forget(t, s, alpha) // even numbers
	pruneBefore(t, s, 15)
	for _, want := range []int{3, 3, 1, 0} {
		n, err := s.PruneStep(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.Equal(t, []uint64{15, 17, 19}, seqs(walk(t, s.Reader(), store.PageQuery{})))
	require.Equal(t, []uint64{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}, drain(t, s, 7))
	require.Equal(t, [3]uint64{3, 15, 19}, sessionEvents(t, s, beta))
}
