//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// pipe is a `skald publish` that a worker in some language writes lines to and reads
// acknowledgements from.
type pipe struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{}
	code   int

	mu     sync.Mutex
	acked  []string            // event ids, in the order of their acknowledgements
	of     map[string][]string // likewise, by session
	stderr bytes.Buffer
}

// publishing starts one.
func publishing(t *testing.T, args ...string) *pipe {
	t.Helper()
	p := &pipe{cmd: command(t, append([]string{"publish", "--json"}, args...)...), exited: make(chan struct{}), of: map[string][]string{}}
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	var wg sync.WaitGroup
	wg.Go(func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			var ack struct {
				EventID string `json:"event_id"`
				Session string `json:"session_id"`
			}
			if json.Unmarshal(sc.Bytes(), &ack) == nil {
				p.mu.Lock()
				p.acked = append(p.acked, ack.EventID)
				p.of[ack.Session] = append(p.of[ack.Session], ack.EventID)
				p.mu.Unlock()
			}
		}
	})
	wg.Go(func() {
		b, _ := io.ReadAll(errs)
		p.mu.Lock()
		p.stderr.Write(b)
		p.mu.Unlock()
	})
	go func() {
		wg.Wait()
		p.cmd.Wait() //nolint:errcheck // the status says it
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends it as a crash would.
func (p *pipe) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// ends waits until it has ended and returns its status.
func (p *pipe) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.kill()
		t.Fatalf("skald publish does not end:\n%s", p.said())
	}
	return p.code
}

func (p *pipe) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

func (p *pipe) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// acks returns which lines were acknowledged.
func (p *pipe) acks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.acked...)
}

// line is an error message of the session, with the event id as its text.
func line(session, id string) string {
	return fmt.Sprintf(`{"session_id":%q,"class":"error","event_id":%q,"body":{"message":%q}}`+"\n", session, id, id)
}

// anonymous is a line without an event id.
func anonymous(session, text string) string {
	return fmt.Sprintf(`{"session_id":%q,"class":"error","body":{"message":%q}}`+"\n", session, text)
}

// fixed is a `skald serve` that keeps its addresses over restarts.
type fixed struct {
	t    *testing.T
	data string
	nats string
	http string
	s    *server
}

func newFixed(t *testing.T) *fixed {
	t.Helper()
	f := &fixed{t: t, data: t.TempDir(), nats: skaldtest.FreeAddress(t), http: skaldtest.FreeAddress(t)}
	t.Cleanup(func() {
		if f.s == nil {
			return
		}
		kill(f.s.process)
		if t.Failed() {
			t.Logf("skald serve\n%s", f.s.text())
		}
	})
	return f
}

func (f *fixed) url() string { return "nats://" + f.nats }

// start starts it and waits until it is ready.
func (f *fixed) start() {
	f.t.Helper()
	f.begin()
	skaldtest.Eventually(f.t, patience, func() bool { return f.s.ready() || !f.s.running() }, "serve is ready")
	require.True(f.t, f.s.running(), f.s.text())
}

// startDegraded starts it and waits until it answers: after a loss it is not ready before
// an operator has taken note.
func (f *fixed) startDegraded() {
	f.t.Helper()
	f.begin()
	skaldtest.Eventually(f.t, patience, func() bool {
		resp, err := client.Get("http://" + f.http + "/healthz")
		if err != nil {
			return !f.s.running()
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "serve answers")
	require.True(f.t, f.s.running(), f.s.text())
}

func (f *fixed) begin() {
	f.t.Helper()
	p, err := spawn(command(f.t, "serve", "--data", f.data, "--listen", f.nats, "--http", f.http, "--ingest-max-bytes", "200000000", "--sync-interval", "1m"))
	require.NoError(f.t, err)
	f.s = &server{process: p, data: f.data}
}

// messages reads the texts of the session's errors out of the table.
func (f *fixed) messages(session string) []string {
	f.t.Helper()
	out := []string{}
	after := uint64(0)
	for {
		resp, err := http.Get(fmt.Sprintf("http://%s/api/v1/events?session_id=%s&limit=1000&after_seq=%d", f.http, session, after))
		require.NoError(f.t, err)
		var page struct {
			Events []struct {
				Data struct {
					Message string `json:"message"`
				} `json:"data"`
			} `json:"events"`
			Next   uint64 `json:"next_after_seq"`
			Latest uint64 `json:"latest_seq"`
		}
		require.NoError(f.t, json.NewDecoder(resp.Body).Decode(&page))
		resp.Body.Close()
		for _, e := range page.Events {
			out = append(out, e.Data.Message)
		}
		if after = page.Next; len(page.Events) == 0 && page.Next == page.Latest {
			return out
		}
	}
}

// texts are n texts that tell their places.
func texts(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%d", i)
	}
	return out
}

// joined makes lines of texts.
func joined(session string, texts []string, line func(session, text string) string) string {
	var b strings.Builder
	for _, text := range texts {
		b.WriteString(line(session, text))
	}
	return b.String()
}
