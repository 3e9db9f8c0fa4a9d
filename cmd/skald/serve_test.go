//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// The built program says where it listens, where its data is, and what to try;
// what it proposes works as it stands; SIGTERM stops it cleanly, and after a
// restart everything is there.
func TestServe_Built(t *testing.T) {
	t.Parallel()
	bin := skaldtest.Binary(t)
	dir := filepath.Join(t.TempDir(), "it's a?b#c%20ü")
	serve := func() *process {
		p := &process{t: t, exited: make(chan struct{})}
		p.cmd = exec.Command(bin, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000")
		p.start()
		p.ready()
		return p
	}
	p := serve()
	require.Equal(t, dir, strings.TrimSpace(regexp.MustCompile(`(?m)^  data  (.*)$`).FindStringSubmatch(p.text())[1]))
	for _, f := range []string{"skald.db", "skald.lock", "jetstream"} {
		require.FileExists(t, filepath.Join(dir, "skald.db"))
		_, err := os.Stat(filepath.Join(dir, f))
		require.NoError(t, err)
	}
	_, proposed, ok := strings.Cut(p.text(), "Try, in another terminal:\n")
	require.True(t, ok)
	var outputs []string
	for _, line := range strings.Split(proposed, "\n")[:3] {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "curl ") && !found("curl") {
			continue
		}
		out, err := exec.Command("sh", "-c", line).Output()
		require.NoError(t, err, line)
		outputs = append(outputs, string(out))
		p.settle()
	}
	require.Equal(t, "stored ingest 1 default/demo error\n", outputs[0])
	require.Contains(t, outputs[len(outputs)-1], `{"seq":1,"session_id":"demo","workspace_id":"default"`)
	before := p.get("/api/v1/events?after_seq=0")
	p.stop()

	p = serve()
	require.Equal(t, before, p.get("/api/v1/events?after_seq=0"), "epoch, numbers and rows")
	p.signal(os.Interrupt)
	require.Equal(t, exitOK, p.ends())
}

func found(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// Two data directories whose names differ in what a database's address would cut
// off share nothing.
func TestServe_StrangeDirectories(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	var all []*process
	for i, name := range []string{"a?b", "a#b", "a%20b", "we ird", "über/"} {
		p := startServe(t, filepath.Join(base, name)+strings.Repeat("/", i%2))
		p.publish("default", "s"+fmt.Sprint(i), i+1)
		all = append(all, p)
	}
	for i, p := range all {
		p.settle()
		require.Equal(t, i+1, strings.Count(p.get("/api/v1/events?after_seq=0"), `"seq":`))
	}
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Len(t, entries, 5)
}

// A second serve on the same data is refused at once and names the first one, also
// through a symbolic link; the first goes on.
func TestServe_SecondIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	for _, d := range []string{dir, link} {
		for _, listen := range []string{"127.0.0.1:0", strings.TrimPrefix(p.nats, "nats://")} { // the same address too
			r := cli("serve", "--data", d, "--listen", listen, "--http", "127.0.0.1:0")
			r.fails(t, exitFailed, "in use by process "+fmt.Sprint(p.cmd.Process.Pid), d)
		}
	}
	p.publish("default", "s", 1)
}

// After kill -9 the next start finds everything, without anyone's help.
func TestServe_Killed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("default", "s", 50)
	p.signal(syscall.SIGKILL)
	p.ends()
	p = startServe(t, dir)
	p.settle()
	require.Equal(t, 50, strings.Count(p.get("/api/v1/events?after_seq=0"), `"seq":`))
	p.stop()
}

// An outside server that comes later is waited for; one that does not come can be
// given up with Ctrl-C.
func TestServe_WaitsForTheServer(t *testing.T) {
	t.Parallel()
	addr := skaldtest.FreeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	args := []string{"serve", "--server", "nats://me:pa55word@" + addr, "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000"}
	given := command(t, append(args, "--data", t.TempDir())...)
	given.start()
	given.says("NATS is not ready yet")
	given.signal(os.Interrupt)
	require.Equal(t, exitOK, given.ends())

	p := command(t, append(args, "--data", t.TempDir())...)
	p.start()
	p.says("NATS is not ready yet")
	server := exec.Command(skaldtest.NATSServerBinary(t), "-a", "127.0.0.1", "-p", port, "-js", "-sd", t.TempDir())
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	p.ready()
	require.NotContains(t, p.text()+given.text(), "pa55word")
	p.stop()
}

