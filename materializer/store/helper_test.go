package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

var (
	alpha = bus.Key{Workspace: "acme", Session: "alpha"}
	beta  = bus.Key{Workspace: "acme", Session: "beta"}
	gamma = bus.Key{Workspace: "other", Session: "alpha"} // alpha's id in another workspace
)

func options(t testing.TB) store.Options {
	return store.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// openAt opens the store and closes it with the test.
func openAt(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path, options(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// open makes a store in a directory of its own.
func open(t testing.TB) *store.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "skald.db"))
}

// row returns a fact; its origin's sequence is its number.
func row(seq uint64, key bus.Key, typ string) store.Row {
	return store.Row{
		Seq: seq, Key: key, Type: typ, RecordedAt: int64(seq) * 10,
		Origin: bus.Origin{Seq: seq, Time: int64(seq) * 1e9},
		Data:   fmt.Appendf(nil, `{"n":%d}`, seq),
	}
}

// at returns the position after EVENTS' number seq and INGEST's message ingest.
func at(ingest, seq uint64) store.Position {
	p := store.Position{IngestSeq: ingest, IngestTime: int64(ingest) * 1e9, EventsSeq: seq, HighestTime: int64(ingest) * 1e9}
	p.IngestHash[0] = byte(ingest)
	return p
}

// put commits the rows at a position that they lead to.
func put(t testing.TB, s *store.Store, rows ...store.Row) {
	t.Helper()
	last := rows[len(rows)-1].Seq
	commit(t, s, &store.Commit{Position: at(last, last), Rows: rows})
}

func commit(t testing.TB, s *store.Store, c *store.Commit) {
	t.Helper()
	require.NoError(t, s.Commit(t.Context(), c))
}

// forget commits a forget of the session at the present position.
func forget(t testing.TB, s *store.Store, key bus.Key) {
	t.Helper()
	commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: key, Forget: true}}})
}

func position(t testing.TB, s *store.Store) store.Position {
	t.Helper()
	p, err := s.Reader().Position(t.Context())
	require.NoError(t, err)
	return p
}

func status(t testing.TB, r *store.Reader) store.Status {
	t.Helper()
	st, err := r.Status(t.Context())
	require.NoError(t, err)
	return st
}

func after(seq uint64) *bus.Cursor { return &bus.Cursor{Seq: seq} }

// page returns the page of a query that must succeed.
func page(t testing.TB, r *store.Reader, q store.PageQuery) store.Page {
	t.Helper()
	p, err := r.Page(t.Context(), q)
	require.NoError(t, err)
	return p
}

// seqs returns the events' numbers.
func seqs(events []bus.Event) []uint64 {
	out := []uint64{}
	for i := range events {
		out = append(out, events[i].Seq)
	}
	return out
}

// walk reads pages from the query's cursor (0 if it has none) until the end.
func walk(t testing.TB, r *store.Reader, q store.PageQuery) []bus.Event {
	t.Helper()
	if q.After == nil {
		q.After = after(0)
	}
	if q.Limit == 0 {
		q.Limit = store.MaxLimit
	}
	var all []bus.Event
	for {
		p := page(t, r, q)
		all = append(all, p.Events...)
		if len(p.Events) == 0 && p.NextAfter == p.Latest {
			return all
		}
		require.Greater(t, p.NextAfter, q.After.Seq, "a page that is not the end must lead on")
		q.After = after(p.NextAfter)
	}
}

// state returns the encoded parts of a state.
func state(t testing.TB, s *projection.State) (chain, publishers, view []byte) {
	t.Helper()
	view, err := s.AppendView(nil)
	require.NoError(t, err)
	return s.AppendChain(nil), s.AppendPublishers(nil), view
}

// raw opens the file beside the store, as another program would.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", store.DSN(path, "mode=rw"))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// number runs a query beside the store that gives one number.
func number(t testing.TB, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// stopwatch adds up what several runs take.
type stopwatch struct{ total time.Duration }

func (w *stopwatch) run(fn func()) {
	start := time.Now()
	fn()
	w.total += time.Since(start)
}

func (w *stopwatch) seconds() float64 { return w.total.Seconds() }
