package store_test

import (
	"context"
	"database/sql"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// Everything that a commit holds can be read back, now and after opening the file again.
func TestCommit_ReadsBackWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "epoch1", IngestID: "ingest1"}))
	activity := int64(77)
	st := projection.State{Exists: true, LastActivityAt: &activity}
	st.Chain.Position = bus.ChainPosition{Ordinal: 3, Digest: bus.Digest{1, 2}}
	st.View.Title = `"a <title>"`
	chain, publishers, view := state(t, &st)
	held := projection.HeldPage{HeldKey: projection.HeldKey{First: 9, Last: bus.Digest{7}}, LastOrdinal: 11, Seq: 4, Time: 4e9, Body: []byte(`{"events":[]}`)}
	rows := []store.Row{
		{Seq: 3, Key: alpha, Type: "turn_started", RecordedAt: -5, Origin: bus.Origin{Seq: 1, Time: 1_500_000, Index: 0},
			Source: bus.Source{Publisher: "p:1", Count: 9}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Data: []byte(`{"n":1.0,"s":"\u003c<\ud800"}`)},
		{Seq: 4, Key: alpha, Type: "error", Origin: bus.Origin{Seq: 1, Time: 1_500_000, Index: 1}, Source: bus.Source{EventID: "id-1"}, Data: []byte(`{}`)},
		{Seq: 9, Key: gamma, Type: "unheard_of", RecordedAt: math.MaxInt64, Origin: bus.Origin{Seq: 2, Time: 2_999_999},
			Source: bus.Source{Chain: bus.ChainPosition{Ordinal: 3, Digest: bus.Digest{1, 2}}}, Data: []byte(`{"x":"` + strings.Repeat("ü", 400_000) + `"}`)},
	}
	pos := store.Position{IngestSeq: 5, IngestTime: 5e9, IngestHash: projection.Hash{8, 7, 6}, EventsSeq: 12, HighestTime: 6e9}
	counters := store.Counters{Applied: 1, Duplicates: 2, Dropped: 3, Unprojected: 4, Foreign: 5, Holes: 6}
	commit(t, s, &store.Commit{
		Position: pos, Rows: rows, Counters: counters,
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true, LastActivityAt: &activity, HeldPages: 1, Chain: chain, Publishers: publishers, View: view}},
		IDs:      []store.ID{{Key: alpha, EventID: "id-1", Hash: projection.Hash{1}, AppliedTime: 6e9, IngestSeq: 5}},
		Held:     []store.HeldWrite{{Key: alpha, Page: &held}},
	})
	commit(t, s, &store.Commit{Position: pos, Counters: counters})
	require.EqualValues(t, 77, number(t, raw(t, path), "SELECT last_activity_at_ms FROM sessions WHERE session_id = 'alpha' AND workspace_id = 'acme'"))

	for _, again := range []bool{false, true} {
		if again {
			require.NoError(t, s.Close())
			s = openAt(t, path)
		}
		r := s.Reader()
		b, err := s.Bus(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Bus{Epoch: "epoch1", IngestID: "ingest1"}, b)
		require.Equal(t, pos, position(t, s))
		stat := status(t, r)
		require.Equal(t, store.Counters{Applied: 2, Duplicates: 4, Dropped: 6, Unprojected: 8, Foreign: 10, Holes: 12}, stat.Counters)
		require.EqualValues(t, 2, stat.Sessions)
		require.EqualValues(t, 1, stat.Held)
		got, err := r.Rows(t.Context(), 0, 10, 1<<20)
		require.NoError(t, err)
		require.Equal(t, rows, got)
		last, err := r.LastRow(t.Context(), bus.MaxSeq)
		require.NoError(t, err)
		require.Equal(t, &rows[2], last)
		p := page(t, r, store.PageQuery{After: after(0), Limit: 10})
		require.Len(t, p.Events, 3)
		for i, e := range p.Events {
			require.Equal(t, bus.Event{
				Seq: rows[i].Seq, Session: rows[i].Key.Session, Workspace: rows[i].Key.Workspace, Type: rows[i].Type,
				RecordedAt: rows[i].RecordedAt, StoredAt: rows[i].Origin.Time / 1e6, Data: rows[i].Data,
			}, e)
		}
		loaded, err := r.LoadState(t.Context(), alpha)
		require.NoError(t, err)
		want := st
		want.Held = []projection.HeldPage{held}
		require.Equal(t, &want, loaded)
		hash, ok, err := r.KnownID(t.Context(), alpha, "id-1", 6e9)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, projection.Hash{1}, hash)
	}
}

