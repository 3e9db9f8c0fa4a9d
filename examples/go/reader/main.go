package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: reader NATS-URL CURSOR-FILE WORKSPACE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The library gives up after about two minutes unless it is told not to.
	nc, err := nats.Connect(os.Args[1], nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	subjects, err := bus.NewSubjects("") // the bus's name, skald unless serve says otherwise
	check(err)
	f, err := consumer.Follow(js, consumer.FollowOptions{
		Subjects: subjects, Workspace: os.Args[3],
		From: &bus.Cursor{}, Store: consumer.NewFileCursor(os.Args[2]), Logger: slog.Default(),
	})
	check(err)
	for ev, err := range f.Events(ctx) {
		check(err)
		fmt.Printf("%s\n", ev.AppendJSON(nil)) // a killed reader shows the last ones again
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
