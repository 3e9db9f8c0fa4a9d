//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// events --follow over HTTP takes the stream of server-sent events: with a token, through
// a stop and a kill of serve, and from the newest event as well as from a cursor, it
// prints each event of its workspace once.
func TestFollowURL_Restarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, key := filepath.Join(dir, "tokens"), filepath.Join(dir, "key")
	token := skald(t, "", "token", "new", "--name", "ci", "--workspace", "acme", "--file", tokens).ok(t)[0]
	require.NoError(t, os.WriteFile(key, []byte(token+"\n"), 0o600))
	args := []string{"--listen", skaldtest.FreeAddress(t), "--http", skaldtest.FreeAddress(t), "--tokens", tokens}
	s := serve(t, filepath.Join(dir, "data"), args...)
	n := 0
	table := func() (all []string) {
		skaldtest.Eventually(t, patience, func() bool {
			all = skald(t, "", "events", "--data", s.data, "--after-seq", "0", "--workspace", "acme", "--count", "1000").ok(t)
			return len(all) == n
		}, "all are in the table")
		return all
	}
	s.load(t, "acme", 30, 0, 10)
	s.load(t, "other", 30, 0, 10)
	n += 30
	table()
	events := func(more ...string) *feed {
		return commandFeed(t, append([]string{"events", "--follow", "--url", s.http, "--token-file", key}, more...)...)
	}
	whole, newest := events("--after-seq", "0"), events()
	whole.reach(30)
	// One that begins at the newest event shows nothing until there is another.
	skaldtest.Eventually(t, patience, func() bool {
		s.worker(t).put(ingestSubject("acme", "s", "error"), nil, failed(fmt.Sprint(n)))
		n++
		return len(newest.seen()) > 0
	})
	for _, how := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		s.signal(t, how)
		<-s.exited
		s = serve(t, s.data, args...)
		s.load(t, "acme", 20, 0, 10)
		n += 20
		table()
	}
	all := table()
	whole.reach(len(all))
	require.Equal(t, all, whole.seen())
	from := slices.Index(all, newest.seen()[0])
	require.GreaterOrEqual(t, from, 30)
	newest.reach(len(all) - from)
	require.Equal(t, all[from:], newest.seen())
	newest.end()

	// A token that is taken out ends it, and says so.
	skald(t, "", "token", "new", "--name", "ops", "--all", "--file", tokens+"2").ok(t)
	require.NoError(t, os.Rename(tokens+"2", tokens))
	s.signal(t, syscall.SIGHUP)
	<-whole.done
	require.ErrorContains(t, whole.failed(), "exit status 1")
	require.Contains(t, whole.said(), "token")
	require.Regexp(t, fmt.Sprintf(`%d events: --after-seq \w+:\d+ goes on from here`, n), whole.said())
	require.NotContains(t, whole.said(), strings.TrimSpace(token))
}

// A follower over HTTP that comes back to another bus, or behind what was pruned, is
// told so at once, with what to do, and neither waits nor begins anew by itself.
func TestFollowURL_NoPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--listen", skaldtest.FreeAddress(t), "--http", skaldtest.FreeAddress(t)}
	s := serve(t, filepath.Join(dir, "a"), args...)
	s.load(t, "w", 20, 0, 10)
	s.settle(t)
	f := commandFeed(t, "events", "--follow", "--url", s.http, "--after-seq", "0")
	f.reach(20)
	skald(t, "", "prune", "--before-seq", "15", "--yes", "--server", s.nats).ok(t)
	for _, way := range [][]string{{"--url", s.http}, {"--data", s.data}} {
		skald(t, "", append(way, "events", "--follow", "--after-seq", "3")...).fails(t, 1, "older than the oldest kept event", "oldest 15", "--after-seq 0")
	}
	s.stop(t)
	serve(t, filepath.Join(dir, "b"), args...)
	<-f.done
	require.ErrorContains(t, f.failed(), "exit status 1")
	require.Contains(t, f.said(), "cursor belongs to another epoch")
	require.Contains(t, f.said(), "--after-seq 0")
	require.Len(t, f.seen(), 20)
}