// What a write leaves nil stays as it was, and what is empty is kept as empty.
func TestCommit_NilLeavesParts(t *testing.T) {
	s := open(t)
	activity := int64(5)
	st := projection.State{LastActivityAt: &activity}
	st.Chain.Position.Ordinal = 1
	st.View.State = `"s"`
	chain, publishers, view := state(t, &st)
	write := func(w store.SessionWrite) *projection.State {
		t.Helper()
		w.Key, w.Exists = alpha, true
		commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{w}})
		got, err := s.Reader().LoadState(t.Context(), alpha)
		require.NoError(t, err)
		return got
	}
	write(store.SessionWrite{Chain: chain, Publishers: publishers, View: view})
	st.Exists = true
	require.Equal(t, &st, write(store.SessionWrite{}))
	st.Chain.Position.Ordinal = 2
	require.Equal(t, &st, write(store.SessionWrite{Chain: st.AppendChain(nil)}))
	// With rows the write has another text.
	put(t, s, row(1, alpha, "error"))
	commit(t, s, &store.Commit{Position: at(2, 2), Rows: []store.Row{row(2, alpha, "error")}, Sessions: []store.SessionWrite{{Key: alpha, Exists: true}}})
	got, err := s.Reader().LoadState(t.Context(), alpha)
	require.NoError(t, err)
	require.Equal(t, &st, got)
	require.Equal(t, projection.View{}, write(store.SessionWrite{View: []byte{}}).View)
}

// A session that only rejected messages know has counts, and no reader sees it; it
// appears once with its first applied message, or with a row copied from EVENTS.
func TestCommit_SessionAppears(t *testing.T) {
	s := open(t)
	counts := projection.State{}
	counts.Publishers.Seen = []projection.Publisher{{ID: "p", Count: 4}}
	_, publishers, _ := state(t, &counts)
	for i, key := range []bus.Key{alpha, gamma} {
		commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: key, Publishers: publishers}}})
		_, err := s.Reader().Session(t.Context(), key.Session, key.Workspace)
		require.ErrorIs(t, err, bus.ErrNotFound)
		st, err := s.Reader().LoadState(t.Context(), key)
		require.NoError(t, err)
		require.False(t, st.Exists)
		require.Equal(t, counts.Publishers.Seen, st.Publishers.Seen)
		require.EqualValues(t, i, status(t, s.Reader()).Sessions)
		if i == 0 {
			commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: key, Exists: true}}})
		} else {
			put(t, s, row(1, key, "error"))
		}
		_, err = s.Reader().Session(t.Context(), key.Session, key.Workspace)
		require.NoError(t, err)
		st, err = s.Reader().LoadState(t.Context(), key)
		require.NoError(t, err)
		require.True(t, st.Exists)
		require.Equal(t, counts.Publishers.Seen, st.Publishers.Seen)
		require.EqualValues(t, i+1, status(t, s.Reader()).Sessions)
	}
	unknown, err := s.Reader().LoadState(t.Context(), beta)
	require.NoError(t, err)
	require.Equal(t, &projection.State{}, unknown)
}

