//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// proposed returns the commands that serve's banner proposes.
func proposed(t *testing.T, banner string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(banner, "Try, in another terminal:\n")
	require.True(t, ok, banner)
	var commands []string
	for line := range strings.Lines(rest) {
		c, ok := strings.CutPrefix(line, "  ")
		if !ok {
			break
		}
		commands = append(commands, strings.TrimSuffix(c, "\n"))
	}
	return commands
}

// Started from a directory, with no word about data, serve says where it listens and
// where its data is, and proposes commands of which each works as it stands, pasted
// into another terminal in that directory.
func TestServe_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("SKALD_TEST_NO_SKIP") == "" {
		t.Skip("one of the proposed commands is curl, which is not here")
	}
	dir := filepath.Join(t.TempDir(), "it's here; a?b#c%20ü")
	require.NoError(t, os.Mkdir(dir, 0o750))
	require.NoError(t, os.Symlink(skaldtest.Binary(t), filepath.Join(dir, "skald")))
	cmd := command(t, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000")
	cmd.Dir, cmd.Args[0] = dir, "./skald"
	p, err := spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { kill(p) })
	s := &server{process: p}
	skaldtest.Eventually(t, patience, func() bool { return s.ready() || !s.running() })
	require.True(t, s.running(), s.text())

	// What it says is so.
	require.Contains(t, s.text(), "\n  data  "+filepath.Join(dir, "skald-data")+"\n")
	require.FileExists(t, filepath.Join(dir, "skald-data", "skald.db"))
	u, err := url.Parse(s.nats)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", u.Hostname())
	require.True(t, connect(t, s.nats).IsConnected())

	// What it proposes works, in that order.
	commands := proposed(t, s.text())
	var outputs []string
	for _, c := range commands {
		sh := exec.Command("sh", "-c", c)
		sh.Dir, sh.Env = dir, environment()
		out, err := sh.Output()
		require.NoError(t, err, c)
		outputs = append(outputs, string(out))
		s.settle(t)
	}
	require.Len(t, outputs, 3, commands)
	require.Equal(t, "stored ingest 1 default/demo error\n", outputs[0])
	require.Contains(t, outputs[1], `"latest_seq":1,`)
	require.Contains(t, outputs[2], `{"seq":1,"session_id":"demo","workspace_id":"default"`)
	require.Contains(t, outputs[2], `"type":"error","data":{"message":"hello","command_id":null}}`+"\n")
	s.stop(t)
}

// SIGTERM and Ctrl-C end serve with status 0. The next start finds everything, under
// the same numbers, and goes on behind it.
func TestServe_Stops(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "Ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serve(t, dir)
			w := s.worker(t)
			chain := newRelayChain()
			w.put("skald.in.w.s.projection", nil, chain.page(3))
			for i := range 20 {
				w.put("skald.in.w.s.error", withCount("p", fmt.Sprint(i+1)), failed(fmt.Sprint("counted ", i)))
				w.put("skald.in.w.s.activity", withID(fmt.Sprint("id-", i)), fmt.Sprintf(`{"activity":{"n":%d}}`, i))
			}
			w.put("skald.in.w.s.error", nil, `{"message":1}`) // rejected
			s.settle(t)
			paths := []string{"/api/v1/events?after_seq=0", "/api/v1/sessions/s", "/api/v1/sessions"}
			var before []string
			for _, path := range paths {
				_, _, body := s.fetch(t, path)
				before = append(before, string(body))
			}
			require.Equal(t, 40, strings.Count(before[0], `"seq":`))
			s.signal(t, sig)
			skaldtest.Eventually(t, patience, func() bool { return !s.running() })
			require.Equal(t, 0, s.code, s.text())

			s = serve(t, dir)
			for i, path := range paths {
				_, _, body := s.fetch(t, path)
				require.Equal(t, before[i], string(body))
			}
			require.Equal(t, 1, s.settle(t).Rejects)
			w = s.worker(t)
			w.put("skald.in.w.s.projection", nil, chain.page(2))
			w.put("skald.in.w.s.error", withCount("p", "20"), failed("counted 19")) // known from before
			w.put("skald.in.w.s.error", withCount("p", "21"), failed("one more"))
			s.settle(t)
			_, _, body := s.fetch(t, "/api/v1/events?after_seq=40")
			require.Contains(t, string(body), `{"events":[{"seq":41,"session_id":"s","workspace_id":"w"`)
			require.Equal(t, 1, strings.Count(string(body), `"seq":`))
			_, _, body = s.fetch(t, "/api/v1/sessions/s")
			require.Contains(t, string(body), `"frontier":{"ordinal":5,`)
			s.stop(t)
		})
	}
}
