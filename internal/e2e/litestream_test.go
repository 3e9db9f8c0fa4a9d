//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// litestream is a command of it with the shipped configuration.
type litestream struct {
	program, config string
	env             []string
}

func newLitestream(t *testing.T, data, replica string) litestream {
	t.Helper()
	config, err := filepath.Abs(filepath.Join(deployed, "litestream", "litestream.yml"))
	require.NoError(t, err)
	return litestream{
		skaldtest.NeedProgram(t, "litestream"), config,
		append(environment(), "SKALD_DATA="+data, "REPLICA_URL=file://"+replica),
	}
}

func (l litestream) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(l.program, append([]string{name, "-config", l.config}, args...)...)
	cmd.Env = l.env
	return cmd
}

func (l litestream) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := l.command(name, args...).CombinedOutput()
	require.NoError(t, err, "litestream %s: %s", name, out)
	return string(out)
}

// fails sends n errors of a session, of which each fills some pages of the store.
func (w *plainWorker) fails(session string, from, n int) {
	w.t.Helper()
	for i := range n {
		w.put(ingestSubject("w", session, "error"), nil, failed(fmt.Sprint(from+i, strings.Repeat(" x", 20_000))))
	}
}

// Litestream copies the store of a serve at work, with the configuration that is shipped.
// It holds a read transaction, so that the log can only be begun again by its own
// checkpoints, and it has tables of its own in the file: serve commits all the while,
// refuses nothing and restarts beside it. It is killed, misses more than the log keeps,
// and goes on. What it restores is opened by skald as a store, and serve goes on from
// there to the same table.
//
// With SKALD_TEST_LONG=1 only: the program takes minutes to build.
func TestDeploy_Litestream(t *testing.T) {
	if os.Getenv("SKALD_TEST_LONG") == "" {
		t.Skip("needs a program that takes minutes to build: SKALD_TEST_LONG=1")
	}
	t.Parallel()
	nats := outsideNATS(t, natsd.Options{})
	data, replica := t.TempDir(), t.TempDir()
	l := newLitestream(t, data, replica)
	s := serve(t, data, "--server", nats.ClientURL())
	s.nats = nats.ClientURL()
	w := s.worker(t)
	w.fails("before", 0, 5)
	s.settle(t)

	start := func() *process {
		p := background(t, l.command("replicate"))
		skaldtest.Eventually(t, patience, func() bool { return strings.Contains(p.text(), "replicating to") || !p.running() })
		require.True(t, p.running(), p.text())
		return p
	}
	// copied waits until a copy holds the row that the table ends with.
	copied := func() string {
		latest := s.settle(t).Latest
		var dir string
		skaldtest.Eventually(t, patience, func() bool {
			dir = t.TempDir()
			if l.command("restore", "-o", filepath.Join(dir, "skald.db"), filepath.Join(data, "skald.db")).Run() != nil {
				return false // nothing is there yet
			}
			// A copy that ends before that refuses the cursor.
			r := skald(t, "", "events", "--data", dir, "--after-seq", fmt.Sprint(latest-1))
			return r.code == 0 && r.stdout != ""
		}, "the last row is in the copy")
		return dir
	}
	require.Contains(t, l.run(t, "databases"), filepath.Join(data, "skald.db"))
	p := start()
	require.Contains(t, p.text(), "sync-interval=1s", "the configuration is understood")
	w.fails("beside", 0, 100) // about a thousand pages, where Litestream checkpoints
	copied()

	// serve is restarted beside it.
	s.stop(t)
	s = serve(t, data, "--server", nats.ClientURL())
	s.nats = nats.ClientURL()
	w.fails("beside", 100, 20)
	copied()

	// It is away while the log is begun again, and serve is killed.
	kill(p)
	w.fails("away", 0, 200)
	s.settle(t)
	kill(s.process)
	s = serve(t, data, "--server", nats.ClientURL())
	s.nats = nats.ClientURL()
	p = start()
	w.fails("back", 0, 20)
	dir := copied()
	require.Zero(t, figure(s.scrape(t), "skald_commit_refusals_total"), "Litestream holds no commit up")
	skald(t, "", "verify", "--data", data, "--server", s.nats).ok(t)

	// The machine is lost, and the copy is what there is.
	w.fails("after", 0, 5)
	s.settle(t)
	want := pages(t, s.http)
	s.stop(t)
	kill(p)
	require.NoError(t, os.RemoveAll(data))
	s = serve(t, dir, "--server", nats.ClientURL())
	s.nats = nats.ClientURL()
	s.settle(t)
	require.Equal(t, want, pages(t, s.http))
	skald(t, "", "verify", "--data", dir, "--server", s.nats).ok(t)
	s.stop(t)
}
