//go:build unix

package e2e_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// long returns one of two values, by how long tests may take.
func long[T any](usually, atLength T) T {
	if os.Getenv("SKALD_TEST_LONG") != "" {
		return atLength
	}
	return usually
}

// beside opens the store's file as another program would.
func beside(t *testing.T, data string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "skald.db")+"?mode=rw&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// outage publishes 50 messages of five sessions while the store can not be written, and
// sees that publishers are acknowledged, readers answered, and health says why.
func (s *server) outage(t *testing.T, before []string) {
	t.Helper()
	w := s.worker(t)
	for i := range 50 {
		w.put(ingestSubject("w", fmt.Sprint("s", i%5), "error"), withID(fmt.Sprint("during", i)), failed(fmt.Sprint("during ", i)))
	}
	skaldtest.Eventually(t, patience, func() bool { return s.readiness(t)["store"] != "" }, "health says that the store is not well")
	s.answers(t, before)
}

// answers sees that readers are answered with what was there.
func (s *server) answers(t *testing.T, want []string) {
	t.Helper()
	p, refused := s.get(t, "/api/v1/events?after_seq=0&limit=1000&workspace_id=w")
	require.Nil(t, refused)
	require.Equal(t, want, p.lines())
	list := skald(t, "", "events", "--json", "--after-seq", "0", "--limit", "1000", "--data", s.data).ok(t)
	require.Equal(t, want, list)
}

// quiet sees that a process said about one line a second at most.
func (p *process) quiet(t *testing.T, lines int, took time.Duration) {
	t.Helper()
	said := strings.Count(p.text(), "\n") - lines
	require.LessOrEqual(t, said, int(took.Seconds())+5, p.text())
}

// came sees that what was published in the outage came once, each session in its order.
func (s *server) came(t *testing.T, rows []string) {
	t.Helper()
	next := map[string]int{}
	for _, row := range rows {
		var e struct {
			Session string `json:"session_id"`
			Data    struct{ Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(row), &e))
		var n int
		_, err := fmt.Sscanf(e.Data.Message, "during %d", &n)
		require.NoError(t, err)
		require.Equal(t, next[e.Session]*5+n%5, n, "order in its session")
		next[e.Session]++
	}
	require.Len(t, rows, 50)
}

// B02: another program holds the store's lock for long, and the service is restarted in the
// middle. Nothing is given up, nothing is twice.
func TestB02_StoreLocked(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL())
	s.worker(t).put(ingestSubject("w", "before", "error"), nil, failed("before"))
	before := s.same(t, "w")
	db := beside(t, data)
	_, err := db.Exec("BEGIN EXCLUSIVE")
	require.NoError(t, err)
	began, lines := time.Now(), strings.Count(s.text(), "\n")
	s.outage(t, before)
	hold := long(10*time.Second, 90*time.Second)
	skaldtest.Eventually(t, patience+hold, func() bool { return time.Since(began) > hold/2 })
	s.answers(t, before)
	s.quiet(t, lines, time.Since(began))
	terminate(t, s)

	// It is started again while the lock is held, and waits for it.
	p, err := spawn(command(t, "serve", "--data", data, "--http", "127.0.0.1:0", "--server", broker.ClientURL()))
	require.NoError(t, err)
	t.Cleanup(func() { kill(p) })
	skaldtest.Eventually(t, patience+hold, func() bool { return time.Since(began) > hold || !p.running() })
	require.True(t, p.running(), p.text())
	p.quiet(t, 0, time.Since(began))
	_, err = db.Exec("ROLLBACK")
	require.NoError(t, err)
	s = &server{process: p, data: data}
	skaldtest.Eventually(t, patience, s.ready, "it gets ready by itself")
	after := s.same(t, "w")
	require.Equal(t, before, after[:1])
	s.came(t, after[1:])
	s.stop(t)
}