// Numbers that a reader may have passed are refused, and nothing of the commit stays.
func TestCommit_RefusesDisorder(t *testing.T) {
	s := open(t)
	put(t, s, row(5, alpha, "error"))
	for name, c := range map[string]*store.Commit{
		"at the end":        {Position: at(6, 6), Rows: []store.Row{row(5, alpha, "error")}},
		"below the end":     {Position: at(6, 6), Rows: []store.Row{row(4, alpha, "error")}},
		"not ascending":     {Position: at(9, 9), Rows: []store.Row{row(7, alpha, "error"), row(6, alpha, "error")}},
		"twice":             {Position: at(9, 9), Rows: []store.Row{row(7, alpha, "error"), row(7, alpha, "error")}},
		"beyond its end":    {Position: at(6, 6), Rows: []store.Row{row(7, alpha, "error")}},
		"end goes back":     {Position: at(6, 4)},
		"end is no integer": {Position: at(6, math.MaxInt64+1)},
		"session twice":     {Position: at(6, 6), Sessions: []store.SessionWrite{{Key: beta, Exists: true}, {Key: beta, Exists: true}}},
	} {
		require.ErrorIs(t, s.Commit(t.Context(), c), store.ErrBadCommit, name)
	}
	require.Equal(t, at(5, 5), position(t, s))
	require.EqualValues(t, 1, status(t, s.Reader()).Sessions)
	put(t, s, row(6, alpha, "error"))
}

// A part that fails takes the whole commit with it, also what the writer remembers of
// new sessions; the same commit without the fault succeeds.
func TestCommit_IsWhole(t *testing.T) {
	s := open(t)
	c := &store.Commit{
		Position: at(2, 2), Rows: []store.Row{row(1, alpha, "error"), row(2, beta, "error")},
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true}},
		Held:     []store.HeldWrite{{Key: gamma, Page: &projection.HeldPage{}}}, // no body
	}
	require.ErrorContains(t, s.Commit(t.Context(), c), "hold page")
	require.Zero(t, position(t, s))
	require.Zero(t, status(t, s.Reader()).Sessions)
	require.Empty(t, walk(t, s.Reader(), store.PageQuery{}))
	c.Held = nil
	commit(t, s, c)
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 2)
	require.Len(t, walk(t, s.Reader(), store.PageQuery{Session: alpha.Session, Workspace: alpha.Workspace}), 1)
}

// A context that has ended stops a commit before it begins; none of it is there.
func TestCommit_EndedContext(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Commit(ctx, &store.Commit{Position: at(1, 1), Rows: []store.Row{row(1, alpha, "error")}})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, position(t, s))
	// One that ends after the commit has begun does not interrupt it: SQLite would roll
	// back, and what came after would be durable each on its own.
	late := &lateContext{}
	late.Context, late.cancel = context.WithCancel(t.Context())
	require.NoError(t, s.Commit(late, &store.Commit{Position: at(1, 1), Rows: []store.Row{row(1, alpha, "error")}}))
	require.ErrorIs(t, late.Err(), context.Canceled)
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 1)
	_, err = s.Reader().Page(ctx, store.PageQuery{Limit: 1})
	require.ErrorIs(t, err, context.Canceled)
}

// lateContext ends as soon as somebody has seen that it has not.
type lateContext struct {
	context.Context
	cancel context.CancelFunc
}

func (c *lateContext) Err() error {
	defer c.cancel()
	return c.Context.Err()
}

// Another program's write lock is a pause: the commit says busy after its time, readers
// go on, and the same commit succeeds once the lock is gone.
func TestCommit_Busy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	_, err := s.Pragma("busy_timeout = 50") // instead of BusyTimeout
	require.NoError(t, err)
	conn, err := raw(t, path).Conn(t.Context())
	require.NoError(t, err)
	for _, lock := range []string{"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"} {
		_, err = conn.ExecContext(t.Context(), lock)
		require.NoError(t, err)
		next := position(t, s).EventsSeq + 1
		c := &store.Commit{Position: at(next, next), Rows: []store.Row{row(next, alpha, "error")}}
		for range 3 {
			require.ErrorIs(t, s.Commit(t.Context(), c), store.ErrBusy)
			require.Len(t, walk(t, s.Reader(), store.PageQuery{}), int(next-1))
		}
		_, err = conn.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		commit(t, s, c)
		require.Len(t, walk(t, s.Reader(), store.PageQuery{}), int(next))
	}
	require.NoError(t, conn.Close())
}

