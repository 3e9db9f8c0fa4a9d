package consumer_test

import (
	"database/sql"
	"errors"

	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// database is an application's own. The store's package is asked first, since it
// chooses the file locks of this process, which others of its tests need.
func database(t testing.TB) *sql.DB {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	require.NoError(t, st.Close())
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Both stores give back what was saved last, also to another process, and nothing
// where nothing was.
func TestCursorStore(t *testing.T) {
	t.Parallel()
	path, db := filepath.Join(t.TempDir(), "we ird?#%20.cursor"), database(t)
	for name, open := range map[string]func() consumer.CursorStore{
		"file": func() consumer.CursorStore { return consumer.NewFileCursor(path) },
		"sql": func() consumer.CursorStore {
			s, err := consumer.NewSQLCursor(db, consumer.SQLCursorOptions{Name: "'; DROP TABLE x; --"})
			require.NoError(t, err)
			require.NoError(t, s.Create(t.Context()))
			require.NoError(t, s.Create(t.Context()))
			return s
		},
	} {
		at, err := open().Load(t.Context())
		require.NoError(t, err, name)
		require.Nil(t, at, name)
		for _, c := range []bus.Cursor{{Seq: 5}, {Epoch: "e1", Seq: 0}, {Epoch: "e1", Seq: bus.MaxSeq}, {Epoch: "e2", Seq: 7}, {Epoch: "e2", Seq: 7}} {
			require.NoError(t, open().Save(t.Context(), c), name)
			at, err := open().Load(t.Context())
			require.NoError(t, err, name)
			require.Equal(t, &c, at, name)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}

// A file that holds no cursor, or can not be written, is an error that names it.
func TestFileCursor_Broken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cursor")
	for _, text := range []string{"", "x", "-1", "1.5", "e1:", "9223372036854775808"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := consumer.NewFileCursor(path).Load(t.Context())
		require.ErrorContains(t, err, path, text)
	}
	require.NoError(t, os.WriteFile(path, []byte(" e1:5\n"), 0o600))
	at, err := consumer.NewFileCursor(path).Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, &bus.Cursor{Epoch: "e1", Seq: 5}, at)
	require.Error(t, consumer.NewFileCursor(filepath.Join(path, "none")).Save(t.Context(), *at))
	dir := t.TempDir() // where the file should be stands a directory
	require.Error(t, consumer.NewFileCursor(dir).Save(t.Context(), *at))
	left, err := filepath.Glob(dir + ".*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// A cursor that is saved in a transaction comes and goes with it, and only forward:
// of two processes under one name, one is refused with its work.
func TestSQLCursor_SaveIn(t *testing.T) {
	t.Parallel()
	db := database(t)
	_, err := db.Exec("CREATE TABLE work (seq BIGINT)")
	require.NoError(t, err)
	s, err := consumer.NewSQLCursor(db, consumer.SQLCursorOptions{Name: "biller", Table: "main.places"})
	require.NoError(t, err)
	require.NoError(t, s.Create(t.Context()))
	work := func(at bus.Cursor, commit bool) error {
		tx, err := db.Begin()
		require.NoError(t, err)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		_, err = tx.Exec("INSERT INTO work VALUES ($1)", int64(at.Seq))
		require.NoError(t, err)
		if err := s.SaveIn(t.Context(), tx, at); err != nil || !commit {
			return err
		}
		return tx.Commit()
	}
	require.NoError(t, work(bus.Cursor{Epoch: "e1", Seq: 3}, false))
	at, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Nil(t, at, "rolled back")
	require.NoError(t, work(bus.Cursor{Epoch: "e1", Seq: 3}, true))
	require.ErrorIs(t, work(bus.Cursor{Epoch: "e1", Seq: 3}, true), consumer.ErrCursorTaken)
	require.ErrorIs(t, work(bus.Cursor{Epoch: "e1", Seq: 2}, true), consumer.ErrCursorTaken)
	require.ErrorIs(t, s.Save(t.Context(), bus.Cursor{Epoch: "e1", Seq: 2}), consumer.ErrCursorTaken)
	require.NoError(t, s.Save(t.Context(), bus.Cursor{Epoch: "e1", Seq: 3}))
	require.NoError(t, work(bus.Cursor{Epoch: "e2", Seq: 1}, true), "another epoch counts anew")
	require.Error(t, work(bus.Cursor{Seq: bus.MaxSeq + 1}, true))
	at, err = s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, &bus.Cursor{Epoch: "e2", Seq: 1}, at)
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM work").Scan(&n))
	require.Equal(t, 2, n)

	for _, o := range []consumer.SQLCursorOptions{
		{}, {Name: "a\nb"}, {Name: "a", Table: "a b"}, {Name: "a", Table: "1a"}, {Name: "a", Table: "a.b.c"},
		{Name: "a", Table: ".a"}, {Name: "a", Table: "a."}, {Name: "a", Table: "a;"}, {Name: "a", Table: "ä"},
	} {
		_, err := consumer.NewSQLCursor(db, o)
		_, ok := errors.AsType[*bus.InvalidError](err)
		require.True(t, ok, "%+v: %v", o, err)
	}
}

// A follower with a store goes on where the one before ended, also when that left
// its loop; what the store says wins over From, and its error ends the loop.
func TestFollow_Store(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.fail(keyA, 10)
	w.catchUp()
	place := consumer.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	r := w.follow(w.js, consumer.FollowOptions{Store: place, From: from(4)}, 20, nil)
	r.reach(10)
	r.finish()
	require.Equal(t, span(5, 10), seqs(r.seen()))
	w.fail(keyA, 10)
	w.catchUp()
	f, err := consumer.Follow(w.js, consumer.FollowOptions{Subjects: w.subj, Store: place})
	require.NoError(t, err)
	for ev, err := range f.Events(t.Context()) {
		require.NoError(t, err)
		require.Greater(t, ev.Seq, uint64(10))
		if ev.Seq == 15 {
			break
		}
	}
	at, err := place.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, &bus.Cursor{Epoch: w.streams.Epoch, Seq: 14}, at, "15 was not handled")
	r = w.follow(w.js, consumer.FollowOptions{Store: place, From: from(0)}, 20, nil)
	r.reach(20)
	require.Equal(t, span(15, 20), seqs(r.seen()))
	r.finish()

	broken := errors.New("no space")
	for _, s := range []*failing{{load: broken}, {save: broken}} {
		err := w.follow(w.js, consumer.FollowOptions{Store: s, From: from(0)}, 20, nil).wait()
		require.ErrorIs(t, err, broken)
	}
	// The place is saved while nothing comes, too.
	s := &failing{}
	r = w.follow(w.js, consumer.FollowOptions{Store: s, From: from(0)}, 20, nil)
	r.reach(20)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return s.at.Load() == 20 })
}
