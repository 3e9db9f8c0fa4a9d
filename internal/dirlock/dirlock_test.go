package dirlock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/dirlock"
)

// holderDir, in a process that a test has started, names the directory to hold.
const holderDir = "SKALD_TEST_HOLD"

// TestMain lets this binary be the other process: it takes the lock, says so,
// and holds it until its input ends.
func TestMain(m *testing.M) {
	dir := os.Getenv(holderDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := dirlock.Acquire(dir); err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// hold starts a process that holds dir.
func hold(t *testing.T, dir string) (cmd *exec.Cmd, said string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), holderDir+"="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // a second Wait returns an error
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line)
}

// One owner at a time, also within one process; the next one after a release.
func TestAcquire_One(t *testing.T) {
	dir := t.TempDir()
	first, err := dirlock.Acquire(dir)
	require.NoError(t, err)

	_, err = dirlock.Acquire(dir)
	require.ErrorIs(t, err, dirlock.ErrHeld)
	var held *dirlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, os.Getpid(), held.PID)
	require.Equal(t, dir, held.Dir)
	require.EqualError(t, held, "directory is in use by process "+strconv.Itoa(os.Getpid())+": "+dir)

	require.NoError(t, first.Release())
	require.ErrorIs(t, first.Release(), os.ErrClosed)
	second, err := dirlock.Acquire(dir)
	require.NoError(t, err)
	require.NoError(t, second.Release())
}

// Two directories have nothing to do with each other.
func TestAcquire_OtherDir(t *testing.T) {
	for _, name := range []string{"a?b", "a#b", "a%20b", "we ird", "über"} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		l, err := dirlock.Acquire(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Release()) }()
		require.FileExists(t, filepath.Join(dir, dirlock.File))
	}
}

// A symbolic link leads to the same lock.
func TestAcquire_Symlink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skipf("this system makes no symbolic links: %v", err)
	}
	l, err := dirlock.Acquire(link)
	require.NoError(t, err)
	_, err = dirlock.Acquire(dir)
	require.ErrorIs(t, err, dirlock.ErrHeld)
	require.NoError(t, l.Release())
	l, err = dirlock.Acquire(dir)
	require.NoError(t, err)
	_, err = dirlock.Acquire(link)
	require.ErrorIs(t, err, dirlock.ErrHeld)
	require.NoError(t, l.Release())
}

// Another process is named by its id; when it is killed, the lock is free.
func TestAcquire_OtherProcess(t *testing.T) {
	dir := t.TempDir()
	other, said := hold(t, dir)
	require.Equal(t, "held", said)
	_, err := dirlock.Acquire(dir)
	var held *dirlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, other.Process.Pid, held.PID)

	require.NoError(t, other.Process.Kill())
	_ = other.Wait() // killed
	l, err := dirlock.Acquire(dir)
	require.NoError(t, err)

	_, said = hold(t, dir)
	require.Contains(t, said, "in use by process "+strconv.Itoa(os.Getpid()))
	require.NoError(t, l.Release())
}

// What someone else left in the file is no process id and no obstacle.
func TestAcquire_Rubbish(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, dirlock.File)
	require.NoError(t, os.WriteFile(file, []byte("rubbish, and more of it than an id would need"), 0o600))
	l, err := dirlock.Acquire(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("rubbish"), 0o600))
	_, err = dirlock.Acquire(dir)
	var held *dirlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Zero(t, held.PID)
	require.EqualError(t, held, "directory is in use by another process: "+dir)
	require.NoError(t, l.Release())
}

// A directory that is not there is an error of its own.
func TestAcquire_NoDir(t *testing.T) {
	_, err := dirlock.Acquire(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, dirlock.ErrHeld)
}
