package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher"
)

// With an outbox a worker goes on without a server. What it has said is on disk when the
// call returns, and the next process with the same directory delivers it.
func ExamplePublisher_outbox() {
	dir, err := os.MkdirTemp("", "skald-outbox-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	key := bus.Key{Workspace: "demo", Session: "three"}
	worker := func(url string, do func(p *publisher.Publisher, s *publisher.Session)) {
		nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
		if err != nil {
			log.Fatal(err)
		}
		defer nc.Close()
		p, err := publisher.New(nc, publisher.Options{Outbox: dir})
		if err != nil {
			log.Fatal(err)
		}
		s, err := p.Session(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		do(p, s)
	}

	worker("nats://127.0.0.1:1", func(p *publisher.Publisher, s *publisher.Session) { // nobody listens there
		_, err := s.Observe(ctx, []byte(`{"type":"notice","data":{"message":"hello"}}`), publisher.ObserveOptions{})
		fmt.Println("kept:", err)
		var unconfirmed *publisher.UnconfirmedError
		if errors.As(p.Close(ctx), &unconfirmed) {
			fmt.Println("to be sent by the next process:", unconfirmed.Sessions[0].Messages)
		}
	})

	url, stop := exampleBus()
	defer stop()
	worker(url, func(p *publisher.Publisher, s *publisher.Session) {
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		r, err := s.Error(ctx, "and goodbye", "")
		if err == nil {
			_, err = r.Materialized(ctx)
		}
		fmt.Println("materialized, and what was kept before it:", err)
		fmt.Println("closed:", p.Close(ctx), <-ended, "at event", s.Position().Ordinal)
	})
	// Output:
	// kept: <nil>
	// to be sent by the next process: 1
	// materialized, and what was kept before it: <nil>
	// closed: <nil> <nil> at event 1
}
