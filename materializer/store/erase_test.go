package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// secret stands in all that a session says which is to be overwritten.
const secret = "s3cr3t-of-alpha"

// forgetSecurely commits a forget that INGEST's message seq has asked for, as one that
// overwrites.
func forgetSecurely(t testing.TB, s *store.Store, key bus.Key, seq uint64) {
	t.Helper()
	commit(t, s, &store.Commit{Position: position(t, s), Sessions: []store.SessionWrite{{Key: key, Forget: true, Erase: seq}}})
}

// erasures returns what is pending.
func erasures(t testing.TB, s *store.Store) []store.Erasure {
	t.Helper()
	all, err := s.Reader().Erasures(t.Context())
	require.NoError(t, err)
	return all
}

// inFile counts the secret in a file.
func inFile(t testing.TB, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.Count(b, []byte(secret))
}

// spoken fills the store with what alpha and many others say, in rows and states of many
// sizes, some of which are pruned, or forgotten and removed, before alpha is forgotten.
func spoken(t *testing.T, s *store.Store) {
	t.Helper()
	rnd := skaldtest.Rand(t)
	filler := strings.Repeat("filler ", 2000)
	seq := uint64(0)
	for round := range 60 {
		c := &store.Commit{}
		for range 30 {
			seq++
			n := rnd.IntN(400)
			if rnd.IntN(10) == 0 {
				n = rnd.IntN(len(filler)) // more than a page
			}
			r := row(seq, bus.Key{Workspace: "acme", Session: fmt.Sprint("other", rnd.IntN(20))}, "error")
			r.Data = fmt.Appendf(nil, `{"text":%q}`, filler[:n])
			if rnd.IntN(3) == 0 {
				r.Key = alpha
				r.Data = fmt.Appendf(nil, `{"text":"%s %s %s"}`, secret, filler[:n], secret)
			}
			c.Rows = append(c.Rows, r)
		}
		c.Position = at(seq, seq)
		view := []byte(secret + filler[:rnd.IntN(9000)] + secret)
		c.Sessions = []store.SessionWrite{{Key: alpha, Exists: true, View: view}}
		c.Held = []store.HeldWrite{{Key: alpha, Page: &projection.HeldPage{HeldKey: projection.HeldKey{First: uint64(round + 2)}, Seq: seq, Time: int64(seq), Body: view}}}
		c.Rejects = []store.RejectWrite{{Key: &alpha, Subject: "s", Reject: projection.Reject{Seq: seq, Time: int64(seq), Class: "error", Reason: bus.ReasonBody, Payload: view, Size: len(view)}}}
		if round == 20 {
			c.PruneBefore = seq / 2
		}
		commit(t, s, c)
		if round > 30 && round%5 == 0 {
			forget(t, s, bus.Key{Workspace: "acme", Session: fmt.Sprint("other", round/5)})
			drain(t, s, 50)
		}
		for n := 1; n > 0; {
			var err error
			n, err = s.PruneStep(t.Context(), 100)
			require.NoError(t, err)
		}
	}
}

// Once a session was overwritten the log holds nothing that it said, and a copy of the file
// neither. In the file itself SQLite leaves a stale copy here and there, in pages that it has
// reorganized before: of some thousand, less than one in a hundred. A reader that holds the
// log is not waited for, and what another forgotten session said is not looked after.
func TestErase_FileAndLog(t *testing.T) {
	s := open(t)
	spoken(t, s)
	said := inFile(t, s.Path()) + inFile(t, s.Path()+"-wal")
	require.Greater(t, said, 1000)
	done, err := s.CutErased(t.Context())
	require.NoError(t, err)
	require.True(t, done, "there is nothing to do")

	forget(t, s, beta)
	forgetSecurely(t, s, alpha, 7)
	require.Equal(t, []store.Erasure{{Key: alpha, Until: 7}}, erasures(t, s))
	items, err := s.NextRemovals(t.Context(), 10_000)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(items, func(it store.RemovalItem) bool { return it.Key == alpha }))
	for _, it := range items { // others that were forgotten may have spoken since
		require.Equal(t, it.Key == alpha, it.Erase, it.Key)
	}
	done, err = s.CutErased(t.Context())
	require.NoError(t, err)
	require.True(t, done, "its rows come first")
	require.False(t, erasures(t, s)[0].Cut)
	require.NoError(t, s.EndErasure(t.Context(), alpha))
	require.Len(t, erasures(t, s), 1)

	db := raw(t, s.Path())
	_, err = db.Exec("BEGIN")
	require.NoError(t, err)
	number(t, db, "SELECT count(*) FROM sessions")
	drain(t, s, 100)
	done, err = s.CutErased(t.Context())
	require.NoError(t, err)
	require.False(t, done, "a reader holds the log")
	require.False(t, erasures(t, s)[0].Cut)
	require.NotZero(t, inFile(t, s.Path()+"-wal"))
	_, err = db.Exec("COMMIT")
	require.NoError(t, err)

	done, err = s.CutErased(t.Context())
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []store.Erasure{{Key: alpha, Until: 7, Cut: true}}, erasures(t, s))
	require.Zero(t, inFile(t, s.Path()+"-wal"))
	require.Less(t, inFile(t, s.Path()), said/100)
	copied := filepath.Join(t.TempDir(), "copy.db")
	_, err = s.Reader().Backup(t.Context(), copied)
	require.NoError(t, err)
	require.Zero(t, inFile(t, copied))
	require.EqualValues(t, 1, status(t, s.Reader()).Erasures)

	// A row that EVENTS had all the same begins it again.
	last := position(t, s).EventsSeq
	put(t, s, row(last+1, alpha, "error"))
	require.False(t, erasures(t, s)[0].Cut)
	require.NoError(t, s.EndErasure(t.Context(), alpha))
	require.Len(t, erasures(t, s), 1)
	drain(t, s, 100)
	_, err = s.CutErased(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.EndErasure(t.Context(), alpha))
	require.Empty(t, erasures(t, s))
	put(t, s, row(last+2, alpha, "error"))
	require.Len(t, erasures(t, s), 1, "the tombstone remembers the wish")
}

