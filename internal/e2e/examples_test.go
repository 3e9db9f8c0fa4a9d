//go:build unix

package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// The worker and the reader in Go get through a server that is killed and started again
// under them, and through their own death: the table has each turn once and in order, and
// the reader has the table's list, and again what it has shown since its cursor was written.
func TestExamples_Go(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./examples/go/...")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	const turns = 400
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	url, box, cursor := "nats://"+at, filepath.Join(dir, "outbox"), filepath.Join(dir, "cursor")
	example := func(name string, args ...string) *process {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Env = environment()
		return background(t, cmd)
	}
	work := func() *process { return example("worker", url, box, "build 7", strconv.Itoa(turns)) }
	read := func() *process { return example("reader", url, cursor, "acme") }

	s := serveAt(t, filepath.Join(dir, "data"), at, web)
	reader, worker := read(), work()
	awaitFacts(t, reader, 20)
	kill(s.process)
	s = serveAt(t, filepath.Join(dir, "data"), at, web)
	awaitFacts(t, reader, len(reader.facts())+20)
	kill(worker)
	kill(reader)
	before := reader.facts()
	worker = work()
	<-worker.exited
	require.Equal(t, 0, worker.code, worker.text())

	skaldtest.Eventually(t, patience, func() bool { return len(s.same(t, "acme")) == 2*turns })
	// Its cursor may have been at the end.
	s.worker(t).put(ingestSubject("acme", "later", "error"), nil, failed("later"))
	rows := s.same(t, "acme")
	again := read()
	awaitFacts(t, again, 1)
	from := -1
	for i, row := range rows {
		if row == again.facts()[0] {
			from = i
		}
	}
	require.LessOrEqual(t, from, len(before), "nothing is left out")
	require.GreaterOrEqual(t, from, 0)
	require.Equal(t, rows[:len(before)], before)
	awaitFacts(t, again, len(rows)-from)
	require.Equal(t, rows[from:], again.facts())
	require.Equal(t, 0, again.terminate(), again.text())
}
