//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

type proxied = skaldtest.Proxy

// clients is a server with publishers and consumers at work.
type clients struct {
	t            *testing.T
	rng          *rand.Rand // of the test's own goroutine
	dir, at, web string
	s            *server
	links        []*proxied
	said         []*said
	read         []*reading
	publishers   []*publisher.Publisher

	stop     chan struct{} // closed when publishers have said enough
	speaking sync.WaitGroup
	reading  sync.WaitGroup
	ctx      context.Context // of all that run; ends last
	cancel   context.CancelFunc
}

func newClients(t *testing.T, seed uint64) *clients {
	w := &clients{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), at: skaldtest.FreeAddress(t), web: skaldtest.FreeAddress(t), stop: make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.start()
	return w
}

// end stops all that runs, before its connections and the server end with the test.
func (w *clients) end() {
	w.cancel()
	w.speaking.Wait()
	w.reading.Wait()
}

func (w *clients) note(format string, args ...any) { w.t.Logf(format, args...) }

func (w *clients) start() {
	w.t.Helper()
	w.s = serveAt(w.t, w.dir, w.at, w.web)
}

// connect returns a connection through a proxy of its own.
func (w *clients) connect() *nats.Conn {
	w.t.Helper()
	p := skaldtest.NewProxy(w.t, w.at)
	w.links = append(w.links, p)
	nc, err := nats.Connect(p.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.Timeout(time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	return nc
}

// said is what one publisher says in one session, and what it was told of it.
type said struct {
	name string

	mu      sync.Mutex
	applied []string // in the order in which it was said
	err     error
}

// publisher starts a publisher on a connection of its own.
func (w *clients) publisher() *publisher.Publisher {
	w.t.Helper()
	p, err := publisher.New(w.connect(), publisher.Options{AckTimeout: time.Second})
	require.NoError(w.t, err)
	w.publishers = append(w.publishers, p)
	w.reading.Go(func() { p.Run(w.ctx) }) //nolint:errcheck // what it could not send, its receipts tell
	return p
}

// publish says things in a session until it is enough, and waits for each receipt.
func (w *clients) publish(p *publisher.Publisher, k bus.Key) {
	w.t.Helper()
	s := &said{name: fmt.Sprintf("publisher %d in %s/%s", len(w.publishers), k.Workspace, k.Session)}
	w.said = append(w.said, s)
	rng, number := w.rngOf(), len(w.said)
	chain := k.Session != "shared" // two workers on one chain would fork it
	w.speaking.Go(func() {
		err := func() error {
			session, err := p.Session(w.ctx, k)
			if err != nil {
				return err
			}
			type sent struct {
				text    string
				receipt *publisher.Receipt
			}
			var all []sent
			for n := 0; !w.enough(); n++ {
				text := fmt.Sprintf("%d-%d", number, n)
				r, err := say(w.ctx, session, rng, text, chain)
				if err != nil {
					return err
				}
				if r != nil {
					all = append(all, sent{text, r})
				}
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond) // a worker's pace
			}
			for _, x := range all {
				if _, err := x.receipt.Materialized(w.ctx); err != nil {
					return fmt.Errorf("%s: %w", x.text, err)
				}
				s.mu.Lock()
				s.applied = append(s.applied, x.text)
				s.mu.Unlock()
			}
			return nil
		}()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	})
}

// say says one thing. Its text comes back in the fact, between marks.
func say(ctx context.Context, s *publisher.Session, rng *rand.Rand, text string, chain bool) (*publisher.Receipt, error) {
	marked := "<<" + text + ">>"
	switch n := rng.IntN(4); {
	case n == 0:
		return s.Activity(ctx, fmt.Appendf(nil, `{"state":%q}`, marked))
	case n == 1 && chain:
		for _, o := range []string{
			`{"type":"command_queued","data":{"command_id":%q,"command":{"type":"prompt","data":{"prompt":[]}},"created_at_ms":1}}`,
			`{"type":"command_started","data":{"command_id":%q,"started_at_ms":1}}`,
		} {
			if _, err := s.Observe(ctx, fmt.Appendf(nil, o, marked), publisher.ObserveOptions{}); err != nil {
				return nil, err
			}
		}
		return s.Observe(ctx, fmt.Appendf(nil, `{"type":"command_completed","data":{"command_id":%q,"outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}}}}`, marked), publisher.ObserveOptions{})
	}
	return s.Error(ctx, marked, "")
}

func (w *clients) enough() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// consuming is how a reader behaves.
type consuming struct{ slow, fails bool }

// reading is one reader and what it was given.
type reading struct {
	o consumer.Options

	mu   sync.Mutex
	rows []string
	at   uint64 // the number of the last one
}

// wants reports whether a row is in the reader's filter.
func (r *reading) wants(row string) bool {
	var ev struct {
		Workspace string `json:"workspace_id"`
		Session   string `json:"session_id"`
		Type      string `json:"type"`
	}
	return json.Unmarshal([]byte(row), &ev) == nil &&
		(r.o.Workspace == "" || r.o.Workspace == ev.Workspace) &&
		(r.o.Session == "" || r.o.Session == ev.Session) &&
		(len(r.o.Types) == 0 || slices.Contains(r.o.Types, ev.Type))
}

func (r *reading) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

var errHandler = errors.New("the handler does not want to")

// consume reads to the end of the test. After an error of the handler it begins again
// where the durable or the cursor says.
func (w *clients) consume(o consumer.Options, how consuming) {
	w.t.Helper()
	nc := w.connect()
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	o.Subjects, err = bus.NewSubjects("")
	require.NoError(w.t, err)
	r := &reading{o: o}
	w.read = append(w.read, r)
	rng := w.rngOf()
	w.reading.Go(func() {
		for w.ctx.Err() == nil {
			c, err := consumer.New(js, o)
			if err == nil {
				err = c.Run(w.ctx, func(_ context.Context, ev bus.Event) error {
					if how.slow && rng.IntN(20) == 0 {
						time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
					}
					if how.fails && rng.IntN(100) == 0 {
						return errHandler
					}
					r.mu.Lock()
					defer r.mu.Unlock()
					if ev.Seq <= r.at && o.Durable != "" && how.fails {
						return nil // the durable was deleted while nobody read, and its position with it
					}
					r.at = ev.Seq
					r.rows = append(r.rows, string(ev.AppendJSON(nil)))
					return nil
				})
			}
			if err != nil && !errors.Is(err, errHandler) {
				w.t.Errorf("consumer %+v: %v", o, err)
				return
			}
			if o.Durable == "" && w.ctx.Err() == nil {
				at := c.Cursor()
				o.From = &at
			}
		}
	})
}

// finish lets the publishers come to their end, and the readers to the table's.
func (w *clients) finish() {
	w.t.Helper()
	close(w.stop)
	done := make(chan struct{})
	go func() {
		w.speaking.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * patience):
		w.cancel()
		<-done
	}
	for _, s := range w.said {
		require.NoError(w.t, s.err, s.name)
	}
	rows := append(w.s.same(w.t, "w0"), w.s.same(w.t, "w1")...)
	for _, r := range w.read {
		var end uint64
		for _, row := range rows {
			if r.wants(row) {
				end = max(end, seqOf(row))
			}
		}
		skaldtest.Eventually(w.t, patience, func() bool { return r.last() >= end }, "%+v", r.o)
	}
}

// seqOf is a row's number, 0 if it is none.
func seqOf(row string) uint64 {
	ev, err := bus.ParseEvent([]byte(row))
	if err != nil {
		return 0
	}
	return ev.Seq
}
