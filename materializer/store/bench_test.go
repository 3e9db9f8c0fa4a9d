package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// benchRows returns the next commit's rows: perCommit of them, spread over the sessions.
func benchRows(seq uint64, perCommit int, keys []bus.Key) []store.Row {
	body := []byte(`{"activity":{"state":"` + strings.Repeat("x", 260) + `"}}`)
	rows := make([]store.Row, perCommit)
	for i := range rows {
		seq++
		rows[i] = store.Row{
			Seq: seq, Key: keys[i%len(keys)], Type: bus.TypeActivityChanged, RecordedAt: int64(seq),
			Origin: bus.Origin{Seq: seq, Time: int64(seq) * 1e6}, Source: bus.Source{Publisher: "publisher-1", Count: seq}, Data: body,
		}
	}
	return rows
}

func benchKeys() []bus.Key {
	keys := make([]bus.Key, 1000)
	for i := range keys {
		keys[i] = bus.Key{Workspace: fmt.Sprint("workspace-", i%20), Session: fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i)}
	}
	return keys
}

// BenchmarkCommit compares a commit of rows and the states of 1,000 sessions with a bare
// loop that inserts the same rows, by the same driver, as durably. Both run in turns, so
// that a busy disk is busy for both; "ratio" is the bare loop's time for a row over
// Commit's.
func BenchmarkCommit(b *testing.B) {
	for _, perCommit := range []int{1000, 4000} {
		for _, parts := range []string{"publishers", "all"} {
			b.Run(fmt.Sprintf("rows=%d/sessions=1000/state=%s", perCommit, parts), func(b *testing.B) {
				benchCommit(b, perCommit, parts == "all")
			})
		}
	}
}

func benchCommit(b *testing.B, perCommit int, all bool) {
	keys := benchKeys()
	st := projection.State{Exists: true}
	hashes := make([]projection.CountHash, 64)
	for i := range hashes {
		hashes[i].Count = uint64(i + 1)
	}
	st.Publishers.Seen = []projection.Publisher{{ID: "publisher-1", Count: 64, Hashes: hashes}}
	st.View.Activity = `{"state":"` + strings.Repeat("x", 260) + `"}`
	for i := range uint64(16) {
		st.Chain.Ends = append(st.Chain.Ends, bus.ChainPosition{Ordinal: i + 1})
	}
	st.Chain.Position.Ordinal = 16
	view, err := st.AppendView(nil)
	require.NoError(b, err)
	chain, publishers := st.AppendChain(nil), st.AppendPublishers(nil)
	if !all {
		chain, view = nil, nil
	}
	s := open(b)
	bare := newBareTable(b)

	seq := uint64(0)
	var ours, theirs stopwatch
	for b.Loop() {
		rows := benchRows(seq, perCommit, keys)
		seq += uint64(perCommit)
		c := store.Commit{Position: at(seq, seq), Rows: rows, Counters: store.Counters{Applied: int64(perCommit)}}
		for _, key := range keys {
			activity := int64(seq)
			c.Sessions = append(c.Sessions, store.SessionWrite{Key: key, Exists: true, LastActivityAt: &activity, Chain: chain, Publishers: publishers, View: view})
		}
		ours.run(func() { require.NoError(b, s.Commit(b.Context(), &c)) })
		theirs.run(func() {
			for part := rows; len(part) > 0; part = part[1000:] {
				bare.insert(b, part[:1000])
			}
		})
	}
	total := float64(b.N * perCommit)
	b.ReportMetric(total/ours.seconds(), "rows/s")
	b.ReportMetric(total/theirs.seconds(), "bare-rows/s")
	b.ReportMetric(theirs.seconds()/ours.seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// bareTable is the events table alone, with its index.
type bareTable struct {
	db     *sql.DB
	insert func(b *testing.B, rows []store.Row)
}

func newBareTable(b *testing.B) *bareTable {
	path := filepath.Join(b.TempDir(), "bare.db")
	db, err := sql.Open("sqlite", store.DSN(path, "_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_pragma=cache_size(-16384)"))
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { db.Close() })
	for _, q := range []string{
		`CREATE TABLE events (seq INTEGER PRIMARY KEY, session_pk INTEGER NOT NULL, type TEXT NOT NULL, recorded_at_ms INTEGER NOT NULL, origin_seq INTEGER NOT NULL, origin_time INTEGER NOT NULL, origin_index INTEGER NOT NULL, source TEXT NOT NULL, trace TEXT, data TEXT NOT NULL) STRICT`,
		`CREATE INDEX events_session ON events (session_pk)`,
	} {
		_, err = db.Exec(q)
		require.NoError(b, err)
	}
	insert, err := db.Prepare(`INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	require.NoError(b, err)
	return &bareTable{db: db, insert: func(b *testing.B, rows []store.Row) {
		tx, err := db.Begin()
		require.NoError(b, err)
		stmt := tx.Stmt(insert)
		for i := range rows {
			r := &rows[i]
			_, err := stmt.Exec(int64(r.Seq), int64(i), r.Type, r.RecordedAt, int64(r.Origin.Seq), r.Origin.Time, r.Origin.Index, r.Source.String(), nil, string(r.Data))
			require.NoError(b, err)
		}
		require.NoError(b, tx.Commit())
	}}
}

// BenchmarkPage reads pages out of a table of 200,000 rows in 2,000 sessions.
func BenchmarkPage(b *testing.B) {
	s := open(b)
	const rows, sessions = 200_000, 2000
	keys := make([]bus.Key, sessions)
	for i := range keys {
		// One workspace has half of the sessions, one has a single one.
		workspace := fmt.Sprint("w", i%10)
		if i%2 == 0 {
			workspace = "busy"
		}
		if i == sessions-1 {
			workspace = "rare"
		}
		keys[i] = bus.Key{Workspace: workspace, Session: fmt.Sprint("session-", i)}
	}
	for seq := uint64(0); seq < rows; seq += 4000 {
		put(b, s, benchRows(seq, 4000, keys)...)
	}
	for name, q := range map[string]store.PageQuery{
		"all":              {},
		"session":          {Session: keys[7].Session, Workspace: keys[7].Workspace},
		"session-id":       {Session: keys[7].Session},
		"workspace=busy":   {Workspace: "busy"},
		"workspace=rare":   {Workspace: "rare"},
		"workspace=absent": {Workspace: "absent"},
		"type=absent":      {Type: "absent"},
		"busy,type=absent": {Workspace: "busy", Type: "absent"},
	} {
		for _, from := range []uint64{0, rows - 1} {
			b.Run(fmt.Sprintf("%s/after=%d", name, from), func(b *testing.B) {
				q.After, q.Limit = after(from), 100
				for b.Loop() {
					_, err := s.Reader().Page(b.Context(), q)
					require.NoError(b, err)
				}
			})
		}
	}
}
