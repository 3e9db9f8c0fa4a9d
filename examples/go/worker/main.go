package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher"
)

// turn is what happens in a turn, with its number and a time in ms.
var turn = []string{
	`{"type":"command_queued","data":{"command_id":"c%d","command":{"type":"prompt","data":{"prompt":[]}},"created_at_ms":%d}}`,
	`{"type":"command_started","data":{"command_id":"c%d","started_at_ms":%d}}`,
	`{"type":"command_completed","data":{"command_id":"c%d","outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}},"completed_at_ms":%d}}`,
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: worker NATS-URL OUTBOX-DIRECTORY SESSION TURNS")
	}
	turns, err := strconv.Atoi(os.Args[4])
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The library gives up after about two minutes unless it is told not to.
	nc, err := nats.Connect(os.Args[1], nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	check(err)
	p, err := publisher.New(nc, publisher.Options{Outbox: os.Args[2]})
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	s, err := p.Session(ctx, bus.Key{Workspace: "acme", Session: os.Args[3]})
	check(err)
	// What was accepted before is in the outbox or on the bus: the chain's position says how much.
	for n := int(s.Position().Ordinal); n < len(turn)*turns; n++ {
		_, err := s.Observe(ctx, fmt.Appendf(nil, turn[n%len(turn)], n/len(turn), time.Now().UnixMilli()), publisher.ObserveOptions{})
		check(err)
	}
	check(s.Flush(ctx)) // until all of it is stored; the outbox keeps what is not materialized yet
	check(p.Close(ctx))
	check(<-ended)
	fmt.Println("said", turns, "turns")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
