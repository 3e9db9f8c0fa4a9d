package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher"
)

// A worker opens its session, observes, and waits until that has become facts.
func Example() {
	url, stop := exampleBus() // what `skald serve` does
	defer stop()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	p, err := publisher.New(nc, publisher.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := p.Session(ctx, bus.Key{Workspace: "demo", Session: "one"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("goes on after event", s.Position().Ordinal)
	r, err := s.Observe(ctx, []byte(`{"type":"notice","data":{"message":"hello"}}`), publisher.ObserveOptions{})
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := r.Materialized(ctx)
	fmt.Println("event", outcome.Ordinal, "is materialized:", err)
	fmt.Println("closed:", p.Close(ctx), <-ended)
	// Output:
	// goes on after event 0
	// event 1 is materialized: <nil>
	// closed: <nil> <nil>
}

// On Ctrl-C the context of Run ends: what was accepted is still sent, for a while,
// and what is not confirmed then is named. Nobody has to wait for receipts.
func ExamplePublisher_Run() {
	url, stop := exampleBus()
	defer stop()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	p, err := publisher.New(nc, publisher.Options{StopTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	s, err := p.Session(ctx, bus.Key{Workspace: "demo", Session: "two"})
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 {
		if _, err := s.Observe(ctx, []byte(`{"type":"notice","data":{"message":"tick"}}`), publisher.ObserveOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	interrupt()
	err = <-ended
	var unconfirmed *publisher.UnconfirmedError
	fmt.Println("something is unconfirmed:", errors.As(err, &unconfirmed))
	_, err = s.Error(context.Background(), "too late", "")
	fmt.Println(errors.Is(err, publisher.ErrClosed))
	// Output:
	// something is unconfirmed: false
	// true
}

// A worker that keeps a journal of its own appends from the bus's position on.
func ExampleSession_Append() {
	url, stop := exampleBus()
	defer stop()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	p, err := publisher.New(nc, publisher.Options{})
	if err != nil {
		log.Fatal(err)
	}
	go p.Run(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer p.Close(ctx)
	s, err := p.Session(ctx, bus.Key{Workspace: "demo", Session: "three"})
	if err != nil {
		log.Fatal(err)
	}
	lines := `{"events":[{"format":2,"ordinal":1,"digest":"` + exampleDigest + `","recorded_at_ms":7,"observation":{"type":"closing"}}]}`
	journal, err := bus.ParsePage([]byte(lines))
	if err != nil {
		log.Fatal(err)
	}
	for _, event := range journal.Events {
		if event.Ordinal > s.Position().Ordinal {
			if _, err := s.Append(ctx, event); err != nil {
				log.Fatal(err)
			}
		}
	}
	fmt.Println(s.Flush(ctx), s.Position().Ordinal)
	// Output: <nil> 1
}
