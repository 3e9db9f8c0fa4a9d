//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// launchDegraded starts serve on a directory whose INGEST is not what it was: it serves,
// but does not get ready.
func launchDegraded(t *testing.T, dir string) *server {
	t.Helper()
	p, err := spawn(command(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--ingest-max-bytes", "200000000", "--sync-interval", "1m"))
	require.NoError(t, err)
	t.Cleanup(func() { kill(p) })
	s := &server{process: p, data: dir}
	skaldtest.Eventually(t, patience, func() bool {
		s.ready()
		return s.http != "" && s.readiness(t)["ingest_loss"] != "" || !p.running()
	}, "it says what happened to INGEST")
	require.True(t, p.running(), p.text())
	return s
}

// readiness returns what is wrong, by check.
func (s *server) readiness(t *testing.T) map[string]string {
	t.Helper()
	resp, err := client.Get(s.http + "/readyz")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var answer struct {
		Checks []struct {
			Name   string `json:"name"`
			OK     bool   `json:"ok"`
			Detail string `json:"detail"`
		} `json:"checks"`
	}
	require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	wrong := map[string]string{}
	for _, c := range answer.Checks {
		if !c.OK {
			wrong[c.Name] = c.Detail
		}
	}
	require.Equal(t, len(wrong) == 0, resp.StatusCode == http.StatusOK, "%s", body)
	return wrong
}

// The crash table's row: JetStream's directory, both streams, is set back to a copy that
// was taken earlier, and a serve that was killed is started on it. EVENTS gets its lost
// end back under the same numbers, INGEST is read again; what was lost and is sent again
// is known, what is new gets new numbers, and readiness says what happened until an
// operator has acknowledged it.
func TestCrash_IngestRolledBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	streams, saved := filepath.Join(dir, "jetstream"), filepath.Join(t.TempDir(), "jetstream")
	chain := newRelayChain()
	// put publishes messages n to m with a count, an event id, a chain, and nothing.
	put := func(w *plainWorker, n, m int) {
		for i := n; i <= m; i++ {
			w.put(ingestSubject("w", "counted", "error"), withCount("p", fmt.Sprint(i)), failed(fmt.Sprint("counted ", i)))
			w.put(ingestSubject("w", "named", "error"), withID(fmt.Sprint("id-", i)), failed(fmt.Sprint("named ", i)))
			w.put(ingestSubject("w", "bare", "error"), nil, failed(fmt.Sprint("bare ", i)))
		}
		w.put(ingestSubject("w", "chained", "projection"), nil, chain.page(2))
	}
	s := serve(t, dir)
	put(s.worker(t), 1, 20)
	s.settle(t)
	s.stop(t)
	require.NoError(t, os.CopyFS(saved, os.DirFS(streams)))

	s = serve(t, dir)
	put(s.worker(t), 21, 30)
	s.settle(t)
	before := s.same(t, "w")
	require.Len(t, before, 90)
	frontier := chain.ordinal
	s.signal(t, syscall.SIGKILL)
	<-s.exited
	require.NoError(t, os.RemoveAll(streams))
	require.NoError(t, os.CopyFS(streams, os.DirFS(saved)))

	s = launchDegraded(t, dir)
	require.Contains(t, s.readiness(t)["ingest_loss"], "INGEST ends at 61, and messages up to 92 had been read")
	skaldtest.Eventually(t, patience, func() bool { return len(s.readiness(t)) == 1 }, "EVENTS has its end back, and nothing else is wrong")
	st := s.settle(t)
	require.EqualValues(t, 61, st.Ingest.Position, "it tells where it is in the INGEST that is there")
	require.Equal(t, before, s.same(t, "w"), "rows keep their numbers, nothing is there twice")

	// The publisher has no word of some that were lost, and sends them again.
	w := s.worker(t)
	for i := 25; i <= 30; i++ {
		w.put(ingestSubject("w", "counted", "error"), withCount("p", fmt.Sprint(i)), failed(fmt.Sprint("counted ", i)))
		w.put(ingestSubject("w", "named", "error"), withID(fmt.Sprint("id-", i)), failed(fmt.Sprint("named ", i)))
	}
	put(w, 31, 40)
	// Others were lost before they were read, and come after later ones.
	for _, i := range []int{43, 41, 42} {
		w.put(ingestSubject("w", "counted", "error"), withCount("p", fmt.Sprint(i)), failed(fmt.Sprint("counted ", i)))
	}
	s.settle(t)
	after := s.same(t, "w")
	require.Equal(t, before, after[:90])
	require.Len(t, after, 123)
	for i, e := range after[90:] {
		require.True(t, strings.HasPrefix(e, fmt.Sprintf(`{"seq":%d,`, 91+i)), e)
	}
	_, _, body := s.fetch(t, "/api/v1/sessions/chained?workspace_id=w")
	require.Contains(t, string(body), fmt.Sprintf(`"frontier":{"ordinal":%d,`, frontier+2))

	// One entry tells the operator, and readiness stays degraded over a restart.
	lines := skald(t, "", "rejects", "--json", "--data", dir).ok(t)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], `"reason":"ingest_rolled_back"`)
	s.stop(t)
	s = launchDegraded(t, dir)
	require.Equal(t, []string{"discarded 1 entry"}, skald(t, "", "rejects", "discard", "1", "--data", dir, "--server", s.nats).ok(t))
	skaldtest.Eventually(t, patience, func() bool { return s.ready() }, "it is acknowledged")
	s.stop(t)
	s = serve(t, dir) // which waits until it is ready
	require.Equal(t, after, s.same(t, "w"))
	s.stop(t)
}
