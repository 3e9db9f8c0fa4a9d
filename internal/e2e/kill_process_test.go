//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// command returns a command of the built program.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(skaldtest.Binary(t), args...)
	cmd.Env = environment()
	return cmd
}

// start starts a process and waits for nothing. Half of them sync as shipped, half
// seldom: a kill leaves to the system what the process has written, so both must
// survive it.
func (w *world) start() *server {
	w.t.Helper()
	args := []string{"serve", "--data", w.dir, "--listen", w.nats, "--http", w.http, "--ingest-max-bytes", strconv.Itoa(skaldtest.IngestBytes)}
	if w.rng.IntN(2) == 0 {
		args = append(args, "--sync-interval", "1m")
	}
	w.note("start %s", strings.Join(args[9:], " "))
	p, err := spawn(command(w.t, args...))
	require.NoError(w.t, err)
	w.processes = append(w.processes, p)
	w.t.Cleanup(func() { kill(p) })
	return &server{process: p, data: w.dir}
}

// startReady starts a process and waits until it is ready.
func (w *world) startReady() *server {
	w.t.Helper()
	s := w.start()
	w.ready(s)
	return s
}

// ready waits until the process is ready.
func (w *world) ready(s *server) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !s.ready() {
		if !s.running() || time.Now().After(deadline) {
			w.give(fmt.Sprintf("serve does not get ready:\n%s", s.text()), nil)
		}
		if err := pause(w.ctx, readPause); err != nil {
			w.give(err.Error(), nil)
		}
	}
	w.note("ready")
}

// kill ends the process as a crash would, and waits until it is gone. One that
// has ended already stays so.
func kill(p *process) {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.exited
}

// after lets a random time up to most pass. The process may not end by itself in
// it, nor a publisher or reader fail.
func (w *world) after(s *server, most time.Duration) time.Duration {
	w.t.Helper()
	d := time.Duration(w.rng.Int64N(int64(most)))
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.exited:
		w.give(fmt.Sprintf("serve ended by itself with status %d:\n%s", s.code, s.text()), nil)
	case <-w.ctx.Done():
		w.give(context.Cause(w.ctx).Error(), nil)
	}
	return d
}

// await waits until all of c are closed, and fails the test if something else has
// failed before.
func (w *world) await(what string, c ...<-chan struct{}) {
	w.t.Helper()
	for _, one := range c {
		select {
		case <-one:
		case <-w.ctx.Done():
		}
	}
	if err := context.Cause(w.ctx); err != nil {
		w.give("while waiting for "+what+": "+err.Error(), nil)
	}
}
