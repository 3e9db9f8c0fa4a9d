package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	// leaseTTL is how long the server keeps a lease that nobody asks after.
	leaseTTL = 5 * time.Second
	// leasePull is how long one request of the holder waits at the server, which
	// so knows at any time whether the holder's connection lives.
	leasePull = time.Second
	// leaseTimeout bounds each question. One that went down with a connection is never
	// answered, and the next has to come before the lease lapses.
	leaseTimeout = 2 * leasePull
	// leaseRetry is the pause between tries.
	leaseRetry = 250 * time.Millisecond
	// leasePatience is when a lease that does not lapse counts as held, even if
	// its holder is never seen: two lives of it, and the holder's last request.
	leasePatience = 2*leaseTTL + leasePull
)

// lease is the right to read a durable, held by one process at a time. It is a
// JetStream consumer that matches nothing, beside the durable: creating
// it under its name with another description fails while it exists, so the server
// decides who has it, and deletes it when its holder stays away. No clock of one
// machine is compared with another's.
type lease struct {
	c      *Consumer
	name   string
	holder string // the description; no two are equal

	mu    sync.Mutex
	until time.Time // before this the server can not have deleted it by itself
}

// acquire makes the lease. While another has it, acquire looks whether that one
// lives: its request then waits at the server. A request that was there at the
// first look may be of a machine that has vanished; one that is there later than
// it can wait is not, and the error is ErrInUse.
func (c *Consumer) acquire(ctx context.Context) (*lease, error) {
	host, _ := os.Hostname() // for people only
	l := &lease{
		c:      c,
		name:   c.durable + leaseSuffix,
		holder: "held by " + host + " process " + strconv.Itoa(os.Getpid()) + ", " + bus.NewID(),
	}
	var first time.Time
	for {
		sent := time.Now()
		err := l.create(ctx)
		switch {
		case err == nil:
			l.extend(sent)
			return l, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, fmt.Errorf("%w: %s", bus.ErrStreamMissing, c.stream)
		case errors.Is(err, jetstream.ErrConsumerExists):
			if first.IsZero() {
				first = time.Now()
			}
			if err := l.inUse(ctx, time.Since(first)); err != nil {
				return nil, err
			}
		default:
			if err := c.closed(); err != nil {
				return nil, err
			}
			c.log.WarnContext(ctx, "lease of the durable is not to be had yet", slog.Any("err", err))
		}
		if err := pause(ctx, leaseRetry); err != nil {
			return nil, err
		}
	}
}

// inUse returns ErrInUse if the present holder lives, as seen waited after the
// first look.
func (l *lease) inUse(ctx context.Context, waited time.Duration) error {
	ctx, cancel := bounded(ctx, leaseTimeout)
	defer cancel()
	other, err := l.c.js.Consumer(ctx, l.c.stream, l.name)
	if err != nil {
		return nil // it may have lapsed right now; creating it tells
	}
	info := other.CachedInfo()
	if waited > leasePatience || info.NumWaiting > 0 && waited > leasePull+leaseRetry {
		return fmt.Errorf("%w: %q is %s", ErrInUse, l.c.o.Durable, info.Config.Description)
	}
	return nil
}

// bounded returns a context for one question.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// create makes the lease, or finds it still there.
func (l *lease) create(ctx context.Context) error {
	ctx, cancel := bounded(ctx, leaseTimeout)
	defer cancel()
	workspace := bus.AdminToken
	if l.c.o.Workspace != "" {
		workspace = bus.Escape(l.c.o.Workspace)
	}
	_, err := l.c.js.CreateConsumer(ctx, l.c.stream, jetstream.ConsumerConfig{
		// Durable, so that a server that restarts knows who had it.
		Durable:     l.name,
		Description: l.holder,
		// Of the reader's workspace, so that permissions for that are enough.
		FilterSubject:     l.c.o.Subjects.Prefix() + ".ev." + workspace + "." + bus.AdminToken + ".lease",
		DeliverPolicy:     jetstream.DeliverNewPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        -1,
		Replicas:          1,
		InactiveThreshold: leaseTTL,
	})
	return err
}

// keep renews the lease until ctx ends, and returns ErrInUse if another has it.
func (l *lease) keep(ctx context.Context) error {
	for {
		sent := time.Now()
		err := l.pull(ctx)
		if err == nil {
			// The request names only the durable's lease, and would keep another's
			// alive just as well. If it is ours now it was ours then, since nobody
			// makes it again under our description but we.
			err = l.confirm(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			l.extend(sent)
			continue
		case !errors.Is(err, jetstream.ErrConsumerExists):
			// It may have lapsed, or the server may have lost it. Finding it still
			// there renews nothing; the next request does.
			err = l.create(ctx)
		}
		if errors.Is(err, jetstream.ErrConsumerExists) {
			l.drop()
			return fmt.Errorf("%w: %q was taken over while this process could not reach the server", ErrInUse, l.c.o.Durable)
		}
		l.c.log.DebugContext(ctx, "lease of the durable was not renewed", slog.Any("err", err))
		if pause(ctx, leaseRetry) != nil {
			return nil
		}
	}
}

// pull lets a request wait at the server. Its answer, that there is nothing, says
// that the lease was alive when the request came.
func (l *lease) pull(ctx context.Context) error {
	ctx, cancel := bounded(ctx, leaseTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"batch":1,"expires":%d}`, leasePull.Nanoseconds())
	reply, err := l.c.js.Conn().RequestWithContext(ctx, bus.APIPrefix(l.c.js)+"CONSUMER.MSG.NEXT."+l.c.stream+"."+l.name, []byte(body))
	if err != nil {
		return err
	}
	// 408 is the end of the waiting. A message under the subject is foreign, but
	// an answer as well.
	if status := reply.Header.Get("Status"); status != "408" && status != "404" && status != "" {
		return fmt.Errorf("status %s %s", status, reply.Header.Get("Description"))
	}
	return nil
}

// confirm returns jetstream.ErrConsumerExists if the lease is another's.
func (l *lease) confirm(ctx context.Context) error {
	ctx, cancel := bounded(ctx, leaseTimeout)
	defer cancel()
	there, err := l.c.js.Consumer(ctx, l.c.stream, l.name)
	if err == nil && there.CachedInfo().Config.Description != l.holder {
		err = jetstream.ErrConsumerExists
	}
	return err
}

// held reports whether the lease can not have lapsed yet.
func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

func (l *lease) extend(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = sent.Add(leaseTTL)
}

func (l *lease) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Time{}
}

// release gives the lease back, so that the next process need not wait.
func (l *lease) release() {
	if !l.held() || !l.c.js.Conn().IsConnected() {
		return // it may be another's by now; ours lapses
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.c.js.DeleteConsumer(ctx, l.c.stream, l.name)
}
