//go:build unix

package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// eventSource is where a client stands that is not ours.
const eventSource = "testdata/eventsource"

// An EventSource that is not ours goes through restarts and a kill of the server by
// itself, without a hole or a repetition, and tells facts of type error from the loss
// of its connection.
func TestEventSource_Resumes(t *testing.T) {
	t.Parallel()
	path := skaldtest.NeedProgram(t, "node")
	skaldtest.NeedPath(t, filepath.Join(eventSource, "node_modules"), "npm ci in internal/e2e/"+eventSource)
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	s := serveAt(t, dir, at, web)
	s.load(t, "w", 50, 0, 10)
	cmd := exec.Command(path, "follow.js", s.http+"/api/v1/events?workspace_id=w", "0")
	cmd.Dir, cmd.Env = eventSource, environment()
	reader := background(t, cmd)
	awaitFacts(t, reader, 50)
	for i, end := range []func(){func() { s.stop(t) }, func() { kill(s.process) }} {
		end()
		s = serveAt(t, dir, at, web)
		s.load(t, "w", 50, 0, 10)
		s.worker(t).put(ingestSubject("w", "a", "activity"), nil, fmt.Sprintf(`{"activity":{"n":%d}}`, i))
		awaitFacts(t, reader, 50+51*(i+1))
	}
	require.Equal(t, s.same(t, "w"), reader.facts())
	require.Contains(t, reader.text(), "lost")
	require.NotContains(t, reader.text(), "for good")
}
