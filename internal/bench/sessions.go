package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/publisher"
)

// openers is how many sessions are opened at a time: each waits a moment for a hint
// that does not come.
const openers = 1000

// AckRate returns how many messages INGEST acknowledges in a second for a publisher
// with so many open sessions on one connection, each with one message in flight. A
// message is one event's page. Rounds of so many messages go on for a second at
// least.
//
// The server does not sync: that would be all that is measured with one session. The
// bus answers positions without a materializer beside it, which would take its share
// of the machine from one more than from the other.
func AckRate(ctx context.Context, dir string, sessions, round int) (_ float64, err error) {
	if dir, err = os.MkdirTemp(dir, "sessions-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := natsd.Start(ctx, natsd.Options{Dir: filepath.Join(dir, "jetstream"), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	if err != nil {
		return 0, err
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	var opened atomic.Bool
	if err := positions(ctx, nc, &opened); err != nil {
		return 0, err
	}
	p, err := publisher.New(nc, publisher.Options{MaxUnmaterializedBytes: 1})
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.WithoutCancel(ctx)) }()
	defer func() { err = errors.Join(err, p.Close(ctx), <-ended) }()
	open, err := openSessions(ctx, p, sessions)
	if err != nil {
		return 0, err
	}
	opened.Store(true)
	messages, start := 0, time.Now()
	for time.Since(start) < time.Second {
		if err := ackRound(ctx, open, round); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
		messages += round
	}
	return rate(messages, time.Since(start)), nil
}

// positions makes the streams and answers who opens a session that it begins, and
// later that nothing is materialized yet.
func positions(ctx context.Context, nc *nats.Conn, opened *atomic.Bool) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	subjects, err := bus.NewSubjects("")
	if err != nil {
		return err
	}
	if _, err := subjects.Open(ctx, js, bus.StreamOptions{MaxPayload: nc.MaxPayload(), IngestBytes: 2 << 30}, ""); err != nil {
		return fmt.Errorf("make streams: %w", err)
	}
	_, err = nc.Subscribe(subjects.Prefix()+".api.*.position.*", func(m *nats.Msg) {
		at := uint64(bus.MaxSeq)
		if opened.Load() {
			at = 0
		}
		m.Respond(fmt.Appendf(nil, `{"frontier":{"ordinal":0,"digest":"%s"},"ingest_position":%d}`, bus.Digest{}, at)) //nolint:errcheck // it asks again
	})
	if err != nil {
		return fmt.Errorf("answer positions: %w", err)
	}
	return nc.Flush()
}

func openSessions(ctx context.Context, p *publisher.Publisher, n int) ([]*publisher.Session, error) {
	open := make([]*publisher.Session, n)
	errs := make([]error, min(n, openers))
	var wg sync.WaitGroup
	for from := range errs {
		wg.Go(func() {
			for i := from; i < n && errs[from] == nil; i += len(errs) {
				open[i], errs[from] = p.Session(ctx, session(i))
			}
		})
	}
	wg.Wait()
	return open, errors.Join(errs...)
}

// ackRound publishes a message in each session in turn, or as many one after the
// other in the one, and waits for the acknowledgements.
func ackRound(ctx context.Context, open []*publisher.Session, round int) error {
	done := []byte(`{"type":"command_completed","data":{"command_id":"c","outcome":{"type":"prompt","data":{"stop_reason":"EndTurn"}}}}`)
	receipts := make([]*publisher.Receipt, 0, round)
	for i := range round {
		r, err := open[i%len(open)].Observe(ctx, done, publisher.ObserveOptions{})
		if err == nil && len(open) == 1 {
			_, err = r.Stored(ctx)
		}
		if err != nil {
			return err
		}
		receipts = append(receipts, r)
	}
	for _, r := range receipts {
		if _, err := r.Stored(ctx); err != nil {
			return err
		}
	}
	return nil
}

// SessionsResult compares the rates of many sessions and of one.
func SessionsResult(sessions int, many, one float64) Result {
	return Result{
		Figure: "sessions", Case: fmt.Sprintf("%d open", sessions), Measured: many, Baseline: one, Unit: "acks/s",
		BaselineOf: "one open", Bar: Bar{Op: AtLeast, Value: 0.5, OfBaseline: true},
	}
}

func sessionsFigure(ctx context.Context, b *Bench) ([]Result, error) {
	b.note("one open session, then %d on one connection", b.Sizes.Sessions)
	one, err := AckRate(ctx, b.Dir, 1, b.Sizes.Round)
	if err != nil {
		return nil, err
	}
	many, err := AckRate(ctx, b.Dir, b.Sizes.Sessions, b.Sizes.Round)
	if err != nil {
		return nil, err
	}
	return []Result{SessionsResult(b.Sizes.Sessions, many, one)}, nil
}
