package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// exampleBus starts a bus on which a worker has said three things, as skald serve
// and a publisher would; done stops it.
func exampleBus() (js jetstream.JetStream, subjects bus.Subjects, done func()) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "skald-example")
	must(err)
	server, err := natsd.Start(ctx, natsd.Options{Dir: filepath.Join(dir, "jetstream"), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	must(err)
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(skaldtest.Timeout))
	must(err)
	js, err = jetstream.New(nc)
	must(err)
	subjects, err = bus.NewSubjects("")
	must(err)
	streams, err := subjects.Open(ctx, js, bus.StreamOptions{MaxPayload: nc.MaxPayload(), IngestBytes: 1 << 20}, "")
	must(err)
	st, err := store.Open(filepath.Join(dir, "skald.db"), store.Options{})
	must(err)
	must(st.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}))
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: subjects})
	must(err)
	ends := func(ctx context.Context) (api.Ends, error) {
		info, err := streams.Events.Info(ctx)
		if err != nil {
			return api.Ends{}, err
		}
		return api.Ends{EventsLast: info.State.LastSeq}, nil
	}
	answers := service.New(service.Options{API: api.New(api.Options{Reader: st.Reader(), Ends: ends}), Conn: nc, Subjects: subjects, Version: "0.0.0"})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- m.Run(running) }()
	go func() { ended <- answers.Run(running) }()
	key := bus.Key{Workspace: "acme", Session: "build 7"}
	for _, body := range []string{`{"message":"no space"}`, `{"message":"still no space"}`, `{"message":"gave up"}`} {
		_, err := js.Publish(ctx, subjects.Ingest(key, bus.ClassError), []byte(body))
		must(err)
	}
	return js, subjects, func() {
		stop()
		must(<-ended)
		must(<-ended)
		must(st.Close())
		nc.Close()
		server.Shutdown()
		must(os.RemoveAll(dir))
	}
}

// A durable reads a workspace. Its handler fails at the second event; the next Run,
// here as in another process, goes on with that one.
func Example() {
	js, subjects, done := exampleBus()
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()

	errBusy := errors.New("the pager is busy")
	busy := true
	for range 2 {
		c, err := consumer.New(js, consumer.Options{Subjects: subjects, Workspace: "acme", Durable: "pager"})
		if err != nil {
			fmt.Println(err)
			return
		}
		err = c.Run(ctx, func(_ context.Context, ev bus.Event) error {
			if ev.Seq == 2 && busy {
				busy = false
				return errBusy
			}
			fmt.Printf("%d %s %s %s\n", ev.Seq, ev.Session, ev.Type, ev.Data)
			if ev.Seq == 3 {
				stop()
			}
			return nil
		})
		fmt.Println("ended:", err)
	}
	// Output:
	// 1 build 7 error {"message":"no space","command_id":null}
	// ended: handle event 2: the pager is busy
	// 2 build 7 error {"message":"still no space","command_id":null}
	// 3 build 7 error {"message":"gave up","command_id":null}
	// ended: <nil>
}

// A reader that saves the cursor with its own work has each event's effect exactly
// once: here the work is a sum, and a struct stands for the transaction.
func ExampleOptions_from() {
	js, subjects, done := exampleBus()
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()

	var saved struct {
		cursor bus.Cursor
		errors int
	}
	for saved.cursor.Seq < 3 {
		c, err := consumer.New(js, consumer.Options{Subjects: subjects, From: &saved.cursor, Types: []string{bus.TypeError}})
		if err != nil {
			fmt.Println(err)
			return
		}
		run, crash := context.WithCancel(ctx)
		err = c.Run(run, func(_ context.Context, ev bus.Event) error {
			saved.cursor = bus.Cursor{Epoch: c.Cursor().Epoch, Seq: ev.Seq}
			saved.errors++
			crash()
			return errors.New("crashed behind the commit")
		})
		fmt.Println(saved.cursor.Seq, saved.errors, err)
	}
	// Output:
	// 1 1 <nil>
	// 2 2 <nil>
	// 3 3 <nil>
}

// A place that EVENTS does not hold is an error with what it does hold.
func ExampleCursorError() {
	js, subjects, done := exampleBus()
	defer done()

	c, err := consumer.New(js, consumer.Options{Subjects: subjects, From: &bus.Cursor{Seq: 5000}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Run(context.Background(), func(context.Context, bus.Event) error { return nil })
	var at *consumer.CursorError
	fmt.Println(errors.Is(err, bus.ErrCursorAhead), errors.As(err, &at) && at.Cursor.Seq > at.Last)
	// Output:
	// true true
}
