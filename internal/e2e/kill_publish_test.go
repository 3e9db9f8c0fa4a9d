//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

const (
	// ackTimeout is how long a publisher waits before it sends once more.
	ackTimeout = time.Second
	// hasty is how long it waits at most now and then: mostly too short, so that
	// what was stored is sent again also while no process is killed.
	hasty = 3 * time.Millisecond
	// sendPause keeps a publisher whose server is starting from spinning.
	sendPause = 5 * time.Millisecond
)

// connect gives the session a connection of its own, which comes back by itself
// whatever happens to the server.
func (s *session) connect(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Name(s.key.Session), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(10*time.Millisecond, 0),
		nats.ErrorHandler(ignored))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	s.conn = nc
}

// ignored keeps the client from printing what the tries report.
func ignored(*nats.Conn, *nats.Subscription, error) {}

// publish sends message after message until stop is closed. It never leaves one
// that is not acknowledged, unless ctx ends.
func (s *session) publish(ctx context.Context, subjects bus.Subjects, stop <-chan struct{}, acked func()) error {
	for {
		if closed(stop) && len(s.queue) == 0 { // a page that is held is to find its predecessor
			return nil
		}
		if err := s.send(ctx, subjects, s.next()); err != nil {
			return err
		}
		acked()
	}
}

// send sends the message, the same bytes each time, until it is acknowledged.
func (s *session) send(ctx context.Context, subjects bus.Subjects, m *message) error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	msg := &nats.Msg{Subject: subjects.Ingest(s.key, m.class), Header: m.header, Data: m.body}
	for {
		m.tries++
		wait := ackTimeout
		if m.tries == 1 && s.nerves.IntN(20) == 0 {
			wait = time.Duration(s.nerves.Int64N(int64(hasty)))
		}
		ack, err := try(ctx, s.conn, js, msg, wait)
		switch {
		case err == nil && (ack.Stream != subjects.IngestStream() || ack.Sequence == 0 || ack.Duplicate):
			return fmt.Errorf("publish %s message %d: acknowledged as %+v", s.key, m.number, ack)
		case err == nil:
			m.ack = ack.Sequence
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("publish %s message %d, try %d: %w", s.key, m.number, m.tries, errors.Join(context.Cause(ctx), m.last))
		}
		m.last = err
		_ = pause(ctx, sendPause) // the next try tells of ctx's end
	}
}

// errLostConnection ends a try: whether the message was stored nobody knows.
var errLostConnection = errors.New("the connection was lost")

// try sends the message once and waits for the acknowledgement, or for the loss of
// the connection. While there is none the client keeps the message and sends it
// when it has one: then an older try and the next one both arrive.
func try(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, msg *nats.Msg, wait time.Duration) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no acknowledgement within %s", wait))
	defer cancel()
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	lost := nc.StatusChanged(nats.RECONNECTING)
	defer nc.RemoveStatusListener(lost)
	go func() {
		select {
		case <-lost:
			lose(errLostConnection)
		case <-ctx.Done():
		}
	}()
	ack, err := js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return ack, err
}
