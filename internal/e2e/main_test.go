//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// common is the server of the tests that need none of their own. They write into
// workspaces of their own and stop nothing. It is shared through the process, as
// the built program is, and ends with it.
var common sharedServer

type sharedServer struct {
	once sync.Once
	dir  string
	s    *server
	err  error
}

func TestMain(m *testing.M) {
	// As package store needs it. Some tests open a store with the driver, and before
	// that it has to be said.
	if _, err := sqlite.OFDLocking(true); err != nil && !errors.Is(err, sqlite.ErrOFDLockingUnavailable) {
		fmt.Fprintln(os.Stderr, "choose file locks:", err)
		os.Exit(1)
	}
	// A shell that runs this in the background has it ignore SIGINT, and so would what it
	// starts. A process hands on what is ignored, not what is handled.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := m.Run()
	if err := common.end(); err != nil {
		fmt.Fprintln(os.Stderr, "shared server:", err)
		code = 1
	}
	os.Exit(code)
}

// shared returns the shared server, started by whoever asks first.
func shared(t *testing.T) *server {
	t.Helper()
	bin := skaldtest.Binary(t)
	common.once.Do(func() {
		if common.dir, common.err = os.MkdirTemp("", "skald-e2e-"); common.err == nil {
			common.s, common.err = launch(bin, common.dir)
		}
	})
	require.NoError(t, common.err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the shared server says:\n%s", common.s.text())
		}
	})
	return common.s
}

// end stops the server, which must have survived all that was done to it.
func (c *sharedServer) end() error {
	if c.dir != "" {
		defer os.RemoveAll(c.dir)
	}
	if c.s == nil {
		return nil
	}
	if code := c.s.terminate(); code != 0 {
		return fmt.Errorf("ended with status %d:\n%s", code, c.s.text())
	}
	return nil
}
