//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// imageUser is who the image's program runs as.
const imageUser = 65532

// The Dockerfile's RUN lines make the program from the files that git knows, in an empty
// directory, and that program serves as the image's user, who owns nothing but the data
// directory. There is no engine here that could build the image itself.
func TestDeploy_Dockerfile(t *testing.T) {
	t.Parallel()
	git := skaldtest.NeedProgram(t, "git")
	skaldtest.Need(t, os.Getuid() == 0, "root, to run as another user")
	text, err := os.ReadFile(filepath.Join(deployed, "docker", "Dockerfile"))
	require.NoError(t, err)

	dir, err := os.MkdirTemp("", "skald-image-") // t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(src, 0o755))
	sh := func(line string) {
		cmd := exec.Command("sh", "-euc", line)
		cmd.Dir, cmd.Env = src, environment()
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, said)
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	// COPY, less what git does not know.
	sh(fmt.Sprintf("cd '%s' && '%s' ls-files -z --cached | xargs -0 cp --parents -t '%s'", root, git, src))
	runs, copies := 0, map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		require.False(t, strings.HasSuffix(line, `\`), "this test reads one instruction a line")
		switch instruction, rest, _ := strings.Cut(line, " "); instruction {
		case "RUN":
			sh(strings.ReplaceAll(rest, "/out", out))
			runs++
		case "COPY":
			if f := strings.Fields(rest); f[0] == "--from=build" {
				copies[f[len(f)-1]] = strings.ReplaceAll(f[len(f)-2], "/out", out)
			}
		}
	}
	require.Equal(t, 3, runs)
	require.Contains(t, string(text), fmt.Sprintf("\nUSER %d:%d\n", imageUser, imageUser))
	require.Contains(t, string(text), "\nFROM gcr.io/distroless/static-debian12:nonroot\n")

	bin, data := copies["/usr/local/bin/skald"], copies["/data"]
	file, err := exec.Command("go", "version", "-m", bin).CombinedOutput()
	require.NoError(t, err, "%s", file)
	require.Contains(t, string(file), "CGO_ENABLED=0", "it needs no library")
	info, err := os.Stat(data)
	require.NoError(t, err)
	require.EqualValues(t, imageUser, info.Sys().(*syscall.Stat_t).Uid)

	cmd := exec.Command(bin, "serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000")
	cmd.Dir = data
	cmd.Env = []string{} // as in an image without a shell
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
	s := &server{process: background(t, cmd), data: data}
	skaldtest.Eventually(t, patience, func() bool { return s.ready() || !s.running() })
	resp, err := http.Get(s.http + "/healthz")
	require.NoError(t, err, s.text())
	resp.Body.Close()
	s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("from an image"))
	require.Equal(t, 1, s.settle(t).Applied)
	s.stop(t)
}
