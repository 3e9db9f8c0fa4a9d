//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// feed is a reader that follows, of whatever kind, and the lines that it was given.
type feed struct {
	t    testing.TB
	name string
	done chan struct{} // closed when it has ended
	stop func()        // asks it to end
	kill func()        // ends it at once
	said func() string // what it has complained about

	mu    sync.Mutex
	lines []string
	err   error // why it has ended, if nobody asked
}

func newFeed(t testing.TB, name string) *feed {
	return &feed{t: t, name: name, done: make(chan struct{}), said: func() string { return "" }}
}

func (f *feed) add(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, line)
}

func (f *feed) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *feed) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// reach waits until it has been given n lines.
func (f *feed) reach(n int) {
	f.t.Helper()
	skaldtest.Eventually(f.t, patience, func() bool {
		select {
		case <-f.done:
			return true
		default:
			return len(f.seen()) >= n
		}
	}, "%s gets %d lines", f.name, n)
	require.GreaterOrEqual(f.t, len(f.seen()), n, "%s has ended: %v\n%s", f.name, f.failed(), f.said())
}

// end ends it in order.
func (f *feed) end() {
	f.t.Helper()
	f.stop()
	select {
	case <-f.done:
	case <-time.After(patience):
		f.kill()
		require.Fail(f.t, "it does not end", "%s\n%s", f.name, f.said())
	}
	require.NoError(f.t, f.failed(), "%s\n%s", f.name, f.said())
}

// commandFeed runs a command that prints lines until it is stopped.
func commandFeed(t testing.TB, args ...string) *feed {
	t.Helper()
	f := newFeed(t, "skald "+strings.Join(args, " "))
	cmd := exec.Command(skaldtest.Binary(t), args...)
	cmd.Env = environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(f.done)
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 16<<20)
		for sc.Scan() {
			f.add(sc.Text())
		}
		f.fail(cmd.Wait())
	}()
	f.stop = func() { cmd.Process.Signal(os.Interrupt) } //nolint:errcheck // it may have ended
	f.kill = func() { cmd.Process.Kill() }               //nolint:errcheck
	f.said = func() string {
		select {
		case <-f.done:
			return stderr.String()
		default:
			return "" // it is still being written
		}
	}
	t.Cleanup(func() { f.kill(); <-f.done })
	return f
}

// goFeed follows in this process.
func goFeed(t testing.TB, url string, o consumer.FollowOptions) *feed {
	t.Helper()
	f := newFeed(t, "Follow")
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	o.Subjects = skaldtest.Subjects(t)
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	follower, err := consumer.Follow(js, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(f.done)
		defer nc.Close()
		for ev, err := range follower.Events(ctx) {
			if err != nil {
				f.fail(err)
				return
			}
			f.add(string(ev.AppendJSON(nil)))
		}
	}()
	f.stop, f.kill = cancel, cancel
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}

// pageFeed pages the NATS service with plain requests, as a client in another
// language would. request holds the members beside the cursor.
func pageFeed(t testing.TB, url, subject string, request map[string]string, every time.Duration) *feed {
	t.Helper()
	f := newFeed(t, "pages of "+subject)
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(f.done)
		defer nc.Close()
		for ctx.Err() == nil {
			body, _ := json.Marshal(request) // of strings
			try, done := context.WithTimeout(ctx, 4*time.Second)
			m, err := nc.RequestWithContext(try, subject, body)
			done()
			var p eventPage
			switch {
			case err != nil: // nobody answers at the moment
			case m.Header.Get("Nats-Service-Error-Code") == "503":
			case m.Header.Get("Nats-Service-Error-Code") != "":
				f.fail(errors.New(string(m.Data)))
				return
			default:
				if err := json.Unmarshal(m.Data, &p); err != nil {
					f.fail(err)
					return
				}
				for _, line := range p.lines() {
					f.add(line)
				}
				request["after_seq"] = fmt.Sprintf("%s:%d", p.Epoch, p.Next)
				if len(p.Events) > 0 {
					continue
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(every): // before the next look
			}
		}
	}()
	f.stop, f.kill = cancel, cancel
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}

// revive starts serve again with the same data and addresses.
func (s *server) revive(t testing.TB) *server {
	t.Helper()
	again, err := launch(skaldtest.Binary(t), s.data, "--listen", strings.TrimPrefix(s.nats, "nats://"), "--http", strings.TrimPrefix(s.http, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() {
		again.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
		<-again.exited
	})
	return again
}

// behindSeq returns the lines behind the number.
func behindSeq(lines []string, seq uint64) []string {
	i := slices.IndexFunc(lines, func(l string) bool { return lineSeq(l) > seq })
	if i < 0 {
		return nil
	}
	return lines[i:]
}

func lineSeq(line string) uint64 {
	ev, err := bus.ParseEvent([]byte(line))
	if err != nil {
		return 0
	}
	return ev.Seq
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
