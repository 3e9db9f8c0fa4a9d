//go:build unix

package e2e_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// killCase is how hard the kill test is.
type killCase struct {
	kills  int
	acked  int64         // messages that must be acknowledged in all
	spread time.Duration // a process that is ready lives up to this long
	limit  time.Duration // of the whole test
}

// early is how long after their start every third process is killed at the latest.
const early = 300 * time.Millisecond

// What was acknowledged is applied exactly once and in order, no number ever
// changes its meaning and nothing appears behind a cursor, whenever the process
// is killed: while it starts for the first time, while it recovers, at work, and
// while a session is being forgotten.
func TestKill(t *testing.T) {
	c := killCase{kills: 5, acked: 2000, spread: 3 * time.Second, limit: 2 * time.Minute}
	if os.Getenv("SKALD_TEST_LONG") != "" {
		c = killCase{kills: 20, acked: 20_000, spread: 6 * time.Second, limit: 10 * time.Minute}
	}
	w := newWorld(t, seed(t), c.acked, c.limit)

	// The last session stops first, to be forgotten; the others go on to the end.
	stopLast, stop, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	last := w.sessions[len(w.sessions)-1]
	var publishers, readers []<-chan struct{}
	for _, s := range w.sessions[:len(w.sessions)-1] {
		publishers = append(publishers, w.publish(s, stop))
	}
	lastEnded := w.publish(last, stopLast)

	// All kills but one. The readers begin when there is a store.
	for k := range c.kills - 1 {
		s := w.start()
		if k%3 == 0 {
			d := w.after(s, early)
			kill(s.process)
			w.note("kill %d, %s after the start", k+1, d)
			continue
		}
		w.ready(s)
		if k == 1 {
			readers = w.read(end)
		}
		d := w.after(s, c.spread)
		kill(s.process)
		w.note("kill %d, %s after it was ready", k+1, d)
	}
	s := w.startReady()
	w.await("enough messages", w.reached)

	// The last kill hits the removal of what was forgotten, while late messages
	// still come.
	close(stopLast)
	w.await("the last messages of the session to forget", lastEnded)
	w.forgotten = last.key
	last.makeForget(10)
	require.NoError(t, last.send(w.ctx, w.subjects, last.next()))
	w.count()
	late := make(chan struct{})
	close(late) // no new messages, only those that are made
	lastEnded = w.publish(last, late)
	d := w.after(s, 100*time.Millisecond)
	kill(s.process)
	w.note("kill %d, %s after a forget", c.kills, d)

	s = w.startReady()
	w.await("late messages of the forgotten session", lastEnded)
	close(stop)
	w.await("the last messages", publishers...)
	s.settle(t)
	close(end)
	w.await("the readers", readers...)
	if f := w.check(s); f != nil {
		w.give(f.what, f)
	}
	s.stop(t)
	checkFile(t, w.dir)
	t.Logf("%d kills, %d acknowledged", c.kills, w.acked.Load())
}

// checkFile lets SQLite itself look at the store that was closed.
func checkFile(t *testing.T, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "skald.db"))
	require.NoError(t, err)
	defer db.Close()
	var said string
	require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&said))
	require.Equal(t, "ok", said)
}
