package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/skaldbus/skald/materializer/store"
)

// A data directory pasted into a database URI was cut at ? and #, and % was decoded,
// so that two directories shared one file. Every path leads to exactly its own file,
// again after a restart.
func TestOpen_OddPathsDoNotMeet(t *testing.T) {
	base := t.TempDir()
	names := []string{"plain", "a?b", "a#b", "a", "a%20b", "a b", "über", "we ird", "100%", "a?mode=memory", "file:x", "%2F", "a;b&c=d+e"}
	for i, name := range names {
		dir := filepath.Join(base, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		s := openAt(t, filepath.Join(dir, "skald.db"))
		for n := range i + 1 {
			put(t, s, row(uint64(n+1), alpha, "error"))
		}
		require.FileExists(t, filepath.Join(dir, "skald.db"))
		require.NoError(t, s.Close())
	}
	for i, name := range names {
		path := filepath.Join(base, name, "skald.db")
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 1, "beside the store of %q", name)
		s := openAt(t, path)
		require.Len(t, walk(t, s.Reader(), store.PageQuery{}), i+1, "store of %q", name)
		r, err := store.OpenReader(path)
		require.NoError(t, err)
		require.Len(t, walk(t, r, store.PageQuery{}), i+1, "reader of %q", name)
		require.NoError(t, r.Close())
	}
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Len(t, entries, len(names))
}

// A relative path names the file of the time of opening, whatever directory the
// process is in when a connection is opened later.
func TestOpen_RelativePathStays(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("data", 0o755))
	s := openAt(t, "data/./skald.db")
	t.Chdir(t.TempDir())
	put(t, s, row(1, alpha, "error"))
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 1)
	require.FileExists(t, filepath.Join(dir, "data", "skald.db"))
}

// A new store is durable at each commit, gives space back, and is not for others.
func TestOpen_Settings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	for name, want := range map[string]string{
		"synchronous": "2", "journal_mode": "wal", "auto_vacuum": "2", "journal_size_limit": "67108864", "fullfsync": "1",
		"busy_timeout": fmt.Sprint(store.BusyTimeout.Milliseconds()),
	} {
		got, err := s.Pragma(name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	_, err := s.Reader().ReaderPragma("user_version = 7")
	require.ErrorContains(t, err, "readonly")
	put(t, s, row(1, alpha, "error"))
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		st, err := os.Stat(name)
		require.NoError(t, err)
		require.Zero(t, st.Mode().Perm()&0o137, "%s is %s", name, st.Mode())
	}
	if sqlite.OFDLockingEnabled() {
		// What any library in the process may do must not take SQLite's locks away.
		_, err = os.ReadFile(path)
		require.NoError(t, err)
	}
	put(t, s, row(2, alpha, "error"))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second Close does nothing")
	require.NoFileExists(t, path+"-wal", "the log is moved into the file")
}

// Files that are no store of this program are named, and left as they are.
func TestOpen_RefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("not a database "), 1000), 0o644))
	short := filepath.Join(dir, "short.db")
	require.NoError(t, os.WriteFile(short, []byte("x"), 0o644))
	foreign := filepath.Join(dir, "foreign.db")
	made, err := store.Open(foreign, store.Options{})
	require.NoError(t, err)
	require.NoError(t, made.Close())
	change(t, foreign, "PRAGMA application_id = 0")
	newer := filepath.Join(dir, "newer.db")
	made, err = store.Open(newer, store.Options{})
	require.NoError(t, err)
	require.NoError(t, made.Close())
	change(t, newer, "PRAGMA user_version = 99")

	for _, c := range []struct {
		path string
		want error
		says []string
	}{
		{text, store.ErrNotDatabase, nil},
		{short, store.ErrNotDatabase, nil},
		{foreign, store.ErrNotDatabase, []string{"application id 0x0"}},
		{newer, store.ErrNewer, []string{"99", "4", "upgrade"}},
		{dir, store.ErrNotDatabase, []string{"regular file"}},
	} {
		before := contents(t, c.path)
		_, err := store.Open(c.path, options(t))
		require.ErrorIs(t, err, c.want, c.path)
		for _, part := range append(c.says, c.path) {
			require.ErrorContains(t, err, part)
		}
		_, err = store.OpenReader(c.path)
		require.ErrorIs(t, err, c.want, c.path)
		require.Equal(t, before, contents(t, c.path), "%s was changed", c.path)
	}

	missing := filepath.Join(dir, "missing.db")
	_, err = store.OpenReader(missing)
	require.ErrorIs(t, err, store.ErrNoStore)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoFileExists(t, missing)
	_, err = store.Open(filepath.Join(dir, "no", "skald.db"), options(t))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A reader does not guess at the tables of an older schema: the service brings them up
// to date.
func TestOpenReader_OlderSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	require.NoError(t, openAt(t, path).Close())
	change(t, path, "PRAGMA user_version = 0")
	_, err := store.OpenReader(path)
	require.ErrorIs(t, err, store.ErrNoStore)
	require.ErrorContains(t, err, "its schema is 0, this program reads 4")
}

// A file that a crash left empty is made a store; readers see none until then.
func TestOpen_EmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := store.OpenReader(path)
	require.ErrorIs(t, err, store.ErrNoStore)
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm(), "a stricter file stays as strict")
	v, err := s.Pragma("auto_vacuum")
	require.NoError(t, err)
	require.Equal(t, "2", v)
}

// A damaged page is told from other trouble.
func TestReader_NamesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	for i := range uint64(200) {
		put(t, s, row(i+1, alpha, "error"))
	}
	require.NoError(t, s.Close())
	db := raw(t, path)
	root := number(t, db, "SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
	require.NoError(t, db.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xAA}, 4096), (root-1)*4096)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	r, err := store.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Page(t.Context(), store.PageQuery{After: after(0), Limit: 10})
	require.ErrorIs(t, err, store.ErrCorrupt)
	s = openAt(t, path)
	err = s.Commit(t.Context(), &store.Commit{Position: at(201, 201), Rows: []store.Row{row(201, alpha, "error")}})
	require.ErrorIs(t, err, store.ErrCorrupt)
}

// SQLite's log does not work across machines.
func TestOpen_RefusesNetworkFileSystems(t *testing.T) {
	for number, name := range map[uint32]string{0x6969: "NFS", 0xFF534D42: "SMB", 0x517B: "SMB", 0x5346414F: "AFS"} {
		err := store.RefuseNetwork("/data", number)
		require.ErrorIs(t, err, store.ErrNetworkFile)
		require.ErrorContains(t, err, "/data is on "+name)
	}
	for _, local := range []uint32{0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630} {
		require.NoError(t, store.RefuseNetwork("/data", local))
	}
}

// change runs a statement on the file of a closed store.
func change(t *testing.T, path, statement string) {
	t.Helper()
	db := raw(t, path)
	_, err := db.Exec(statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// contents returns the file's bytes, nil for a directory.
func contents(t *testing.T, path string) []byte {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	if st.IsDir() {
		return nil
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}
