package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stopTimeout is how long a child may take to end before it is killed.
const stopTimeout = 20 * time.Second

// child is a process of the same binary with a NATS server in it, and a connection
// to that.
type child struct {
	cmd  *exec.Cmd
	dir  string
	read chan struct{} // closed when its standard error has ended
	said bytes.Buffer  // of its standard error; read it when read is closed
	nc   *nats.Conn
	js   jetstream.JetStream
}

// ServerCommand is the command of the binary that runs a NATS server alone, as serve
// would run it.
const ServerCommand = "server"

// startServe starts `skald serve` on free ports.
func (b *Bench) startServe(ctx context.Context) (*child, error) {
	return b.start(ctx, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
}

// startServer starts a NATS server alone.
func (b *Bench) startServer(ctx context.Context) (*child, error) {
	return b.start(ctx, "bench", ServerCommand)
}

// start starts a child with a data directory of its own and waits until its server
// answers.
func (b *Bench) start(ctx context.Context, args ...string) (c *child, err error) {
	c = &child{read: make(chan struct{})}
	doing := "start skald " + strings.Join(args, " ")
	if c.dir, err = os.MkdirTemp(b.Dir, "child-"); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	c.cmd = exec.Command(b.Self, append(args, "--data", c.dir)...)
	c.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS_URL=") })
	out, err := c.cmd.StderrPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", doing, err), os.RemoveAll(c.dir))
	}
	url := make(chan string, 1)
	go func() {
		defer close(c.read)
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			fmt.Fprintln(&c.said, sc.Text())
			if f := strings.Fields(sc.Text()); len(f) > 1 && f[0] == "NATS" {
				select {
				case url <- f[1]:
				default:
				}
			}
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("it does not get ready"))
	defer cancel()
	select {
	case u := <-url:
		if c.nc, err = nats.Connect(u); err == nil {
			c.js, err = jetstream.New(c.nc)
		}
	case <-c.read:
		err = errors.New("it has ended")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", doing, err), c.stop())
		return nil, fmt.Errorf("%w\n%s", err, c.said.String())
	}
	return c, nil
}

// stop ends the child in order and removes its directory.
func (c *child) stop() error {
	if c.nc != nil {
		c.nc.Close()
	}
	var errs []error
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, c.cmd.Process.Kill()) // a system without interrupts
	}
	kill := time.AfterFunc(stopTimeout, func() { c.cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	<-c.read                                                             // Wait closes the pipe
	err := c.cmd.Wait()
	kill.Stop()
	if err != nil {
		errs = append(errs, fmt.Errorf("stop skald: %w\n%s", err, c.said.String()))
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// resident returns the child's resident size in bytes, as Linux tells it.
func (c *child) resident() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read resident size: %w", err)
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("read resident size: %q has no second number", b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read resident size: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}
