package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Rewind takes rows above a number away, counts anew, refuses cursors of the old
// epoch, and lets the same numbers be committed again. Other states stay.
func TestRewind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	a, b, gone := bus.Key{Workspace: "w", Session: "a"}, bus.Key{Workspace: "w", Session: "b"}, bus.Key{Workspace: "w", Session: "gone"}
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "old", IngestID: "in"}))
	commit(t, s, &store.Commit{
		Position: at(6, 6),
		Rows:     []store.Row{row(1, a, "error"), row(2, gone, "error"), row(3, b, "error"), row(4, a, "error"), row(5, b, "error"), row(6, gone, "error")},
	})
	forget(t, s, gone)

	require.Error(t, s.Rewind(t.Context(), 3, store.Bus{}), "no epoch")
	before, err := s.Reader().Status(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Rewind(t.Context(), 3, store.Bus{Epoch: "new", IngestID: "in"}))
	for range 2 { // and from the file
		st, err := s.Reader().Status(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, st.EventsSeq)
		require.Equal(t, before.IngestSeq, st.IngestSeq)
		require.Equal(t, "new", st.Epoch)
		require.EqualValues(t, 1, st.Removals)
		list, err := s.Reader().AuditSessions(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, list, 3)
		for _, x := range list {
			require.Equal(t, x.HasRows, x.Rows, x.Key)
			require.EqualValues(t, 1, x.Rows, x.Key)
			require.Equal(t, x.Forgotten, x.Removing, x.Key)
		}
		_, err = s.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{Epoch: "old", Seq: 1}, Limit: 1})
		require.ErrorIs(t, err, bus.ErrOtherEpoch)
		require.NoError(t, s.Close())
		s = openAt(t, path)
	}
	commit(t, s, &store.Commit{Position: at(6, 5), Rows: []store.Row{row(4, b, "error"), row(5, gone, "error")}})
	c, err := s.Reader().AuditCounts(t.Context())
	require.NoError(t, err)
	require.Equal(t, c.HasSessions, c.Sessions)
	require.Empty(t, c.Orphans)
	require.EqualValues(t, 5, c.HighestRow)
	none, err := s.Reader().Row(t.Context(), 6)
	require.NoError(t, err)
	require.Nil(t, none)
	said, err := s.Reader().Integrity(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, said)
}
