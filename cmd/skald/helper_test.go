//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// selfEnv makes the test binary the program, so that tests start processes of the
// code under test without building it.
const selfEnv = "SKALD_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		main()
	}
	for _, v := range os.Environ() { // of whoever runs the tests
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NATS_") || strings.HasPrefix(name, "SKALD_") && !strings.HasPrefix(name, "SKALD_TEST_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// result is what a command gave.
type result struct {
	code           int
	stdout, stderr string
}

// cli runs a command in this process.
func cli(args ...string) result { return cliIn("", args...) }

func cliIn(stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// ok fails the test unless the command has succeeded, and returns its output.
func (r result) ok(t *testing.T) string {
	t.Helper()
	require.Equal(t, exitOK, r.code, "stderr: %s", r.stderr)
	return r.stdout
}

// fails fails the test unless the command has ended with the status, said each of
// the words, and printed no data.
func (r result) fails(t *testing.T, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "stdout: %s stderr: %s", r.stdout, r.stderr)
	for _, w := range words {
		require.Contains(t, r.stderr, w)
	}
	require.Empty(t, r.stdout)
}

// split returns the lines of the output.
func split(out string) []string {
	out = strings.TrimSuffix(out, "\n")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// process is a running `skald serve`.
type process struct {
	t          *testing.T
	cmd        *exec.Cmd
	nats, http string
	exited     chan struct{} // closed when it has ended
	code       int

	mu  sync.Mutex
	log []string
}

// command returns a process that has not started.
func command(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), selfEnv+"=1")
	return p
}

// start starts it and reads what it says.
func (p *process) start() {
	p.t.Helper()
	r, w, err := os.Pipe()
	require.NoError(p.t, err)
	p.cmd.Stderr, p.cmd.Stdout = w, w
	require.NoError(p.t, p.cmd.Start())
	w.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		sc := bufio.NewScanner(r)
		for sc.Scan() {
			p.mu.Lock()
			p.log = append(p.log, sc.Text())
			p.mu.Unlock()
		}
		r.Close()
	}()
	go func() {
		p.cmd.Wait()
		<-read
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.exited)
	}()
	p.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if p.t.Failed() {
			p.t.Logf("skald %s\n%s", strings.Join(p.cmd.Args[1:], " "), p.text())
		}
	})
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// says waits until the process has said the text.
func (p *process) says(text string) {
	p.t.Helper()
	skaldtest.Eventually(p.t, skaldtest.Timeout, func() bool { return strings.Contains(p.text(), text) }, text)
}

// address returns the second word of the banner's line of that name.
func (p *process) address(name string) string {
	for line := range strings.Lines(p.text()) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return f[1]
		}
	}
	return ""
}

// ends waits until the process has ended and returns its status.
func (p *process) ends() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(skaldtest.Timeout):
		p.t.Fatalf("skald does not end:\n%s", p.text())
	}
	return p.code
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// stop ends it as an operator would.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.Equal(p.t, exitOK, p.ends(), p.text())
}

// startServe starts serve on free ports and a small INGEST and waits until it is
// ready. It relaxes syncing unless told otherwise.
func startServe(t *testing.T, data string, args ...string) *process {
	t.Helper()
	all := append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000"}, args...)
	if !strings.Contains(strings.Join(args, " "), "--server") {
		all = append(all, "--listen", "127.0.0.1:0", "--sync-interval", "1m")
	}
	p := command(t, all...)
	p.start()
	p.ready()
	return p
}

func (p *process) ready() {
	p.t.Helper()
	skaldtest.Eventually(p.t, skaldtest.Timeout, func() bool {
		p.http = p.address("HTTP")
		p.nats = p.address("NATS") // said before
		if p.http == "" {
			return false
		}
		resp, err := http.Get(p.http + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "serve is ready")
}

// get returns the body of a path.
func (p *process) get(path string) string {
	p.t.Helper()
	resp, err := http.Get(p.http + path)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return string(body)
}

// settle waits until all that is stored is in the table.
func (p *process) settle() {
	p.t.Helper()
	skaldtest.Eventually(p.t, skaldtest.Timeout, func() bool {
		return strings.Count(p.get("/api/v1/status"), `"lag":0`) == 2
	}, "lag is 0")
}

// jetStream connects a plain client.
func (p *process) jetStream() jetstream.JetStream {
	p.t.Helper()
	nc, err := nats.Connect(p.nats)
	require.NoError(p.t, err)
	p.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(p.t, err)
	return js
}

// publish stores n error messages of the session.
func (p *process) publish(workspace, session string, n int) {
	p.t.Helper()
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, `{"body":{"message":"m%d"}}`+"\n", i+1)
	}
	out := cliIn(in.String(), "publish", "--server", p.nats, "--workspace", workspace, "--session", session, "--class", "error").ok(p.t)
	require.Len(p.t, split(out), n)
}

// natsServer starts an outside server as a process and returns its URL.
func natsServer(t *testing.T, args ...string) (string, *exec.Cmd) {
	t.Helper()
	ports := t.TempDir()
	cmd := exec.Command(skaldtest.NATSServerBinary(t), append([]string{"-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", ports}, args...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var url string
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		files, err := filepath.Glob(filepath.Join(ports, "*.ports"))
		if err != nil || len(files) == 0 {
			return false
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			return false
		}
		_, rest, ok := strings.Cut(string(b), `"nats://`)
		if !ok {
			return false
		}
		addr, _, _ := strings.Cut(rest, `"`)
		url = "nats://" + addr
		nc, err := nats.Connect(url)
		if err != nil {
			return false
		}
		nc.Close()
		return true
	}, "the NATS server listens")
	return url, cmd
}

// short is a context for what should take no time.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), skaldtest.Timeout)
	t.Cleanup(cancel)
	return ctx
}
