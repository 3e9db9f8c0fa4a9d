package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// terminalPair returns the two ends of a terminal 100 characters wide: what a
// program is run on, and what a person has.
func terminalPair(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { program.Close() })
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}))
	return program, person
}

// onTerminal runs a command on a terminal and returns what is seen on it.
func onTerminal(t *testing.T, args ...string) result {
	t.Helper()
	program, person := terminalPair(t)
	seen := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(person) // ends with an error when the program's end is closed
		seen <- strings.ReplaceAll(string(b), "\r\n", "\n")
	}()
	var stderr bytes.Buffer
	code := run(args, program, program, &stderr)
	program.Close()
	return result{code, <-seen, stderr.String()}
}

// On a terminal people get tables and lines that fit, and --json the wire's bytes
// there too.
func TestTerminal_Output(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	body := `{"message":"` + "\u009b31m" + strings.Repeat("x", 300) + `"}`
	cli("publish", "--server", p.nats, "--session", "s1", "--class", "error", "--body", body).ok(t)
	cli("publish", "--server", p.nats, "--session", "s1", "--class", "session", "--body", `{"op":"save","title":"Fix the build"}`).ok(t)
	_, err := p.jetStream().Publish(short(t), "skald.in.default.s1.error", []byte(`{}`))
	require.NoError(t, err)
	p.settle()

	out := onTerminal(t, "events", "--after-seq", "0", "--url", p.http).ok(t)
	require.Regexp(t, `^1 +\d{4}-\d\d-\d\dT.*Z  default/s1  error  \{"message":"\\u009b31mx+…\n$`, out)
	require.Len(t, []rune(out), 101)
	wire := cli("events", "--after-seq", "0", "--url", p.http).ok(t)
	require.Equal(t, wire, onTerminal(t, "events", "--after-seq", "0", "--url", p.http, "--json").ok(t))

	out = onTerminal(t, "sessions", "--data", dir).ok(t)
	require.Regexp(t, `^WORKSPACE  SESSION  STATE .*\ndefault    s1       - .*Fix the build\n$`, out)
	out = onTerminal(t, "session", "s1", "--data", dir).ok(t)
	require.Contains(t, out, "  \"title\": \"Fix the build\",\n")
	out = onTerminal(t, "status", "--url", p.http).ok(t)
	require.Contains(t, out, "ingest.lag       0\n")
	out = onTerminal(t, "rejects", "--data", dir).ok(t)
	require.Regexp(t, `^ID  INGEST  SESSION .*\n1   3       default/s1  error  bad_body  2 .*message: is missing\n$`, out)
	long := strings.Repeat("x", 100)
	_, err = p.jetStream().Publish(short(t), "skald.in.default."+long+".error", []byte(`{}`))
	require.NoError(t, err)
	p.settle()
	out = onTerminal(t, "rejects", "--data", dir).ok(t)
	require.Regexp(t, `\n2   4       default/`+long+`  error  bad_body  2 .*message: is missing\n$`, out, "the detail is not cut")
	out = onTerminal(t, "rejects", "show", "1", "--data", dir).ok(t)
	require.Contains(t, out, "  \"payload\": \"{}\"\n")
}

// What can not be taken back, and input that nobody would type, is asked for in words.
func TestTerminal_Input(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	p.publish("w", "s", 1)
	onTerminal(t, "forget", "s", "--workspace", "w", "--server", p.nats).fails(t, exitUsage, "--yes", `session "s" of workspace "w"`)
	p.settle()
	require.Contains(t, cli("session", "s", "--url", p.http).ok(t), `"session_id":"s"`)
	require.Equal(t, "forgotten w/s\n", onTerminal(t, "forget", "s", "--workspace", "w", "--server", p.nats, "--yes").ok(t))
	onTerminal(t, "publish", "--server", p.nats, "--session", "s").fails(t, exitUsage, "--body", "terminal")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return strings.Contains(p.get("/api/v1/status"), `"sessions":0`) })
}
