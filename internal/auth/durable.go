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

// Ensure makes the JetStream consumers of the description's readers that are missing,
// on behalf of a materializer, and returns their names. Readers can not make them: who
// may make a consumer may have it push to any subject of the account, other tenants'
// included. One that is there is checked and left: ErrDurable names what differs.
func Ensure(ctx context.Context, js jetstream.JetStream, d *Description) (made []string, err error) {
	stream := d.subjects.EventsStream()
	for i := range d.Workspaces {
		w := &d.Workspaces[i]
		filter := d.subjects.Prefix() + ".ev." + w.token + ".*.*"
		for _, r := range w.Readers {
			for _, durable := range r.Durables {
				name := w.Durable(durable)
				there, err := js.Consumer(ctx, stream, name)
				if errors.Is(err, jetstream.ErrConsumerNotFound) {
					_, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
						Durable: name, Description: "reader " + r.Name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
						AckWait: ackWait, DeliverPolicy: jetstream.DeliverAllPolicy, MaxDeliver: -1,
					})
					if err == nil {
						made = append(made, name)
						continue
					}
				}
				if err == nil {
					err = differs(there.CachedInfo().Config, filter)
				}
				if err != nil {
					return made, fmt.Errorf("make durable %s of reader %s: %w", name, r.Name, err)
				}
			}
		}
	}
	return made, nil
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
