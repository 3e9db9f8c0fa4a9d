package store_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// unpack puts a file of an older schema, written by the program of its time, into a
// directory of the test's, where no reader takes it before it is brought up to date.
func unpack(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "skald.db")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	_, err = store.OpenReader(path)
	require.ErrorIs(t, err, store.ErrNoStore, "a reader does not guess at the tables of an older schema")
	return path
}

// A file of schema 1 is brought up to date once, and keeps everything.
func TestMigrate_FromSchema1(t *testing.T) {
	path := unpack(t, "schema1.db.gz")
	s := openAt(t, path)
	check := func() {
		t.Helper()
		st := status(t, s.Reader())
		require.Equal(t, store.Bus{Epoch: "epoch1", IngestID: "ingest1"}, st.Bus)
		want := at(80, 4)
		want.Since = 1 // all that was read is known as read when INGEST is set back
		require.Equal(t, want, st.Position)
		require.Equal(t, store.Counters{Applied: 5, Duplicates: 2, Dropped: 1, Unprojected: 3, Foreign: 1, Holes: 4}, st.Counters)
		require.EqualValues(t, 2, st.Sessions)
		require.EqualValues(t, 1, st.Held)
		require.EqualValues(t, 3, st.Rejects)
		require.EqualValues(t, 1, st.Removals)
		require.Equal(t, []uint64{1, 2, 4}, seqs(walk(t, s.Reader(), store.PageQuery{})))
		require.Len(t, list(t, s, store.RejectsQuery{}), 3)
		e, err := s.Reader().RejectOf(t.Context(), alpha, bus.Identity{Publisher: "p", Count: 7})
		require.NoError(t, err)
		require.Equal(t, `{"n":1}`, string(e.Payload))
		h, ok, err := s.Reader().KnownID(t.Context(), alpha, "known", 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, projection.Hash{1}, h)
		marks, err := s.Reader().Marks(t.Context(), bus.MaxSeq, 10)
		require.NoError(t, err)
		require.Len(t, marks, 2)
	}
	check()
	require.NoError(t, s.Close())
	s = openAt(t, path)
	check()
	discard(t, s, 1)
	require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "ingest2", Entry: irregular(bus.ReasonIngestRecreated, "x")}))
	all, err := s.Reader().Stretches(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Stretch{{FromTime: 1, LastSeq: 80, LastTime: 80e9}}, all)
}

// A file of schema 2, which has gone back in INGEST and keeps a discarded entry, is brought
// up to date once, and keeps both; it gets an id of its own.
func TestMigrate_FromSchema2(t *testing.T) {
	path := unpack(t, "schema2.db.gz")
	var ids []string
	for range 2 {
		s := openAt(t, path)
		st := status(t, s.Reader())
		require.Equal(t, store.Bus{Epoch: "epoch1", IngestID: "ingest2"}, st.Bus)
		require.Equal(t, store.Position{IngestSeq: 7, IngestTime: 90e9, HighestTime: 90e9, EventsSeq: 4, Since: 85e9}, st.Position)
		require.Equal(t, store.Counters{Applied: 5, Duplicates: 2, Dropped: 1, Unprojected: 3, Foreign: 1, Holes: 4}, st.Counters)
		require.EqualValues(t, 3, st.Rejects)
		require.Equal(t, []uint64{1, 2, 4}, seqs(walk(t, s.Reader(), store.PageQuery{})))
		all, err := s.Reader().Stretches(t.Context())
		require.NoError(t, err)
		require.Equal(t, []store.Stretch{{FromTime: 1, LastSeq: 80, LastTime: 80e9}}, all)
		i, err := s.Reader().Irregular(t.Context())
		require.NoError(t, err)
		require.Equal(t, "made anew", i.Detail)
		_, err = s.Reader().Reject(t.Context(), 1)
		require.ErrorIs(t, err, bus.ErrNotFound, "it was discarded")
		id, err := s.Reader().ID(t.Context())
		require.NoError(t, err)
		require.Len(t, id, 16)
		ids = append(ids, id)
		require.NoError(t, s.Close())
	}
	require.Equal(t, ids[0], ids[1])
}

// A file of schema 3 keeps its rows, its id and what it was removing; nothing in it is to be
// overwritten, and it counts as a store that was not restored.
func TestMigrate_FromSchema3(t *testing.T) {
	path := unpack(t, "schema3.db.gz")
	var ids []string
	for range 2 {
		s := openAt(t, path)
		st := status(t, s.Reader())
		require.EqualValues(t, 2, st.Sessions)
		require.EqualValues(t, 1, st.Removals)
		require.Zero(t, st.Erasures)
		require.Equal(t, []uint64{1, 2, 4}, seqs(walk(t, s.Reader(), store.PageQuery{})))
		items, err := s.NextRemovals(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.False(t, items[0].Erase)
		restored, err := s.Reader().Restored(t.Context())
		require.NoError(t, err)
		require.False(t, restored)
		id, err := s.Reader().ID(t.Context())
		require.NoError(t, err)
		ids = append(ids, id)
		require.NoError(t, s.Close())
	}
	require.Equal(t, ids[0], ids[1])
	s := openAt(t, path)
	forgetSecurely(t, s, alpha, 9)
	require.EqualValues(t, 1, status(t, s.Reader()).Erasures)
}

// That a store was restored is known until it is said to be over, also by readers of other
// processes and after it was opened again.
func TestRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	for _, want := range []bool{true, false} {
		require.NoError(t, s.SetRestored(t.Context(), want))
		require.NoError(t, s.Close())
		s = openAt(t, path)
		r, err := store.OpenReader(path)
		require.NoError(t, err)
		got, err := r.Restored(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want, got)
	}
}
