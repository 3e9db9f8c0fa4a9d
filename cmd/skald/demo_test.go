//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// In a pipe a demo prints the wire's facts, in order, and nothing else; all it says
// about them goes to standard error. Its own bus stays in --data.
func TestDemo_OwnBus(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo data")
	r := cli("demo", "--data", data, "--for", "3s", "--rate", "300", "--seed", "5")
	lines := split(r.ok(t))
	require.Greater(t, len(lines), 50)
	last := uint64(0)
	for _, l := range lines {
		ev, err := bus.ParseEvent([]byte(l))
		require.NoError(t, err, l)
		require.Greater(t, ev.Seq, last)
		last = ev.Seq
	}
	require.Contains(t, r.stderr, "9 sessions in 3 workspaces")
	require.Contains(t, r.stderr, "exactly once")
	// What it left is what it printed, and each command that it names works.
	require.Equal(t, lines, split(cli("events", "--data", data, "--after-seq", "0", "--limit", "1000").ok(t))[:len(lines)])
	_, next, ok := strings.Cut(r.stderr, "Next, on what it left:\n")
	require.True(t, ok, r.stderr)
	commands := 0
	for _, l := range split(next) {
		_, args, _ := strings.Cut(l, "skald ")
		words := strings.Fields(strings.ReplaceAll(args, quote(data), "DATA"))
		if at := slices.Index(words, "DATA"); words[0] != "serve" {
			words[at] = data
			require.NotEmpty(t, cli(words...).ok(t), l)
			commands++
		}
	}
	require.Equal(t, 3, commands)
}

// Beside a running bus the demo plays there. The same seed goes on with the same
// sessions, Ctrl-C ends it with the summary, and the commands it names work while it
// runs and afterwards.
func TestDemo_RunningBus(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	demo := command(t, "demo", "--server", p.nats, "--rate", "200", "--seed", "6", "--sessions", "4")
	demo.start()
	demo.says(`"type":"input_required"`)
	require.NotEmpty(t, cli(named(t, demo.text(), " sessions ")...).ok(t))
	demo.signal(os.Interrupt)
	require.Equal(t, exitOK, demo.ends(), demo.text())
	text := demo.text()
	require.Contains(t, text, "exactly once")
	_, next, _ := strings.Cut(text, "\nNext:\n")
	for _, what := range []string{" sessions ", " events ", " session "} {
		require.NotEmpty(t, cli(named(t, next, what)...).ok(t), what)
	}
	again := cli("demo", "--server", p.nats, "--rate", "200", "--seed", "6", "--sessions", "4", "--for", "1s")
	again.ok(t)
	require.Contains(t, again.stderr, "4 sessions went on where an earlier story had ended")
	forget := named(t, next, " forget ")
	require.Contains(t, cli(append(forget, "--yes")...).ok(t), "forgotten")
}

// named returns the words of the first command in text that holds what.
func named(t *testing.T, text, what string) []string {
	t.Helper()
	for l := range strings.Lines(text) {
		l, _, _ = strings.Cut(strings.TrimSpace(l), "     #")
		if i := strings.Index(l, what); i >= 0 && strings.Contains(l, " --server ") {
			return strings.Fields(l[i:])
		}
	}
	t.Fatalf("no command with %q in\n%s", what, text)
	return nil
}

// Without --data the demo's own bus leaves nothing behind, however it ends.
func TestDemo_LeavesNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		tmp := t.TempDir()
		// A bus that runs on this machine has another prefix, so it is not the one.
		p := command(t, "demo", "--json", "--rate", "100", "--prefix", "lonely")
		p.cmd.Env = append(slices.Clone(p.cmd.Env), "TMPDIR="+tmp, "NATS_URL=")
		p.start()
		p.says(`"type":"turn_started"`)
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Len(t, left, 1)
		p.signal(s)
		require.Equal(t, exitOK, p.ends(), p.text())
		left, err = os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// A reader that goes away ends the demo with an error, and a bus that goes away too.
func TestDemo_Ends(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	demo := command(t, "demo", "--server", p.nats, "--rate", "100")
	demo.start()
	demo.says(`"type":"turn_started"`)
	p.stop()
	demo.signal(os.Interrupt)
	require.Equal(t, exitFailed, demo.ends(), demo.text())
	require.Contains(t, demo.text(), "has not confirmed everything")
}

// What can not be meant is refused before anything is started.
func TestDemo_Refuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--data", ""}, {"--data", "x", "--server", "nats://127.0.0.1:1"}, {"--for", "0s"}, {"--for", "-1s"},
		{"--rate", "0"}, {"--sessions", "0"}, {"--seed", "-1"}, {"x"},
	} {
		cli(append([]string{"demo"}, args...)...).fails(t, exitUsage)
	}
	dir := t.TempDir()
	cli("demo", "--data", filepath.Join(dir, "d"), "--sessions", "1001").fails(t, exitUsage, "sessions")
	cli("demo", "--data", filepath.Join(dir, "d"), "--rate", "1e9").fails(t, exitUsage, "rate")
	require.NoDirExists(t, filepath.Join(dir, "d"))
	cli("demo", "--server", "nats://127.0.0.1:1").fails(t, exitFailed, "127.0.0.1:1")
	server := skaldtest.Server(t)
	cli("demo", "--server", server.ClientURL()).fails(t, exitFailed, "skald serve")
}

// On a terminal each fact is a line that fits and tells what happened.
func TestTerminal_Demo(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	out := onTerminal(t, "demo", "--server", p.nats, "--rate", "300", "--for", "1s", "--seed", "7").ok(t)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +\d+  \d\d:\d\d:\d\d  demo-\w+/\S+ +> begins: [A-Z].*$`), out)
	for _, l := range split(out) {
		require.LessOrEqual(t, len([]rune(l)), 100)
	}
}
