//go:build unix

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// ports are those of the page and of the files that it uses.
var ports = regexp.MustCompile(`127\.0\.0\.1:([468]22[123]|752[56])\b`)

// What docs/deploy.md tells an operator works as it stands, on other ports: three nodes,
// two tenants, one publishes, the other is refused, and a node is killed.
func TestDeploy_Docs(t *testing.T) {
	for _, name := range []string{"bash", "openssl", "curl"} {
		skaldtest.NeedProgram(t, name)
	}
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		script.WriteString(block[1])
	}
	free := map[string]string{}
	moved := func(text string) string {
		return ports.ReplaceAllStringFunc(text, func(at string) string {
			if free[at] == "" {
				free[at] = skaldtest.FreeAddress(t)
			}
			return free[at]
		})
	}
	dir, bin := t.TempDir(), t.TempDir()
	files, err := filepath.Glob(filepath.Join(deployed, "nats", "*"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(f)), []byte(moved(string(text))), 0o700))
	}
	require.NoError(t, os.Symlink(skaldtest.Binary(t), filepath.Join(bin, "skald")))
	require.NoError(t, os.Symlink(skaldtest.NATSServerBinary(t), filepath.Join(bin, "nats-server")))

	cmd := exec.Command("bash", "-euc", moved(script.String()))
	cmd.Dir = dir
	cmd.Env = append(environment(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := os.Create(filepath.Join(dir, "said"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = said, said // files: what runs in the background would hold a pipe
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) //nolint:errcheck // all that it has started
	err = cmd.Wait()
	text, _ := os.ReadFile(said.Name())
	require.NoError(t, err, "%s", text)
	out := string(text)
	require.Equal(t, 2, strings.Count(out, "\nrefused\n"), out)
	require.Contains(t, out, "2 durables made", out)
	after := out[strings.LastIndex(out, "refused"):]
	require.Equal(t, 1, strings.Count(after, "stored ingest"), out)
	require.Equal(t, 1, strings.Count(after, `"message":"still here"`), out)
	require.Len(t, free, 11)
}

// Each file of deploy stands in the page's table of what checks it, and the table names
// no other.
func TestDeploy_EachFileChecked(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "| files | checked by |\n|---|---|\n")
	require.True(t, ok)
	var named, there []string
	for line := range strings.Lines(table) {
		files, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(files, -1) {
			require.FileExists(t, filepath.Join(deployed, m[1]))
			if !strings.HasPrefix(m[1], "../") {
				named = append(named, m[1])
			}
		}
	}
	require.NoError(t, filepath.WalkDir(deployed, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(deployed, path)
			there = append(there, filepath.ToSlash(path))
		}
		return err
	}))
	require.ElementsMatch(t, there, named)
}
