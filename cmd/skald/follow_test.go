//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// Reading on to a count gives the same lines, and the same place to go on from,
// whichever way the table is reached, with and without following.
func TestFollow_Count(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("w", "s", 5)
	p.publish("v", "s", 2)
	p.settle()
	epoch := regexp.MustCompile(`"epoch":"(\w+)"`).FindStringSubmatch(p.get("/api/v1/status"))[1]
	want := split(cli("events", "--after-seq", "0", "--url", p.http).ok(t))
	require.Len(t, want, 7)
	for name, way := range map[string][]string{"file": {"--data", dir}, "http": {"--url", p.http}, "nats": {"--server", p.nats}} {
		get := func(args ...string) result { return cli(append(append([]string{"events"}, args...), way...)...) }
		for _, follow := range []string{"--follow", "--follow=false"} {
			r := get("--after-seq", "1", "--count", "3", follow)
			require.Equal(t, want[1:4], split(r.ok(t)), name)
			require.Equal(t, "3 events: --after-seq "+epoch+":4 goes on from here\n", r.stderr, name)
			r = get("--after-seq", epoch+":0", "--count", "2", follow, "--session", "s", "--workspace", "v")
			require.Equal(t, want[5:7], split(r.ok(t)), name)
			r = get("--after-seq", "0", "--count", "1", follow, "--session", "s", "--type", "error")
			require.Equal(t, want[:1], split(r.ok(t)), name)
		}
		r := get("--after-seq", "5", "--count", "100")
		require.Equal(t, want[5:], split(r.ok(t)), "the end is an end without --follow")
		require.Contains(t, r.stderr, epoch+":7 goes on")

		// What can not be meant, or has no place, is an error at once.
		for _, v := range []string{"bad", "-1", "1.5", "0x10", "1e3", " 5", "5,6", "9223372036854775808"} {
			get("--follow", "--after-seq="+v).fails(t, exitUsage, "after_seq: ")
		}
		began := time.Now()
		get("--follow", "--after-seq", "5000").fails(t, exitFailed, "ahead", "7", "another bus, or was its data removed?")
		get("--follow", "--after-seq", "other:1").fails(t, exitFailed, "another epoch")
		require.Less(t, time.Since(began), 5*time.Second)
		get("--follow", "--limit", "3").fails(t, exitUsage, "--count")
		get("--count", "0").fails(t, exitUsage, "--count")
		get("--after-seq", "1", "--since", "2h").fails(t, exitUsage, "both")
		get("--follow", "--workspace", "").fails(t, exitUsage, "workspace_id")
		get("--follow", "--session", "a\nb").fails(t, exitUsage, "session_id")
	}
}

// --since begins with what was stored at that moment, by any way and filter.
func TestFollow_Since(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	var moments []time.Time
	for i := range 4 {
		p.publish("w", fmt.Sprint("s", i%2), 5)
		p.settle()
		moment := time.Now()
		moments = append(moments, moment)
		// What comes next is stored in a later millisecond.
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return time.Since(moment) > 5*time.Millisecond })
	}
	for _, way := range [][]string{{"--data", dir}, {"--url", p.http}, {"--server", p.nats}} {
		get := func(args ...string) []string {
			return split(cli(append(append([]string{"events", "--count", "1000"}, args...), way...)...).ok(t))
		}
		for i, m := range moments {
			at := m.Add(2 * time.Millisecond).UTC().Format(time.RFC3339Nano)
			require.Len(t, get("--since", at), 20-5*(i+1), at)
			require.Len(t, get("--since", at, "--session", "s1", "--workspace", "w"), []int{10, 5, 5, 0}[i])
		}
		require.Len(t, get("--since", "1h"), 20)
		require.Len(t, get("--since", "30d"), 20)
		require.Empty(t, get("--since", "0s"))
		require.Len(t, get("--since", "2020-01-01"), 20)
		require.Len(t, get("--since", "2020-01-01 12:00"), 20)
		for _, v := range []string{"", "x", "-1h", "5", "2020-13-01", "yesterday"} {
			cli(append([]string{"events", "--since=" + v}, way...)...).fails(t, exitUsage, "--since")
		}
		require.Len(t, split(cli(append([]string{"events", "--since", "1h"}, way...)...).ok(t)), 20, "one page")
	}
}

// reader is a running command whose standard output is read line by line.
type reader struct {
	cmd    *exec.Cmd
	out    *bufio.Scanner
	stderr bytes.Buffer
}

func following(t *testing.T, args ...string) *reader {
	t.Helper()
	l := &reader{cmd: exec.Command(os.Args[0], args...)}
	l.cmd.Env = append(os.Environ(), selfEnv+"=1")
	l.cmd.Stderr = &l.stderr
	out, err := l.cmd.StdoutPipe()
	require.NoError(t, err)
	l.out = bufio.NewScanner(out)
	require.NoError(t, l.cmd.Start())
	t.Cleanup(func() { l.cmd.Process.Kill() })
	return l
}

