//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// check runs skald check against the process.
func (p *process) check(args ...string) result {
	return cli(append([]string{"check", "--url", p.http}, args...)...)
}

// A bus that is well is one line with figures, and status 0; as an object too.
func TestCheck_OK(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	p.figure("skald_lag_messages", 0)
	out := p.check().ok(t)
	require.Regexp(t, `^SKALD OK - all is well \| lag=0s;10;60;0 messages=0;;;0 ingest-full=0%;80;95;0 rejects=0;0;;0 held=0;;;0 wal=\d+B;536870912;4294967296;0 silent-stores=0;0;;0\n$`, out)
	var r struct {
		Status string
		Checks []struct {
			Name, Status string
			Value        *float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.check("--json").ok(t)), &r))
	require.Equal(t, "ok", r.Status)
	names := map[string]bool{}
	for _, c := range r.Checks {
		require.Equal(t, "ok", c.Status, c.Name)
		require.Equal(t, strings.HasPrefix(c.Name, "ready."), c.Value == nil, c.Name)
		names[c.Name] = true
	}
	for _, name := range []string{"ready.nats", "ready.store", "ready.lag", "lag", "rejects", "wal"} {
		require.Contains(t, names, name)
	}
}

// A figure above its bound is what the bound's flag says, and one below 0 is none.
func TestCheck_Bounds(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	nc, err := nats.Connect(p.nats)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Request("skald.in.default.s.error", []byte("no JSON"), skaldtest.Timeout)
	require.NoError(t, err)
	p.settle()
	p.figure("skald_lag_messages", 0)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", 1, "SKALD WARNING - rejects: 1, above 0 | "},
		{"--rejects-critical 0", 2, "SKALD CRITICAL - rejects: 1, above 0 | "},
		{"--rejects-warning 1", 0, "SKALD OK - all is well | "},
		{"--rejects-warning -1", 0, "SKALD OK - all is well | "},
		{"--rejects-warning -1 --wal-warning 1 --wal-critical 2", 2, "SKALD CRITICAL - wal: "},
	} {
		r := p.check(strings.Fields(c.args)...)
		require.Equal(t, c.code, r.code, "%s: %s%s", c.args, r.stdout, r.stderr)
		require.Equal(t, 1, strings.Count(r.stdout, "\n"))
		require.True(t, strings.HasPrefix(r.stdout, c.says), r.stdout)
		require.Empty(t, r.stderr)
	}
}

// While the NATS server is frozen the check is critical and names it; the lag, which
// only that server knows, is not said to be what it was.
func TestCheck_ServerFrozen(t *testing.T) {
	t.Parallel()
	url, server := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { server.Process.Signal(syscall.SIGCONT) })
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		r := p.check()
		return r.code == 2 && strings.Contains(r.stdout, "ready.streams: ") && strings.Contains(r.stdout, "lag: not known") &&
			strings.Contains(r.stdout, " lag=U;10;60;0 ")
	}, "the check is critical")
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return p.check().code == 0 }, "all is well again")
}

// While another program holds the store's lock, the lag passes its bounds.
func TestCheck_StoreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	release := lock(t, dir)
	p.publish("default", "s", 2)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		r := p.check("--lag-warning", "1", "--lag-critical", "2")
		return r.code == 2 && strings.Contains(r.stdout, "lag: ") && strings.Contains(r.stdout, "s, above 2")
	}, "the lag is critical")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(p.check().stdout, "ready.store: ")
	}, "and so is the store")
	release()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return p.check().code == 0 }, "all is well again")
}

// A serve that is not there, or that does not answer, is critical, in the time that it
// was given.
func TestCheck_NoServe(t *testing.T) {
	t.Parallel()
	address := "http://me:pa55word@" + skaldtest.FreeAddress(t)
	r := cli("check", "--url", address)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stdout, "SKALD CRITICAL - serve: ask http://me:xxxxx@")
	require.Contains(t, r.stdout, "connection refused\n")
	require.NotContains(t, r.stdout+r.stderr, "pa55word")

	p := startServe(t, t.TempDir())
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		r = p.check("--timeout", "300ms", "--json")
		return strings.HasPrefix(r.stdout, `{"status":"critical","checks":[{"name":"serve","status":"critical","detail":"ask http://`)
	}, "it has stopped by now")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stdout, "/readyz: no answer within 300ms")
}

// Without a token that may see all, it is not known how the bus is: that is no alarm
// and no all clear.
func TestCheck_Token(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, allLine, err := access.New("all", nil)
	require.NoError(t, err)
	some, someLine, err := access.New("some", []string{"w"})
	require.NoError(t, err)
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	p := startServe(t, filepath.Join(dir, "data"), "--tokens", file("tokens", string(allLine)+"\n"+string(someLine)))
	for _, args := range [][]string{nil, {"--token-file", file("some", some)}} {
		r := p.check(args...)
		require.Equal(t, 3, r.code, r.stdout)
		require.Contains(t, r.stdout, "SKALD UNKNOWN - serve: serve wants a token for all workspaces")
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return p.check("--token-file", file("all", all)).code == 0 })
}

// A wrong command line is unknown, since 1 and 2 would be states of the bus.
func TestCheck_Usage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--nonsense", "--nonsense"},
		{"--lag-warning x", "--lag-warning"},
		{"--lag-warning 9 --lag-critical 8", "--lag-warning"},
		{"--url ftp://x", "--url"},
		{"--timeout 0s", "--timeout"},
		{"--token-file /nonexistent/token", "/nonexistent/token"},
		{"extra", "extra"},
	} {
		cli(append([]string{"check"}, strings.Fields(c.args)...)...).fails(t, 3, c.says)
	}
}
