package publisher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// JetStream's error codes that have a name here.
const (
	codeMessageTooLarge  = 10054 // message size exceeds maximum allowed
	codeNoRoom           = 10023 // insufficient resources
	codeNoStorage        = 10047 // insufficient storage resources available
	codeStoreFailed      = 10077 // maximum bytes exceeded, under discard new
	codeNotEnabled       = 10076 // JetStream not enabled
	codeNotEnabledForAcc = 10039 // JetStream not enabled for account
)

// errCameBack: the connection was lost and came back, so that the message may not be
// the next one any more. It was not sent.
var errCameBack = errors.New("the connection has come back meanwhile")

// publish sends a message once and waits for INGEST's acknowledgement. The error
// is one of those of errors.go, or ctx's cause; with a session that has an outbox also
// errCameBack.
func (p *Publisher) publish(ctx context.Context, m nats.Msg, of *Session) (seq uint64, err error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	// Without a connection the client would keep the message and send it later,
	// after the attempt has been given up.
	switch status := p.nc.Status(); status {
	case nats.CONNECTED:
	case nats.CLOSED:
		return 0, fmt.Errorf("publish: %w: %w", ErrClosed, nats.ErrConnectionClosed)
	default:
		return 0, fmt.Errorf("publish: %w: %s", ErrDisconnected, strings.ToLower(status.String()))
	}
	// Asked when there is a connection: one that comes back holds a lock of the
	// client's, and whoever waited for that would send at once.
	if of != nil && of.cameBack() {
		return 0, errCameBack
	}
	before := p.nc.LastError()
	// Tried once: what is tried again has to go through the session's order.
	ack, err := p.js.PublishMsgAsync(&m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, p.explain("publish", m.Subject, err, before)
	}
	look := time.NewTicker(denialPoll)
	defer look.Stop()
	for {
		select {
		case a := <-ack.Ok():
			return a.Sequence, nil
		case err := <-ack.Err():
			return 0, p.explain("publish", m.Subject, err, before)
		case <-look.C:
			// A refusal that was there before may be of an earlier attempt.
			if last := p.nc.LastError(); last != before && denies(last, m.Subject) {
				return 0, fmt.Errorf("publish: %w: %w", ErrNotPermitted, last)
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// explain names what err is. An attempt without an answer is said to be not
// permitted if that is what the connection has heard last, and not before, of this
// subject or of one beside it, since permissions follow workspaces, or at any time of
// where answers go, which is asked for once. before is what it had heard last when the
// attempt began: the client library keeps that until it connects again.
func (p *Publisher) explain(doing, subject string, err, before error) error {
	var refused *jetstream.APIError
	is := ErrRefused
	switch {
	case errors.As(err, &refused):
		switch refused.ErrorCode {
		case codeMessageTooLarge:
			is = ErrTooLarge
		case codeNoRoom, codeNoStorage, codeStoreFailed:
			is = ErrFull
		case codeNotEnabled, codeNotEnabledForAcc:
			is = ErrNoStream
		}
	case errors.Is(err, nats.ErrMaxPayload):
		is = ErrTooLarge
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		is = ErrNoStream
	case errors.Is(err, nats.ErrNoResponders):
		is = ErrNoService
	case errors.Is(err, nats.ErrConnectionClosed):
		is = ErrClosed
	case errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrConnectionDraining):
		is = ErrDisconnected
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout), errors.Is(err, jetstream.ErrTooManyStalledMsgs),
		errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		is = ErrTimeout
		beside := subject[:strings.LastIndexByte(subject, '.')]
		beside = beside[:strings.LastIndexByte(beside, '.')]
		last := p.nc.LastError()
		if last != before && (denies(last, subject) || deniesBelow(last, beside)) || p.deniesAnswers(last) {
			return fmt.Errorf("%s: %w: %w", doing, ErrNotPermitted, last)
		}
	}
	return fmt.Errorf("%s: %w: %w", doing, is, err)
}

// denies reports whether err is the server's refusal to publish to subject. The
// client library passes on the server's sentence, which quotes the subject.
func denies(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Publish to "`+subject+`"`)
}

func deniesBelow(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Publish to "`+subject+`.`)
}

// deniesAnswers reports whether err is the refusal to subscribe to where answers
// are sent.
func (p *Publisher) deniesAnswers(err error) bool {
	inbox := p.nc.Opts.InboxPrefix
	if inbox == "" {
		inbox = nats.InboxPrefix
	}
	return errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), `Subscription to "`+strings.TrimSuffix(inbox, ".")+`.`)
}

// backoff doubles from 50 ms to 2 s, each time half of it by chance, so that many
// sessions do not try at the same time.
type backoff struct{ d time.Duration }

func (b *backoff) next() time.Duration {
	b.d = min(max(2*b.d, 50*time.Millisecond), 2*time.Second)
	return b.d/2 + rand.N(b.d/2+1)
}

func (b *backoff) reset() { b.d = 0 }

// unknownPayload is what a server takes by default, and what is taken to be the limit
// before there was a connection to one.
const unknownPayload = 1 << 20

// MaxBody returns the most bytes that a message's body may have without being ErrTooLarge
// at once. It follows the server that the publisher is connected to.
func (p *Publisher) MaxBody() int {
	most := p.nc.MaxPayload()
	if most == 0 {
		most = unknownPayload
	}
	return int(bus.MaxMessage(most)) - headerReserve
}
