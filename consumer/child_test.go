package consumer_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// The environment of a process that reads until it is killed: its durable, and the
// server. It writes a line for each event.
const (
	envChild  = "SKALD_TEST_CONSUMER_DURABLE"
	envServer = "SKALD_TEST_CONSUMER_SERVER"
)

func child() int {
	err := func() error {
		nc, err := nats.Connect(os.Getenv(envServer), nats.MaxReconnects(-1), nats.Timeout(skaldtest.Timeout))
		if err != nil {
			return err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		subj, err := bus.NewSubjects("")
		if err != nil {
			return err
		}
		c, err := consumer.New(js, consumer.Options{Subjects: subj, Durable: os.Getenv(envChild)})
		if err != nil {
			return err
		}
		return c.Run(context.Background(), func(_ context.Context, ev bus.Event) error {
			_, err := fmt.Println(ev.Seq)
			return err
		})
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}