// A full disk is a pause too: the connection stays usable, acknowledged rows stay, and
// the same commit succeeds once there is space.
func TestCommit_Full(t *testing.T) {
	fill := func(t *testing.T, s *store.Store) *store.Commit {
		t.Helper()
		for {
			next := position(t, s).EventsSeq + 1
			big := row(next, alpha, "error")
			big.Data = []byte(`{"x":"` + strings.Repeat("x", 100_000) + `"}`)
			c := &store.Commit{Position: at(next, next), Rows: []store.Row{big}, Sessions: []store.SessionWrite{{Key: alpha, Exists: true}}}
			if err := s.Commit(t.Context(), c); err != nil {
				require.ErrorIs(t, err, store.ErrFull)
				require.Less(t, next, uint64(1000))
				return c
			}
		}
	}
	check := func(t *testing.T, s *store.Store, path string, c *store.Commit, makeSpace func()) {
		t.Helper()
		rows := int(c.Rows[0].Seq) - 1
		for range 3 {
			require.ErrorIs(t, s.Commit(t.Context(), c), store.ErrFull)
			require.Len(t, walk(t, s.Reader(), store.PageQuery{}), rows)
			require.EqualValues(t, rows, position(t, s).EventsSeq)
		}
		other, err := store.OpenReader(path)
		require.NoError(t, err)
		require.Len(t, walk(t, other, store.PageQuery{}), rows)
		require.NoError(t, other.Close())
		makeSpace()
		commit(t, s, c)
		require.Len(t, walk(t, s.Reader(), store.PageQuery{}), rows+1)
		v, err := s.Pragma("integrity_check")
		require.NoError(t, err)
		require.Equal(t, "ok", v)
	}
	t.Run("pages", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "skald.db")
		s := openAt(t, path)
		_, err := s.Pragma("max_page_count = 300")
		require.NoError(t, err)
		check(t, s, path, fill(t, s), func() {
			_, err := s.Pragma("max_page_count = 100000")
			require.NoError(t, err)
		})
	})
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		unmount, err := mountSmall(dir)
		if err != nil {
			t.Skipf("this user can not mount a small file system: %v", err)
		}
		t.Cleanup(func() { require.NoError(t, unmount()) })
		path, ballast := filepath.Join(dir, "skald.db"), filepath.Join(dir, "ballast")
		require.NoError(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o600))
		s := openAt(t, path)
		check(t, s, path, fill(t, s), func() { require.NoError(t, os.Remove(ballast)) })
		require.NoError(t, s.Close())
	})
}

// A commit that the disk refuses at its end, with all statements run, leaves nothing.
func TestCommit_DeferredFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	db := raw(t, path)
	// A constraint that is checked at COMMIT, as the disk is.
	for _, q := range []string{
		"CREATE TABLE parent (id INTEGER PRIMARY KEY)", "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
		"CREATE TRIGGER fail AFTER INSERT ON events WHEN new.type = 'bad' BEGIN INSERT INTO child VALUES (7); END",
	} {
		_, err := db.Exec(q)
		require.NoError(t, err)
	}
	_, err := s.Pragma("foreign_keys = ON")
	require.ErrorIs(t, err, sql.ErrNoRows)
	put(t, s, row(1, alpha, "error"))
	c := &store.Commit{Position: at(2, 2), Rows: []store.Row{row(2, beta, "bad")}, Counters: store.Counters{Applied: 1}}
	require.Error(t, s.Commit(t.Context(), c))
	require.Equal(t, at(1, 1), position(t, s))
	c.Rows[0].Type = "good"
	commit(t, s, c)
	require.Equal(t, []uint64{1, 2}, seqs(walk(t, s.Reader(), store.PageQuery{})))
	require.EqualValues(t, 1, status(t, s.Reader()).Applied)
}

// The log is cut when the store rests.
func TestStore_Checkpoint(t *testing.T) {
	s := open(t)
	for i := range uint64(50) {
		put(t, s, row(i+1, alpha, "error"))
	}
	n, err := s.WALSize()
	require.NoError(t, err)
	require.NotZero(t, n)
	require.NoError(t, s.Checkpoint(t.Context()))
	n, err = s.WALSize()
	require.NoError(t, err)
	require.Zero(t, n)
	put(t, s, row(51, alpha, "error"))
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 51)
}
