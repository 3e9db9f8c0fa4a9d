//go:build linux

package torture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// process is a program that may be killed, frozen and started again. Its output is
// appended to a file.
type process struct {
	name string
	log  string
	make func() *exec.Cmd

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended, once exited is closed
	frozen bool
	starts int
}

func newProcess(dir, name string, make func() *exec.Cmd) *process {
	return &process{name: name, log: filepath.Join(dir, name+".log"), make: make}
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// start starts the program, which must not be running.
func (p *process) start() error {
	if p.running() {
		return fmt.Errorf("%s runs already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.starts++
	fmt.Fprintf(log, "--- start %d\n", p.starts)
	cmd := p.make()
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	// It must not outlive the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.exited, p.frozen = cmd, exited, false
	go func() {
		p.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

// kill ends it as a crash would.
func (p *process) kill() {
	if p.cmd != nil {
		p.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
		<-p.exited
	}
}

// freeze stops it where it stands, thaw lets it go on.
func (p *process) freeze() { p.frozen = true; p.cmd.Process.Signal(syscall.SIGSTOP) }  //nolint:errcheck // it may have ended
func (p *process) thaw()   { p.frozen = false; p.cmd.Process.Signal(syscall.SIGCONT) } //nolint:errcheck // it may have ended

// tail returns the end of what it said.
func (p *process) tail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
