package materializer_test

import (
	"database/sql"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// beside opens the node's file as another program would.
func (n *node) beside() *sql.DB {
	t := n.w.t
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+n.path+"?mode=rw&_busy_timeout=5000&_txlock=immediate")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// Another program holds the store's lock: the materializer waits, says so, and goes on by
// itself.
func TestPause_StoreLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.catchUp()
	tx, err := n.beside().Begin()
	require.NoError(t, err)
	w.failMany(beta, 100)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !n.check("store").OK })
	require.NotEmpty(t, n.check("store").Detail)
	require.Len(t, rawTable(t, n.path), 1)
	require.NoError(t, tx.Rollback())
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("store").OK })
	w.check(n)
	n.stop()
}

// The store refuses what it is given, as on a full disk: nothing is given up, and
// it goes on once the store takes it.
func TestPause_StoreRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.catchUp()
	db := n.beside()
	_, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no space'); END`)
	require.NoError(t, err)
	w.failMany(beta, 100)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return strings.Contains(n.check("store").Detail, "no space") })
	w.failMany(beta, 100)
	_, err = db.Exec(`DROP TRIGGER refuse`)
	require.NoError(t, err)
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("store").OK })
	w.check(n)
	n.stop()
}

// A stop while the store is locked gives up the unit at hand after a last try. What
// comes after it must not be committed without it: its rows would be missing for
// good.
func TestStop_StoreLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.fail(alpha, "a")
	n.start(nil)
	n.catchUp()
	n.stop()
	var commits atomic.Int64
	unlock := func() {}
	n.start(func(name string) error {
		if name == "before commit" && commits.Add(1) == 2 {
			unlock()
		}
		return nil
	})
	tx, err := n.beside().Begin()
	require.NoError(t, err)
	unlock = func() { _ = tx.Rollback() }
	w.fail(alpha, "b")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return commits.Load() == 1 && w.last(w.streams.Events) == 2 })
	w.fail(alpha, "c")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.last(w.streams.Events) == 3 })
	n.stop()
	unlock()
	n.start(nil)
	n.catchUp()
	w.check(n)
	n.stop()
}

// A stop finishes what is at hand: EVENTS holds no facts that have no rows.
func TestStop_Clean(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	r := rand.New(rand.NewPCG(seed(t), 1))
	for range 8 {
		n.start(nil)
		w.failMany(alpha, r.IntN(3000))
		n.cancel()
		require.NoError(t, <-n.done)
		s, err := n.st.Reader().Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, w.last(w.streams.Events), s.EventsSeq)
		n.close()
	}
	n.start(nil)
	n.catchUp()
	w.check(n)
	n.stop()
}

// The server goes and comes back under load: everything goes on by itself.
func TestPause_ServerRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	for range 3 {
		w.failMany(alpha, 2000)
		w.stopServer()
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !n.check("nats").OK })
		w.startServer()
	}
	w.failMany(beta, 10)
	n.catchUp()
	w.check(n)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		for _, c := range n.m.Health() {
			if !c.OK {
				return false
			}
		}
		return true
	})
	n.stop()
}

// Somebody deletes the consumers that the materializer reads through.
func TestPause_ConsumersDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "a")
	n.catchUp()
	names := w.streams.Ingest.ConsumerNames(t.Context())
	deleted := 0
	for name := range names.Name() {
		require.NoError(t, w.streams.Ingest.DeleteConsumer(t.Context(), name))
		deleted++
	}
	require.Positive(t, deleted) // one, or on a busy machine also the one before it
	w.fail(alpha, "b")
	n.catchUp()
	w.check(n)
	n.stop()
}

// INGEST has lost a message from its middle: that is counted and reported with its
// range, and reading goes on.
func TestCrash_IngestHasAHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.failMany(alpha, 10)
	for _, seq := range []uint64{4, 5, 9} {
		require.NoError(t, w.streams.Ingest.DeleteMsg(t.Context(), seq))
	}
	n.start(nil)
	n.catchUp()
	n.saysLoss("2 to acknowledge by discarding rejects; the newest, 2: INGEST has lost message 9,")
	w.check(n)
	require.Len(t, rawTable(t, n.path), 7)
	n.stop()

	// A restart does not make it good, only an operator does.
	n.start(nil)
	n.saysLoss("INGEST has lost message 9,")
	w.discard(n, 2)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(n.check("ingest_loss").Detail, "1 to acknowledge by discarding rejects; the newest, 1: INGEST has lost messages 4 to 5,")
	})
	w.discard(n, 1)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.check("ingest_loss").OK })
	n.stop()
}

// discard says, as an operator does, that the entry with this id of the node's is dealt with.
func (w *world) discard(n *node, id int64) {
	w.t.Helper()
	e, err := n.st.Reader().Reject(w.t.Context(), id)
	require.NoError(w.t, err)
	body := bus.AppendDiscard(nil, []bus.EntryRef{{Seq: e.Seq, Time: e.Time, Reason: e.Reason}})
	w.sayAll([]*nats.Msg{{Subject: w.subj.IngestAdmin(), Data: body}})
}

// A discard says which message is meant, so it means the same in every store, also in one
// whose entries have other ids and in one that reads it later.
func TestDiscard_EveryStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, late := w.node(), w.node()
	w.say(alpha, bus.ClassError, `{}`)
	w.say(beta, bus.ClassError, `{"message":1}`)
	n.start(nil)
	n.catchUp()
	w.discard(n, 1)
	late.start(nil)
	for _, s := range []*node{n, late} {
		s.catchUp()
		list, err := s.st.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, &beta, list[0].Key)
		w.check(s)
		s.stop()
	}
}
