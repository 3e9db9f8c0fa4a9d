//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// patience is how long a condition is waited for, on a machine that is busy.
const patience = time.Minute

// client has a deadline, so that an answer that never comes is a failure.
var client = &http.Client{Timeout: patience}

// process is a running program and what it has said.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	code   int           // its status then

	mu  sync.Mutex
	out []string
}

// environment is that of the tests, without what would configure a program.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NATS_") || strings.HasPrefix(v, "OTEL_") || strings.HasPrefix(v, "SKALD_") && !strings.HasPrefix(v, "SKALD_TEST_")
	})
}

// spawn starts cmd and reads both of its outputs.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go func() {
		defer close(p.exited)
		defer r.Close()
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			p.mu.Lock()
			p.out = append(p.out, sc.Text())
			p.mu.Unlock()
		}
		cmd.Wait() //nolint:errcheck // the status says it
		p.code = cmd.ProcessState.ExitCode()
	}()
	return p, nil
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.out, "\n")
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// terminate asks the process to end and returns its status, -1 if it had to be killed.
func (p *process) terminate() int {
	p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	select {
	case <-p.exited:
		return p.code
	case <-time.After(patience):
		p.cmd.Process.Kill() //nolint:errcheck
		<-p.exited
		return -1
	}
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// server is a running `skald serve`.
type server struct {
	*process
	data, nats, http string
	conns            map[string]*nats.Conn // by test, under mu
}

// launch starts serve on free ports and waits until it is ready. Its own NATS
// server, if it has one, does not sync: that guards against power cuts only.
func launch(bin, data string, args ...string) (*server, error) {
	return launchWithin(bin, data, patience, args...)
}

// launchWithin is launch for a server that has so much time to get ready.
func launchWithin(bin, data string, within time.Duration, args ...string) (*server, error) {
	all := append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000"}, args...)
	if !slices.Contains(args, "--server") {
		all = append(all, "--sync-interval", "1m")
		if !slices.Contains(args, "--listen") {
			all = append(all, "--listen", "127.0.0.1:0")
		}
	}
	cmd := exec.Command(bin, all...)
	cmd.Env = environment()
	p, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{process: p, data: data}
	for deadline := time.Now().Add(within); ; {
		if s.ready() {
			return s, nil
		}
		if !p.running() || time.Now().After(deadline) {
			p.terminate()
			return nil, fmt.Errorf("serve did not get ready:\n%s", p.text())
		}
		time.Sleep(10 * time.Millisecond) // before the next look
	}
}

// ready reads the addresses from the banner and asks whether it is ready.
func (s *server) ready() bool {
	for line := range strings.Lines(s.text()) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && f[0] == "NATS":
			s.nats = f[1]
		case len(f) > 1 && f[0] == "HTTP":
			s.http = f[1]
		}
	}
	if s.http == "" {
		return false
	}
	resp, err := client.Get(s.http + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// serve starts a server of the test's own, which ends with the test.
func serve(t testing.TB, data string, args ...string) *server {
	t.Helper()
	s, err := launch(skaldtest.Binary(t), data, args...)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // a test may have frozen it
		s.cmd.Process.Kill()                  //nolint:errcheck // it may have ended
		<-s.exited
		if t.Failed() {
			t.Logf("skald %s\n%s", strings.Join(s.cmd.Args[1:], " "), s.text())
		}
	})
	return s
}

// stop ends it as an operator would.
func (s *server) stop(t testing.TB) {
	t.Helper()
	require.Equal(t, 0, s.terminate(), s.text())
}

// result is what a command gave.
type result struct {
	code           int
	stdout, stderr string
}

// skald runs a command of the built program to its end.
func skald(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return runCommand(t, exec.CommandContext(ctx, skaldtest.Binary(t), args...), stdin)
}

func runCommand(t testing.TB, cmd *exec.Cmd, stdin string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Env = environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok fails the test unless the command succeeded, and returns its output's lines.
func (r result) ok(t testing.TB) []string {
	t.Helper()
	require.Equal(t, 0, r.code, "stderr: %s", r.stderr)
	if r.stdout == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
}

// fails fails the test unless the command ended with the status and said each of
// the words, and printed no data.
func (r result) fails(t testing.TB, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "stdout: %s stderr: %s", r.stdout, r.stderr)
	for _, w := range words {
		require.Contains(t, r.stderr, w)
	}
	require.Empty(t, r.stdout)
	require.NotContains(t, r.stderr, "panic")
}