// serve gives up when its patience is over, with the reason.
func TestServe_GivesUp(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	e := env{stderr: &stderr}
	o := serveOptions{data: t.TempDir(), http: "127.0.0.1:0", patience: 1}
	o.nats.server = "nats://127.0.0.1:1"
	log := newLogger(e, -4)
	err := serve(short(t), e, o, log, log)
	require.ErrorContains(t, err, "gave up after 1ns")
	require.ErrorContains(t, err, "nats://127.0.0.1:1")
	require.Contains(t, stderr.String(), "NATS is not ready yet")
}

// Without a server, or with one that is frozen, readers are served, readiness comes
// to say what is wrong, and stopping is clean. The 5 s within which it does are
// promised of a machine that has time; here only the state is waited for.
func TestServe_ServerGone(t *testing.T) {
	t.Parallel()
	url, server := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	p.publish("default", "s", 2)
	p.settle()
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { server.Process.Signal(syscall.SIGCONT) })
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.HasPrefix(p.get("/readyz"), `{"ready":false`)
	})
	require.Equal(t, 2, strings.Count(p.get("/api/v1/events?after_seq=0"), `"seq":`))
	require.Contains(t, p.get("/api/v1/events?after_seq=9"), `"code":"unavailable"`)
	require.Contains(t, p.get("/api/v1/status"), `"last_seq":null,"lag":null`)
	p.stop()
}

// A second signal ends the process, whatever it is waiting for: it does not get to
// the end of stopping, which has status 0.
func TestServe_SecondSignal(t *testing.T) {
	t.Parallel()
	url, server := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { server.Process.Signal(syscall.SIGCONT) })
	go func() {
		// Asks the frozen server, which the stop waits for.
		if resp, err := http.Get(p.http + "/api/v1/status"); err == nil {
			resp.Body.Close()
		}
	}()
	p.signal(syscall.SIGTERM)
	p.says("once more")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitFailed, p.ends())
}

// A bus may have another prefix, and several share one server.
func TestServe_Prefix(t *testing.T) {
	t.Parallel()
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	a := startServe(t, t.TempDir(), "--server", url)
	b := startServe(t, t.TempDir(), "--server", url, "--prefix", "other")
	cli("publish", "--server", url, "--prefix", "other", "--session", "s", "--class", "error", "--body", `{"message":"b"}`).ok(t)
	b.settle()
	require.Contains(t, cli("events", "--server", url, "--prefix", "other", "--after-seq", "0").ok(t), `"message":"b"`)
	require.Empty(t, cli("events", "--server", url, "--after-seq", "0").ok(t))
	require.Contains(t, a.get("/api/v1/status"), `"latest_seq":0`)
	require.Contains(t, b.text(), "--prefix other")
}

// The embedded server takes a configuration with users, of which serve is one.
func TestServe_NATSConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	public, err := user.PublicKey()
	require.NoError(t, err)
	conf, nkey := filepath.Join(dir, "nats.conf"), filepath.Join(dir, "serve.nk")
	require.NoError(t, os.WriteFile(nkey, seed, 0o600))
	require.NoError(t, os.WriteFile(conf, []byte(`authorization { users: [ { nkey: `+public+` } ] }`), 0o600))
	p := startServe(t, filepath.Join(dir, "data"), "--nats-config", conf, "--nkey", nkey)
	publish := []string{"publish", "--session", "s", "--class", "error", "--body", `{"message":"x"}`, "--server", p.nats}
	cli(publish...).fails(t, exitFailed, "refuses the credentials")
	cli(append(publish, "--nkey", nkey)...).ok(t)
	require.Contains(t, p.text(), "--nkey "+nkey, "what it proposes to try has the key too")
	p.stop()
	cli("serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--nats-config", conf).
		fails(t, exitFailed, "Authorization Violation", "--nkey")
}

// NATS_URL means the outside server, but a flag of the embedded one means that.
func TestServe_Environment(t *testing.T) {
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	t.Setenv("NATS_URL", url)
	p := command(t, "serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000")
	p.start()
	p.ready()
	require.Equal(t, url, p.nats)
	require.Contains(t, p.text(), url+" (outside, from NATS_URL)\n")
	p.stop()
	p = startServe(t, t.TempDir(), "--server", url)
	require.Contains(t, p.text(), url+" (outside, from --server)\n")
	p.stop()
	p = startServe(t, t.TempDir())
	require.NotEqual(t, url, p.nats)
	p.stop()
}
