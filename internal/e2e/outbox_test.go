//go:build unix

package e2e_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// A worker's `skald publish --outbox` is killed 20 times while it publishes, the server
// every few times too, and started again with the lines that were not said to be kept:
// everything is in the table once, in order.
func TestOutbox_WorkerKilled(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed(t), 0))
	f := newFixed(t)
	f.start()
	outbox := filepath.Join(t.TempDir(), "outbox")
	args := []string{"--server", f.url(), "--outbox", outbox, "--wait", "kept"}
	const sessions, kills = 3, 20
	all := texts(3000)
	next := make([]int, sessions) // of each session the first line that is not kept
	for round := range kills {
		if round%5 == 4 {
			kill(f.s.process)
		}
		p := publishing(t, args...)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range all {
				for s := range sessions {
					if at := next[s] + i; at < len(all) && at < (round+1)*len(all)/kills {
						if _, err := io.WriteString(p.stdin, line(fmt.Sprint("s", s), all[at])); err != nil {
							return
						}
					}
				}
			}
		})
		time.Sleep(time.Duration(rng.Int64N(int64(150 * time.Millisecond)))) // the moment of the kill is the test's chance
		p.kill()
		wg.Wait()
		for s := range sessions {
			for _, id := range p.of[fmt.Sprint("s", s)] {
				require.Equal(t, all[next[s]], id)
				next[s]++
			}
		}
		if round%5 == 4 {
			f.start()
		}
	}
	p := publishing(t, "--server", f.url(), "--outbox", outbox, "--wait", "materialized")
	for s := range sessions {
		_, err := io.WriteString(p.stdin, joined(fmt.Sprint("s", s), all[next[s]:], line))
		require.NoError(t, err)
	}
	require.NoError(t, p.stdin.Close())
	require.Zero(t, p.ends(t), p.said())
	for s := range sessions {
		require.Equal(t, all, f.messages(fmt.Sprint("s", s)))
	}
	require.Empty(t, f.s.rejects(t))
}

// Lines are kept while there is no server, by a run that ends, and are sent by the next
// one, which has none of its own.
func TestOutbox_KeptWhileAway(t *testing.T) {
	t.Parallel()
	f := newFixed(t)
	outbox := filepath.Join(t.TempDir(), "outbox")
	r := skald(t, joined("s", texts(50), anonymous), "publish", "--server", f.url(), "--outbox", outbox, "--wait", "kept")
	require.Len(t, r.ok(t), 50)
	f.start()
	require.Empty(t, skald(t, "", "publish", "--server", f.url(), "--outbox", outbox).ok(t))
	require.Equal(t, texts(50), f.messages("s"))
}

// JetStream's directory is set back three times to a copy that was taken earlier, with
// the server restarted, while a worker publishes 10,000 messages: with the outbox all of
// them are in the table once, in order.
func TestOutbox_JetStreamSetBack(t *testing.T) {
	t.Parallel()
	f := newFixed(t)
	f.start()
	live := filepath.Join(f.data, "jetstream")
	require.DirExists(t, live)
	p := publishing(t, "--server", f.url(), "--outbox", filepath.Join(t.TempDir(), "outbox"), "--wait", "materialized")
	const n, times = 10_000, 3
	const part = n / (2*times + 2)
	all := texts(n)
	// It is always in the middle of something, and never so far that a copy holds all that
	// there will be to lose.
	upTo := make(chan int, 2*times+1)
	var wg sync.WaitGroup
	wg.Go(func() {
		at := 0
		for end := range upTo {
			io.WriteString(p.stdin, joined("s", all[at:end], anonymous)) //nolint:errcheck // the acknowledgements tell
			at = end
		}
		p.stdin.Close()
	})
	reached := func(acks int) {
		t.Helper()
		upTo <- acks + part/2
		skaldtest.Eventually(t, 2*patience, func() bool { return len(p.acks()) >= acks || !p.running() }, fmt.Sprint(acks, " acknowledgements"))
		require.True(t, p.running() || len(p.acks()) >= acks, p.said())
	}
	for i := range times {
		// A copy of a server that was killed, as a snapshot of the disk has it.
		reached((2*i + 1) * part)
		kill(f.s.process)
		copied := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(copied, os.DirFS(live)))
		f.startDegraded()
		reached((2*i + 2) * part)
		kill(f.s.process)
		require.NoError(t, os.RemoveAll(live))
		require.NoError(t, os.CopyFS(live, os.DirFS(copied)))
		f.startDegraded()
		skaldtest.Eventually(t, patience, func() bool { return strings.Contains(f.s.text(), `"reason":"ingest_rolled_back"`) }, "it has lost something")
	}
	upTo <- n
	close(upTo)
	wg.Wait()
	require.Zero(t, p.ends(t), p.said())
	require.Equal(t, all, f.messages("s"))
}

// B06: Ctrl-C on a worker loses nothing silently. A file gets each id only after the
// command has said that it is stored; after SIGINT at a random moment, also with the
// broker frozen around it, every id in the file is in the table, the rest is counted, the
// status is not zero, and the end comes within ten seconds, with a second SIGINT at once.
func TestB06_Interrupted(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed(t), 0))
	f := newFixed(t)
	f.start()
	runs, frozen := 6, 2
	if os.Getenv("SKALD_TEST_LONG") != "" {
		runs, frozen = 30, 10
	}
	for run := range runs {
		session := fmt.Sprint("run", run)
		p := publishing(t, "--server", f.url())
		ids := texts(1000)
		go func() {
			io.WriteString(p.stdin, joined(session, ids, line)) //nolint:errcheck // it is interrupted
		}()
		freeze := run < frozen
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))) // the moment is the test's chance
		if freeze {
			f.s.signal(t, syscall.SIGSTOP)
		}
		begin := time.Now()
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
		if freeze {
			select {
			case <-time.After(2 * time.Second): // as long as the case says
			case <-p.exited:
			}
			f.s.signal(t, syscall.SIGCONT)
		}
		require.NotZero(t, p.ends(t))
		require.Less(t, time.Since(begin), 10*time.Second)
		stored := p.acks()
		if len(p.said()) > 0 { // it may have been too early for its own handler
			require.Regexp(t, fmt.Sprintf(`skald: %d stored, \d+ not acknowledged, 0 wrong`, len(stored)), p.said())
		}
		f.s.settle(t)
		got := f.messages(session)
		require.Equal(t, ids[:len(got)], got)
		require.GreaterOrEqual(t, len(got), len(stored))
		require.Equal(t, ids[:len(stored)], append([]string{}, stored...))
	}

	// A second one does not wait for a broker that does not answer.
	p := publishing(t, "--server", f.url())
	go func() {
		for n := 0; ; n++ { // lines do not end before it is interrupted
			if _, err := io.WriteString(p.stdin, line("twice", fmt.Sprint("m", n))); err != nil {
				return
			}
		}
	}()
	skaldtest.Eventually(t, patience, func() bool { return len(p.acks()) > 0 })
	f.s.signal(t, syscall.SIGSTOP) // with lines on their way
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	begin := time.Now()
	for ended := false; !ended; {
		select {
		case <-p.exited:
			ended = true
		case <-again.C:
			_ = p.cmd.Process.Signal(syscall.SIGINT)
		}
	}
	require.Less(t, time.Since(begin), 3*time.Second)
	f.s.signal(t, syscall.SIGCONT)
	require.Equal(t, -1, p.code, "ended by the signal")
}
