package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// ackWait is how long a reader has for a message before it comes again.
const ackWait = 30 * time.Second

// ErrDurable: a JetStream consumer has a reader's name and not its settings.
var ErrDurable = errors.New("durable differs")

// answerTimeout is how long one question to the server may take. A cluster that forms its
// routes anew can lose an answer; the same question again is harmless, and is answered.
const answerTimeout = 3 * time.Second

// Ensure makes the JetStream consumers of the description's readers that are missing,
// on behalf of a materializer, and returns their names. Readers can not make them: who
// may make a consumer may have it push to any subject of the account, other tenants'
// included. One that is there is checked and left: ErrDurable names what differs. It asks
// again where no answer comes, until ctx ends; then the error is ctx's.
func Ensure(ctx context.Context, js jetstream.JetStream, d *Description) (made []string, err error) {
	for i := range d.Workspaces {
		w := &d.Workspaces[i]
		for _, r := range w.Readers {
			for _, durable := range r.Durables {
				c := jetstream.ConsumerConfig{
					Durable: w.Durable(durable), Description: "reader " + r.Name,
					FilterSubject: d.subjects.Prefix() + ".ev." + w.token + ".*.*",
					AckPolicy:     jetstream.AckExplicitPolicy, AckWait: ackWait, DeliverPolicy: jetstream.DeliverAllPolicy, MaxDeliver: -1,
				}
				missing, err := ensure(ctx, js, d.subjects.EventsStream(), c)
				if err != nil {
					return made, fmt.Errorf("make durable %s of reader %s: %w", c.Durable, r.Name, err)
				}
				if missing {
					made = append(made, c.Durable)
				}
			}
		}
	}
	return made, nil
}

// ensure makes one consumer, or checks it. An answer that was lost may have been that it
// is made, so that missing says what the first answer said.
func ensure(ctx context.Context, js jetstream.JetStream, stream string, c jetstream.ConsumerConfig) (missing bool, err error) {
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			there, err := js.Consumer(ctx, stream, c.Durable)
			if errors.Is(err, jetstream.ErrConsumerNotFound) {
				missing = true
				there, err = js.CreateConsumer(ctx, stream, c)
			}
			if err != nil {
				return err
			}
			return differs(there.CachedInfo().Config, c.FilterSubject)
		}()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return missing, err
		}
	}
}

func differs(c jetstream.ConsumerConfig, filter string) error {
	switch {
	case c.FilterSubject != filter || len(c.FilterSubjects) > 0:
		return fmt.Errorf("%w: filter is %q, must be %q", ErrDurable, c.FilterSubject, filter)
	case c.DeliverSubject != "":
		return fmt.Errorf("%w: it pushes to %s, must be pulled from", ErrDurable, c.DeliverSubject)
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("%w: ack policy is %s, must be explicit", ErrDurable, c.AckPolicy)
	}
	return nil
}

// Subjects returns those of the described bus.
func (d *Description) Subjects() bus.Subjects { return d.subjects }
