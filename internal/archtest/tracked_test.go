package archtest_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tracked returns the folders below root, with slashes, in which git tracks Go
// files. It is nil where git does not say: there is none, root is no working copy,
// or nothing is tracked there.
func tracked(root string) map[string]bool {
	out, err := git(root, "ls-files", "-z", "--", "*.go").Output()
	if err != nil || len(out) == 0 {
		return nil
	}
	folders := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		folders[path.Dir(name)] = true
	}
	return folders
}

// git returns a command in dir, without what a hook that runs the tests has set:
// that names the hook's working copy.
func git(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	return cmd
}

// A folder that is only tried out breaks no rule, a new file in one that is tracked
// does; without git each does.
func TestRead_Untracked(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bus/doc.go", "package bus\n")
	write(t, dir, "bus/new.go", "package bus\n\nfunc init() {}\n")
	write(t, dir, "scratch/x.go", "package scratch\n\nfunc init() {}\n")
	write(t, dir, "scratch/deep/broken.go", "this is no Go\n")
	_, err := read(dir)
	require.Error(t, err, "all is read")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "scratch/deep")))
	files, err := read(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"bus/new.go: declares func init", "scratch/x.go: declares func init", "scratch: has no doc.go"}, check(files))

	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("without git nothing is untracked")
	}
	require.NoError(t, git(dir, "init", "-q").Run())
	require.Nil(t, tracked(dir), "nothing is tracked yet")
	require.NoError(t, git(dir, "add", "bus/doc.go").Run())
	write(t, dir, "scratch/deep/broken.go", "this is no Go\n")
	files, err = read(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"bus/new.go: declares func init"}, check(files))
}
