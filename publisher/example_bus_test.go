package publisher_test

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// exampleDigest is the digest of the one event of ExampleSession_Append's journal.
const exampleDigest = "64176b55dc56ad279e46ccad759658e5af3db1a5a80382e98da6fa94d5a59a1b"

// exampleBus starts a bus for an example, which has no test to fail.
func exampleBus() (url string, stop func()) {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "skald-example-")
	must(err)
	server, err := natsd.Start(ctx, natsd.Options{Dir: filepath.Join(dir, "jetstream"), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	must(err)
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(skaldtest.Timeout))
	must(err)
	js, err := jetstream.New(nc)
	must(err)
	subjects, err := bus.NewSubjects("")
	must(err)
	streams, err := subjects.Open(ctx, js, bus.StreamOptions{IngestBytes: skaldtest.IngestBytes, MaxPayload: nc.MaxPayload()}, "")
	must(err)
	st, err := store.Open(filepath.Join(dir, "skald.db"), store.Options{})
	must(err)
	must(st.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}))
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: subjects})
	must(err)
	svc := service.New(service.Options{API: api.New(api.Options{Reader: st.Reader()}), Conn: nc, Subjects: subjects, Version: "1.0.0"})
	done := make(chan error, 2)
	go func() { done <- m.Run(ctx) }()
	go func() { done <- svc.Run(ctx) }()
	return server.ClientURL(), func() {
		cancel()
		must(<-done)
		must(<-done)
		nc.Close()
		must(st.Close())
		server.Shutdown()
		must(os.RemoveAll(dir))
	}
}
