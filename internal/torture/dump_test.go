//go:build linux

package torture_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// The session's key is left out: it differs between stores, by when they first heard of it.
const dumpEvents = `SELECT seq, workspace_id, session_id, type, recorded_at_ms, data, origin_seq, origin_time, origin_index, source, trace
	FROM events LEFT JOIN sessions USING (session_pk) ORDER BY seq`

// dumped is what a store's file holds of a row.
type dumped struct {
	seq  uint64
	wire [sha256.Size]byte // of the row as readers and EVENTS have it
	rest string            // what is beside that: where the fact came from
}

// dump reads the event table out of a stopped store's file, and says each row to all.
func (f *fleet) dump(s *store, all hash.Hash) (out []dumped) {
	f.t.Helper()
	db := skaldtest.OtherProgram(f.t, s.data, "PRAGMA query_only = 1")
	defer db.Close()
	rows, err := db.Query(dumpEvents)
	require.NoError(f.t, err)
	defer rows.Close()
	for rows.Next() {
		var e bus.Event
		var origin bus.Origin
		var source string
		var trace sql.NullString
		require.NoError(f.t, rows.Scan(&e.Seq, &e.Workspace, &e.Session, &e.Type, &e.RecordedAt, &e.Data,
			&origin.Seq, &origin.Time, &origin.Index, &source, &trace), s.name)
		e.StoredAt = origin.Time / 1e6
		wire := e.AppendJSON(nil)
		d := dumped{e.Seq, sha256.Sum256(wire), fmt.Sprintf("%+v %q %+v", origin, source, trace)}
		fmt.Fprintf(all, "%s %s\n", wire, d.rest)
		out = append(out, d)
	}
	require.NoError(f.t, rows.Err())
	return out
}

// compareDumps requires that the files of all stores hold the same event table, and that
// EVENTS holds it, and returns how many rows it has and the hash of them all.
func (f *fleet) compareDumps() (rows int, sum string) {
	f.t.Helper()
	var first []dumped
	for i, s := range f.stores {
		all := sha256.New()
		got := f.dump(s, all)
		if i == 0 {
			first, sum = got, hex.EncodeToString(all.Sum(nil))
			continue
		}
		for n := range max(len(first), len(got)) {
			if a, b := at(first, n), at(got, n); a != b {
				f.give(fmt.Sprintf("the files of %s and %s hold %d and %d rows, and differ at place %d: %+v, %+v", f.stores[0].name, s.name, len(first), len(got), n, a, b))
			}
		}
		if other := hex.EncodeToString(all.Sum(nil)); other != sum {
			f.give(fmt.Sprintf("the files of %s and %s are %s and %s", f.stores[0].name, s.name, sum, other))
		}
	}
	events := f.events()
	for n := range max(len(first), len(events)) {
		if n >= len(first) || n >= len(events) || at(first, n).wire != sha256.Sum256(events[n].text) {
			f.give(fmt.Sprintf("the files hold %d rows, EVENTS %d, and they differ at place %d, number %d", len(first), len(events), n, at(first, n).seq))
		}
	}
	return len(first), sum
}

// at is the row at a place; a number is none's if there is none.
func at(rows []dumped, n int) (d dumped) {
	if n < len(rows) {
		d = rows[n]
	}
	return d
}
