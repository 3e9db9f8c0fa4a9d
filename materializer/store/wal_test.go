package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/materializer/store"
)

// A log that has grown behind a snapshot is cut when that is gone, though nothing is
// written any more; while it is there, nobody waits for it.
func TestCutLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	other := raw(t, path)
	other.SetMaxOpenConns(1)
	_, err := other.Exec("BEGIN")
	require.NoError(t, err)
	require.EqualValues(t, 1, number(t, other, "SELECT count(*) FROM events"))
	for seq := uint64(2); seq < 102; seq++ {
		e := row(seq, alpha, "error")
		e.Data = []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		put(t, s, e)
	}
	size := func() int64 {
		t.Helper()
		require.NoError(t, s.CutLog(t.Context()))
		n, err := s.WALSize()
		require.NoError(t, err)
		return n
	}
	require.Greater(t, size(), int64(100<<20))
	_, err = other.Exec("ROLLBACK")
	require.NoError(t, err)
	require.Zero(t, size())
	v, err := s.Pragma("busy_timeout")
	require.NoError(t, err)
	require.Equal(t, "5000", v, "commits wait for others as before")
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 101)
}
