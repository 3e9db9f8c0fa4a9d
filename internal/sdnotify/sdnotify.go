package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// sendTimeout is how long systemd may take to make room for a state: it reads them at once
// unless the whole machine is stuck, and nothing is to wait for that, stopping least.
const sendTimeout = time.Second

// ErrEnvironment: a variable that systemd sets can not be understood.
var ErrEnvironment = errors.New("environment of systemd")

// Notifier sends to systemd. Make one with [New].
type Notifier struct {
	addr     *net.UnixAddr // nil: nobody listens
	watchdog time.Duration // 0: nobody expects signs of life
}

// New reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. The error wraps
// ErrEnvironment.
func New() (*Notifier, error) {
	n := &Notifier{}
	socket := os.Getenv("NOTIFY_SOCKET")
	switch {
	case socket == "":
		return n, nil
	case strings.HasPrefix(socket, "/"):
	case strings.HasPrefix(socket, "@"): // in Linux' abstract namespace; package net writes it so, too
	default:
		return nil, fmt.Errorf("%w: NOTIFY_SOCKET must begin with / or @, not %q", ErrEnvironment, socket)
	}
	n.addr = &net.UnixAddr{Name: socket, Net: "unixgram"}
	usec := os.Getenv("WATCHDOG_USEC")
	if pid := os.Getenv("WATCHDOG_PID"); usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n, nil // the watchdog is off, or another process'
	}
	v, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || v <= 0 || v > int64(24*time.Hour/time.Microsecond) {
		return nil, fmt.Errorf("%w: WATCHDOG_USEC must be a number of µs up to a day, not %q", ErrEnvironment, usec)
	}
	n.watchdog = time.Duration(v) * time.Microsecond
	return n, nil
}

// Run says that the service is ready, then twice in each of the watchdog's intervals
// that it lives, if well returns nil within half of one, and when ctx ends that it
// stops; then it returns nil. It returns an error if systemd can not be told that the
// service is ready. What goes wrong later is logged: systemd acts on silence.
func (n *Notifier) Run(ctx context.Context, log *slog.Logger, well func(context.Context) error) error {
	if err := n.send("READY=1"); err != nil {
		return err
	}
	defer func() {
		if err := n.send("STOPPING=1"); err != nil {
			log.Warn("systemd was not told", slog.Any("err", err))
		}
	}()
	if n.watchdog == 0 {
		<-ctx.Done()
		return nil
	}
	again := time.NewTicker(n.watchdog / 2)
	defer again.Stop()
	for {
		err := n.live(ctx, well)
		if err != nil && ctx.Err() == nil {
			log.Error("no sign of life for systemd's watchdog", slog.Any("err", err))
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Notifier) live(ctx context.Context, well func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.watchdog/2)
	defer cancel()
	if err := well(ctx); err != nil {
		return err
	}
	return n.send("WATCHDOG=1")
}

// send sends one state, if anybody listens.
func (n *Notifier) send(state string) error {
	if n.addr == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
