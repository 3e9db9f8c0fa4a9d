package skaldtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The two programs that tests run. A variable each, since the tests of a process
// can share one build only through the process; nothing else here is shared.
var (
	skald = sync.OnceValues(func() (string, error) {
		return build("skald", "github.com/skaldbus/skald/cmd/skald")
	})
	natsServer = sync.OnceValues(func() (string, error) {
		return build("nats-server", "github.com/nats-io/nats-server/v2")
	})
)

// Binary builds cmd/skald, once in a test process, and returns the program's path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := skald()
	require.NoError(t, err)
	return path
}

// NATSServerBinary builds the NATS server of the module's version, once in a test
// process, and returns the program's path.
func NATSServerBinary(t testing.TB) string {
	t.Helper()
	path, err := natsServer()
	require.NoError(t, err)
	return path
}

// build builds pkg into a directory of this process. A process gets no word when
// its last test has ended, so a later one removes what it left.
func build(name, pkg string) (string, error) {
	base := filepath.Join(os.TempDir(), "skald-test-"+strconv.Itoa(os.Getuid())) // other users have theirs
	dir := filepath.Join(base, strconv.Itoa(os.Getpid()), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	removeOthers(base)
	path := filepath.Join(dir, name)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, strings.TrimSpace(string(out)))
	}
	return path, nil
}

// removeOthers removes what test processes that have ended left in base.
func removeOthers(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			_ = os.RemoveAll(filepath.Join(base, e.Name())) // another process may be at it, too
		}
	}
}
