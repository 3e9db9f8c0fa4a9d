package materializer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// A program of its own runs a materializer beside its server, as skald serve does:
// streams, store, materializer. Recovery is the normal path, so there is nothing to
// do after a crash but this again.
func Example() {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	dir, err := os.MkdirTemp("", "skald-example-")
	must(err)
	defer os.RemoveAll(dir)
	server, err := natsd.Start(ctx, natsd.Options{Dir: filepath.Join(dir, "jetstream"), Listen: "127.0.0.1:0"})
	must(err)
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(err)

	subjects, err := bus.NewSubjects("")
	must(err)
	st, err := store.Open(filepath.Join(dir, "skald.db"), store.Options{})
	must(err)
	defer st.Close()
	known, err := st.Bus(ctx)
	must(err)
	streams, err := subjects.Open(ctx, js, bus.StreamOptions{MaxPayload: nc.MaxPayload(), IngestBytes: 64 << 20}, known.Epoch)
	must(err)
	must(st.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}))
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: subjects})
	must(err)
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(running) }()

	key := bus.Key{Workspace: "acme", Session: "build 7"}
	hint, err := nc.SubscribeSync(subjects.Done(key))
	must(err)
	_, err = js.Publish(ctx, subjects.Ingest(key, bus.ClassError), []byte(`{"message":"no space","recorded_at_ms":7}`))
	must(err)
	_, err = hint.NextMsgWithContext(ctx) // it is committed
	must(err)
	page, err := st.Reader().Page(ctx, store.PageQuery{After: &bus.Cursor{}, Limit: 10})
	must(err)
	for _, ev := range page.Events {
		fmt.Println(ev.Seq, ev.Type, string(ev.Data))
	}
	end()
	fmt.Println("ended:", <-ended)
	// Output:
	// 1 error {"message":"no space","command_id":null}
	// ended: <nil>
}
