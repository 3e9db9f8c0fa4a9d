//go:build unix

package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// javascript is where the examples stand.
const javascript = "../../examples/js"

// node returns a command that runs one of the examples.
func node(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path := skaldtest.NeedProgram(t, "node")
	skaldtest.NeedPath(t, filepath.Join(javascript, "node_modules"), "npm ci in examples/js")
	cmd := exec.Command(path, args...)
	cmd.Dir = javascript
	cmd.Env = environment()
	return cmd
}

// The digest rule in JavaScript gives the digests of the vectors.
func TestJavaScript_Digests(t *testing.T) {
	t.Parallel()
	out, err := node(t, "--test").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "# fail 0")
}

// A worker and a reader in another language get through a server that is killed and
// started again under them: all that the worker said is in the table once and in
// order, and the reader, which keeps its place in a durable consumer, has exactly
// the table's list of its workspace. One that is started again goes on behind it.
func TestJavaScript_WorkerAndReader(t *testing.T) {
	t.Parallel()
	const turns = 150
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	start := func() *server {
		return serveAt(t, dir, at, web)
	}
	s := start()
	s.worker(t).put(ingestSubject("other", "s", "error"), nil, failed("not for this reader"))

	reader := background(t, node(t, "reader.js", "--server", at, "--workspace", "js ws", "--durable", "js"))
	worker := background(t, node(t, "worker.js", "--server", at, "--workspace", "js ws", "--session", "build v1.2", "--turns", "150"))
	awaitFacts(t, reader, 50)
	kill(s.process)
	s = start()
	<-worker.exited
	require.Equal(t, 0, worker.code, worker.text())

	rows := s.same(t, "js ws") // table and stream agree
	// Two activities and the turn's start and end each, and an error in every third.
	require.Len(t, rows, 4*turns+turns/3)
	awaitFacts(t, reader, len(rows))
	require.Equal(t, 0, reader.terminate(), reader.text())
	require.Equal(t, rows, reader.facts())

	var said struct{ Frontier struct{ Ordinal uint64 } }
	require.NoError(t, json.Unmarshal([]byte(worker.lastLine(t)), &said))
	require.EqualValues(t, 3*turns, said.Frontier.Ordinal)

	// A worker that is started again continues the chain, and the reader its list.
	again := background(t, node(t, "worker.js", "--server", at, "--workspace", "js ws", "--session", "build v1.2", "--turns", "1"))
	<-again.exited
	require.Equal(t, 0, again.code, again.text())
	require.Contains(t, again.text(), "stands at ordinal 450")
	reader = background(t, node(t, "reader.js", "--server", at, "--workspace", "js ws", "--durable", "js"))
	awaitFacts(t, reader, 4)
	require.Equal(t, s.same(t, "js ws")[len(rows):], reader.facts())
}

// A durable that somebody deletes under the reader is made again behind what it has.
func TestJavaScript_ConsumerDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	reader := background(t, node(t, "reader.js", "--server", s.nats, "--workspace", "w", "--durable", "gone"))
	put := func(text string) { w.put(ingestSubject("w", "s", "error"), nil, failed(text)) }
	put("one")
	put("two")
	awaitFacts(t, reader, 2)
	require.NoError(t, s.js(t).DeleteConsumer(t.Context(), "SKALD_EVENTS", "gone"))
	put("three")
	awaitFacts(t, reader, 3)
	require.Equal(t, s.same(t, "w"), reader.facts())
}

// background starts a command, which ends with the test.
func background(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { kill(p) })
	return p
}

// serveAt starts a server on addresses that it keeps over restarts.
func serveAt(t *testing.T, dir, at, web string) *server {
	t.Helper()
	p, err := spawn(command(t, "serve", "--data", dir, "--listen", at, "--http", web, "--ingest-max-bytes", "200000000"))
	require.NoError(t, err)
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // a test may have frozen it
		kill(p)
		if t.Failed() {
			t.Log(p.text())
		}
	})
	s := &server{process: p, data: dir}
	require.Eventually(t, s.ready, patience, patience/1000, p.text())
	return s
}

// awaitFacts waits until a reader has shown n facts, or fails the test if it ends.
func awaitFacts(t *testing.T, reader *process, n int) {
	t.Helper()
	skaldtest.Eventually(t, patience, func() bool { return len(reader.facts()) >= n || !reader.running() })
	require.GreaterOrEqual(t, len(reader.facts()), n, reader.text())
}

// facts are the lines of output that are facts.
func (p *process) facts() []string {
	var out []string
	for line := range strings.Lines(p.text()) {
		if strings.HasPrefix(line, `{"seq":`) {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out
}

// lastLine is the last line of output.
func (p *process) lastLine(t *testing.T) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(p.text()), "\n")
	return lines[len(lines)-1]
}
