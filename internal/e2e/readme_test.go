//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// The README's second block of commands works word for word beside a server: only
// the addresses are those of this test.
func TestReadme_Commands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "```sh\n")
	require.Greater(t, len(blocks), 3)
	commands := strings.Split(strings.TrimSpace(strings.Split(blocks[2], "```")[0]), "\n")
	require.Equal(t, "go build -o skald ./cmd/skald", commands[0])

	dir := t.TempDir()
	require.NoError(t, os.Symlink(skaldtest.Binary(t), filepath.Join(dir, "skald")))
	s := serve(t, filepath.Join(dir, "skald-data"))
	var out string
	for _, c := range commands[1:] {
		c = strings.ReplaceAll(c, "http://127.0.0.1:7525", s.http)
		cmd := exec.Command("sh", "-c", c)
		cmd.Dir = dir
		cmd.Env = append(environment(), "NATS_URL="+s.nats)
		b, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", c, b)
		out = string(b)
		if strings.HasPrefix(c, "./skald publish") {
			require.Contains(t, out, "stored", c)
			// A person takes longer than the materializer to type the next line.
			require.Eventually(t, func() bool { return s.lag(t) == 0 }, patience, patience/1000, c)
		}
	}
	// The last one pages over HTTP.
	require.Contains(t, out, `"type":"error","data":{"message":"out of disk","command_id":null}}`)
	require.Contains(t, out, `"type":"activity_changed","data":{"activity":{"state":"running"}}}`)
}

// lag is how many stored messages are not applied yet.
func (s *server) lag(t testing.TB) int64 {
	t.Helper()
	resp, err := client.Get(s.http + "/api/v1/status")
	require.NoError(t, err)
	defer resp.Body.Close()
	var status struct{ Ingest struct{ Lag int64 } }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
	return status.Ingest.Lag
}

// Every command that the operator's pages name is one, and so are their flags.
func TestOperatorPages_Commands(t *testing.T) {
	t.Parallel()
	called := regexp.MustCompile("`skald ([a-z]+)( (?:retry|discard|show|rm)\\b)?([^`]*)`")
	flag := regexp.MustCompile(`--[a-z-]+`)
	for _, page := range []string{"../../docs/operating.md", "../../docs/recovery.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		calls := called.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, calls, page)
		for _, c := range calls {
			help := strings.Join(skald(t, "", append(append([]string{c[1]}, strings.Fields(c[2])...), "--help")...).ok(t), "\n")
			require.Contains(t, help, "skald "+c[1]+c[2], c[0])
			for _, f := range flag.FindAllString(c[3], -1) {
				require.Contains(t, help, f, c[0])
			}
		}
	}
}