func (l *reader) next(t *testing.T) string {
	t.Helper()
	require.True(t, l.out.Scan(), "%v", l.out.Err())
	return l.out.Text()
}

// Ctrl-C, and a reader of the output that has enough, end a following with status 0
// and the place to go on from; going on from there misses and repeats nothing.
func TestFollow_Ends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("w", "s", 3)
	p.settle()
	place := regexp.MustCompile(`--after-seq (\w+:\d+) goes on from here\n$`)
	for _, args := range [][]string{
		{"events", "--follow", "--data", dir}, {"events", "--follow", "--url", p.http}, {"events", "--follow", "--server", p.nats}, {"tail", "--server", p.nats},
	} {
		l := following(t, append(args, "--after-seq", "0")...)
		require.Contains(t, l.next(t), `{"seq":1,`)
		l.next(t)
		require.Contains(t, l.next(t), `{"seq":3,`)
		require.NoError(t, l.cmd.Process.Signal(os.Interrupt))
		require.False(t, l.out.Scan())
		require.NoError(t, l.cmd.Wait(), l.stderr.String())
		at := place.FindStringSubmatch(l.stderr.String())
		require.NotNil(t, at, l.stderr.String())
		require.True(t, strings.HasSuffix(at[1], ":3"), at[1])

		l = following(t, append(args, "--after-seq", at[1][:len(at[1])-1]+"2")...)
		require.Contains(t, l.next(t), `{"seq":3,`)
		require.NoError(t, l.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, l.cmd.Wait(), l.stderr.String())
	}
	// A pipe that is closed shows at the next line.
	for _, args := range [][]string{{"events", "--follow", "--data", dir}, {"tail", "--server", p.nats}} {
		l := &reader{cmd: exec.Command(os.Args[0], append(args, "--after-seq", "1")...)}
		r, w, err := os.Pipe()
		require.NoError(t, err)
		l.cmd.Env, l.cmd.Stdout, l.cmd.Stderr = append(os.Environ(), selfEnv+"=1"), w, &l.stderr
		require.NoError(t, l.cmd.Start())
		t.Cleanup(func() { l.cmd.Process.Kill() })
		w.Close()
		sc := bufio.NewScanner(r)
		require.True(t, sc.Scan())
		r.Close()
		p.publish("w", "s", 3)
		require.NoError(t, l.cmd.Wait(), l.stderr.String())
		require.Regexp(t, place, l.stderr.String())
	}
}

// On a terminal a follower prints a line an event that fits, without colours.
func TestFollow_Terminal(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	p.publish("w", "s", 2)
	p.settle()
	for _, args := range [][]string{{"events", "--follow", "--url", p.http}, {"tail", "--server", p.nats}} {
		out := onTerminal(t, append(args, "--after-seq", "0", "--count", "2")...).ok(t)
		require.Regexp(t, `^1 +\d{4}-\d\d-\d\dT.*Z  w/s  error  \{"message":"m1".*\n2 .*\n$`, out)
		require.NotContains(t, out, "\x1b")
		out = onTerminal(t, append(args, "--after-seq", "0", "--count", "2", "--json")...).ok(t)
		require.True(t, strings.HasPrefix(out, `{"seq":1,`))
	}
}

// tail remembers under a name, refuses a second reader of it, and takes filters that
// are ids, not patterns.
func TestTail(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	p.publish("w", "s", 3)
	p.publish("v", "s", 1)
	p.settle()
	tail := func(args ...string) result { return cli(append([]string{"tail", "--server", p.nats}, args...)...) }
	r := tail("--durable", "d", "--after-seq", "0", "--count", "2")
	require.Len(t, split(r.ok(t)), 2)
	require.Contains(t, r.stderr, ":2 goes on from here")
	require.Contains(t, tail("--durable", "d", "--count", "1").ok(t), `{"seq":3,`, "where it was")
	require.Contains(t, tail("--durable", "d", "--count", "1", "--after-seq", "1").ok(t), `{"seq":2,`, "a cursor wins")
	require.Len(t, split(tail("--after-seq", "0", "--workspace", "w", "--session", "s", "--type", "error", "--type", "turn_ended", "--count", "3").ok(t)), 3)

	l := following(t, "tail", "--server", p.nats, "--durable", "busy", "--after-seq", "0")
	l.next(t)
	tail("--durable", "busy").fails(t, exitFailed, "in use by another process", "--durable")
	require.NoError(t, l.cmd.Process.Kill())

	tail("--after-seq", "5000").fails(t, exitFailed, "ahead")
	for _, v := range []string{"bad", "-1", "1.5", "0x10", " 5", "9223372036854775808"} {
		tail("--after-seq="+v).fails(t, exitUsage, "after-seq")
	}
	tail("--session", "s").fails(t, exitUsage, "needs its workspace")
	tail("--durable", "").fails(t, exitUsage, "--durable")
	tail("--workspace", "").fails(t, exitUsage, "--workspace")
	tail("--type", "*").fails(t, exitUsage, "types")
	tail("--count", "0").fails(t, exitUsage, "--count")
}
