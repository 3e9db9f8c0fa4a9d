package skaldtest

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/materializer/store"
)

// OtherProgram opens the store's file in dir as another program would, and runs a
// statement on its one connection. It is closed with the test, if not before.
func OtherProgram(t testing.TB, dir, statement string) *sql.DB {
	t.Helper()
	// How this process locks files is decided by the first store that it opens.
	first, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	require.NoError(t, first.Close())
	db, err := sql.Open("sqlite", filepath.Join(dir, "skald.db"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.Exec("PRAGMA busy_timeout = 10000; " + statement)
	require.NoError(t, err)
	return db
}