// Of rows in pages that were only ever appended to nothing is left in the file itself.
func TestErase_Rows(t *testing.T) {
	s := open(t)
	for round := range uint64(20) {
		var rows []store.Row
		for i := range uint64(100) {
			r := row(100*round+i+1, []bus.Key{alpha, beta, gamma}[i%3], "error")
			if r.Key == alpha {
				r.Data = fmt.Appendf(nil, `{"text":"%s%s"}`, secret, strings.Repeat(".", int(100*i)))
			}
			rows = append(rows, r)
		}
		put(t, s, rows...)
	}
	require.NoError(t, s.Checkpoint(t.Context()))
	require.EqualValues(t, 680, inFile(t, s.Path()))
	forgetSecurely(t, s, alpha, 3)
	drain(t, s, 100)
	done, err := s.CutErased(t.Context())
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Zero(t, inFile(t, s.Path()))
	require.Zero(t, inFile(t, s.Path()+"-wal"))
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 1320)
}

// A session that nobody knew is overwritten as well: the streams may hold what it said.
func TestErase_Unknown(t *testing.T) {
	s := open(t)
	put(t, s, row(1, beta, "error"))
	forgetSecurely(t, s, alpha, 3)
	require.Equal(t, []store.Erasure{{Key: alpha, Until: 3}}, erasures(t, s))
	f, ok, err := s.NextForgotten(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, store.Forgotten{Key: alpha, Erase: true}, f)
}

// Tombstones are gone through in pieces, and can be removed again; other sessions can not.
func TestTombstones(t *testing.T) {
	s := open(t)
	put(t, s, row(1, alpha, "error"), row(2, beta, "error"), row(3, gamma, "error"))
	forget(t, s, alpha)
	forgetSecurely(t, s, gamma, 5)
	drain(t, s, 10)
	keys, next, err := s.Reader().Tombstones(t.Context(), 0, 1)
	require.NoError(t, err)
	require.Equal(t, []bus.Key{alpha}, keys)
	keys, next, err = s.Reader().Tombstones(t.Context(), next, 2)
	require.NoError(t, err)
	require.Equal(t, []bus.Key{gamma}, keys)
	require.Zero(t, next)
	for _, k := range []bus.Key{alpha, beta, {Workspace: "w", Session: "unknown"}} {
		require.NoError(t, s.RemoveAgain(t.Context(), k))
	}
	require.EqualValues(t, 1, status(t, s.Reader()).Removals)
	f, ok, err := s.NextForgotten(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, store.Forgotten{Key: alpha}, f)
}

// A page of sessions for verify ends early when their states are large, and none is left out.
func TestAuditSessions_Bounded(t *testing.T) {
	s := open(t)
	var keys []bus.Key
	for i := range 20 {
		k := bus.Key{Workspace: "w", Session: fmt.Sprint(i)}
		keys = append(keys, k)
		commit(t, s, &store.Commit{Position: at(uint64(i+1), 0), Sessions: []store.SessionWrite{{Key: k, Exists: true, View: make([]byte, 1<<20)}}})
	}
	var seen []bus.Key
	for after := int64(0); ; {
		list, err := s.Reader().AuditSessions(t.Context(), after, 200)
		require.NoError(t, err)
		if len(list) == 0 {
			break
		}
		require.LessOrEqual(t, len(list), 4)
		for i := range list {
			seen = append(seen, list[i].Key)
		}
		after = list[len(list)-1].PK
	}
	require.Equal(t, keys, seen)
}
