package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

// outcomePoll is how long is waited before the outcome is asked for again.
const outcomePoll = 50 * time.Millisecond

// control is a message from an operator to a session, whose outcome is waited
// for. Commands that send one share its flags.
type control struct {
	at        natsFlags
	workspace string
	wait      time.Duration
}

func (c *control) add(f *pflag.FlagSet) {
	f.StringVar(&c.workspace, "workspace", "", "the workspace's `id` (required)")
	f.DurationVar(&c.wait, "wait", 10*time.Second, "how long to wait for the outcome")
	c.at.add(f)
}

// message returns the message to send.
func (c *control) message(session string, body []byte) (message, error) {
	if c.workspace == "" {
		return message{}, usage("--workspace: is missing")
	}
	if c.wait < 0 {
		return message{}, usage("--wait: must not be negative")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return message{}, fmt.Errorf("make event id: %w", err)
	}
	m := message{
		key: bus.Key{Workspace: c.workspace, Session: session}, class: bus.ClassControl, eventID: id.String(), body: body,
	}
	if err := m.check(1 << 20); err != nil {
		return message{}, usage("%w", err)
	}
	return m, nil
}

// send publishes the message and waits until the store has taken it. The outcome
// holds once the store's INGEST position has reached the message.
func (c *control) send(ctx context.Context, conn *target.NATS, m message) (o target.Outcome, err error) {
	s, err := newSender(env{}, conn, publishOptions{wait: waitStored})
	if err != nil {
		return o, err
	}
	_, stored, err := s.send(ctx, m)
	if err = s.give(err); err != nil {
		return o, err
	}
	seq := stored.IngestSeq
	cause := fmt.Errorf("it is stored as message %d of INGEST, but was not applied within %s; it will be: %w", seq, c.wait, bus.ErrUnavailable)
	ctx, cancel := context.WithTimeoutCause(ctx, c.wait, cause)
	defer cancel()
	for {
		body, err := conn.Outcome(ctx, m.key, m.eventID)
		if err == nil {
			if o, err = target.ParseOutcome(body); err == nil && o.IngestPosition >= seq {
				return o, nil
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, bus.ErrUnavailable) {
			return o, fmt.Errorf("ask for the outcome: %w", err)
		}
		t := time.NewTimer(outcomePoll)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if err != nil {
				return o, errors.Join(context.Cause(ctx), err)
			}
			return o, context.Cause(ctx)
		}
	}
}

// refused is the error for an outcome that is not what was wanted.
func refused(what string, o target.Outcome) error {
	if o.Outcome == api.OutcomeRejected {
		return fmt.Errorf("%s: rejected: %s: %s", what, o.Reason, o.Detail)
	}
	return fmt.Errorf("%s: its outcome is %s", what, o.Outcome)
}
