//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// A second daemon opened the same database, since a supervisor was too quick or the
// path was another one; both wrote, and numbers diverged. Here the second is refused
// with the first one's process id, also while that one is frozen, and the first goes
// on as if nothing had been.
func TestB25_TwoOnOneStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	second := func() {
		for _, d := range []string{dir, link, dir + "/../" + filepath.Base(dir) + "/"} {
			start := time.Now()
			r := skald(t, "", "serve", "--data", d, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
			r.fails(t, 1, fmt.Sprintf("directory is in use by process %d: %s", s.pid(), d))
			require.Less(t, time.Since(start), 20*time.Second, "at once, on a busy machine too")
		}
	}

	// Somebody publishes all the while.
	const total = 2000
	w := s.worker(t)
	var sent atomic.Int64
	published := make(chan error, 1)
	go func() {
		for i := range total {
			if _, err := w.nc.Request(ingestSubject("b25", "s", "error"), []byte(failed(fmt.Sprint(i))), patience); err != nil {
				published <- err
				return
			}
			sent.Add(1)
		}
		published <- nil
	}()
	skaldtest.Eventually(t, patience, func() bool { return sent.Load() > 10 })
	second()
	s.signal(t, syscall.SIGSTOP)
	second()
	s.signal(t, syscall.SIGCONT)
	second()
	require.NoError(t, <-published)
	rows := s.same(t, "b25")
	require.Len(t, rows, total)
	for i, r := range rows {
		require.Equal(t, fmt.Sprintf(`{"message":"%d","command_id":null}`, i), dataOf(r))
	}
	require.NotContains(t, s.text(), `"level":"ERROR"`)

	// Once it has ended the directory is free, and its holder's id is gone.
	s.signal(t, syscall.SIGKILL)
	<-s.exited
	next := serve(t, link)
	require.Equal(t, rows, next.same(t, "b25"))
}

// A path was pasted into a database's address: what followed a ? or # was cut off
// and % was decoded, so that the file lay elsewhere or two directories shared one.
// Here the file is where it was asked for and is found again.
func TestB47_DataDirectories(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	names := []string{"we ird", "a?b", "a#b", "a%20b", "über", "a?mode=memory&x", "file:a", "trailing/", "-dash", "new\nline", "'quote\"s"}
	var all []*server
	for i, name := range names {
		dir := filepath.Join(base, name)
		if strings.HasSuffix(name, "/") {
			dir += "/"
		}
		s := serve(t, dir)
		w := s.worker(t)
		for k := range i + 1 {
			w.put(ingestSubject("b47", fmt.Sprint("s", i), "error"), nil, failed(fmt.Sprint(k)))
		}
		s.settle(t)
		if name == "a?b" || name == "a#b" { // side by side
			all = append(all, s)
			continue
		}
		s.stop(t)
	}
	for _, s := range all {
		s.settle(t)
		s.stop(t)
	}
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	var found, want []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	for _, name := range names {
		want = append(want, strings.TrimSuffix(name, "/"))
	}
	slices.Sort(want)
	require.Equal(t, want, found)
	for i, name := range names {
		dir := filepath.Join(base, name)
		require.FileExists(t, filepath.Join(dir, "skald.db"))
		rows := skald(t, "", "events", "--json", "--after-seq", "0", "--data", dir).ok(t)
		require.Len(t, rows, i+1, name)
		require.Contains(t, rows[0], fmt.Sprintf(`"session_id":"s%d"`, i))
	}

	// Relative to where it is started, and found again there.
	for range 2 {
		cmd := exec.Command(skaldtest.Binary(t), "serve", "--data", "a?b", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
		cmd.Dir = base
		cmd.Env = environment()
		p, err := spawn(cmd)
		require.NoError(t, err)
		s := &server{process: p, data: filepath.Join(base, "a?b")}
		t.Cleanup(func() { s.terminate() })
		skaldtest.Eventually(t, patience, s.ready)
		require.Len(t, s.same(t, "b47"), 2)
		s.stop(t)
	}
}
