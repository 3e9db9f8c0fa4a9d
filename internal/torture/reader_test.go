//go:build linux

package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// reader follows the facts from the beginning with one cursor, whatever happens to
// the servers. Only its own goroutine writes what it has, until it has ended.
type reader struct {
	name      string
	workspace string           // "" for all
	link      *skaldtest.Proxy // to NATS
	rng       *rand.Rand
	cursor    uint64
	rows      []uint64 // numbers, in the order they came
	cancel    context.CancelFunc
	done      chan struct{}
}

// makeReaders starts readers of every kind.
func (f *fleet) makeReaders() {
	for i, kind := range []struct {
		name string
		run  func(context.Context, *reader) error
	}{
		{"pages over HTTP", f.readPages},
		{"pages over HTTP of a workspace", f.readPages},
		{"pages over NATS", f.readService},
		{"consumer", f.readConsumer},
		{"consumer of a workspace", f.readConsumer},
		{"durable consumer, restarted", f.readDurable},
		{"follow", f.readFollow},
		{"server-sent events", f.readStream},
		{"server-sent events of a workspace", f.readStream},
	} {
		ctx, cancel := context.WithCancel(f.ctx)
		r := &reader{name: kind.name, link: f.proxy(), rng: rand.New(rand.NewPCG(f.seed, uint64(100+i))), cancel: cancel, done: make(chan struct{})}
		if i == 1 || i == 4 || i == 8 {
			r.workspace = "ws.1"
		}
		f.readers = append(f.readers, r)
		go func() {
			defer close(r.done)
			if err := kind.run(ctx, r); err != nil && ctx.Err() == nil {
				f.broken("reader %s, cursor %d: %v", r.name, r.cursor, err)
			}
		}()
	}
}

// take enters a row that a reader was given.
func (f *fleet) take(r *reader, text []byte) error {
	got, err := parseRow(text)
	switch {
	case err != nil:
		return fmt.Errorf("row %q: %w", text, err)
	case got.Seq <= r.cursor:
		return fmt.Errorf("number %d came behind the cursor", got.Seq)
	case r.workspace != "" && got.Workspace != r.workspace:
		return fmt.Errorf("number %d is of workspace %s", got.Seq, got.Workspace)
	}
	f.ledger.see(r.name, got, text)
	r.cursor = got.Seq
	r.rows = append(r.rows, got.Seq)
	return nil
}

// page is an answer as all doors give it.
type page struct {
	Events []json.RawMessage `json:"events"`
	Next   uint64            `json:"next_after_seq"`
	Latest uint64            `json:"latest_seq"`
	Code   string            `json:"code"`
	Error  string            `json:"error"`
}

// takePage enters a page, or an answer that is none.
func (f *fleet) takePage(r *reader, body []byte) error {
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("page %q: %w", body, err)
	}
	switch {
	case p.Code == "":
	case p.Code == "behind", p.Code == "unavailable", f.pastItsEnd(p):
		return nil
	default:
		return fmt.Errorf("refused: %s: %s", p.Code, p.Error)
	}
	if p.Next < r.cursor {
		return fmt.Errorf("the next cursor is %d", p.Next)
	}
	for _, e := range p.Events {
		if err := f.take(r, e); err != nil {
			return err
		}
	}
	r.cursor = p.Next
	return nil
}

// pastItsEnd reports whether a reader is refused since EVENTS has lost its end, which
// another store than the one that was asked is about to put back.
func (f *fleet) pastItsEnd(p page) bool { return p.Code == "cursor_ahead" && f.ledger.hasLost() }

// readPages polls one store or another over HTTP, with the same cursor.
func (f *fleet) readPages(ctx context.Context, r *reader) error {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.rng.IntN(20)) * time.Millisecond)
		s := f.anyStore(r.rng)
		q := url.Values{"after_seq": {strconv.FormatUint(r.cursor, 10)}, "limit": {strconv.Itoa(1 + r.rng.IntN(300))}}
		if r.workspace != "" {
			q.Set("workspace_id", r.workspace)
		}
		resp, err := f.http.Get(s.url("/api/v1/events?" + q.Encode()))
		if err != nil {
			continue // it is down
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			continue // it went down
		}
		if err := f.takePage(r, body); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// connect connects a reader through the proxy of its own.
func (r *reader) connect() (*nats.Conn, error) {
	return nats.Connect(r.link.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2))
}

// open connects for what package consumer needs. The caller closes the connection.
func (r *reader) open() (jetstream.JetStream, bus.Subjects, error) {
	subjects, err := bus.NewSubjects("")
	if err != nil {
		return nil, subjects, err
	}
	nc, err := r.connect()
	if err != nil {
		return nil, subjects, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
	}
	return js, subjects, err
}

// readService pages over NATS, answered by whichever store takes the request.
func (f *fleet) readService(ctx context.Context, r *reader) error {
	nc, err := r.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.rng.IntN(20)) * time.Millisecond)
		m, err := nc.Request("skald.op.events", fmt.Appendf(nil, `{"after_seq":%d,"limit":%d}`, r.cursor, 1+r.rng.IntN(300)), 2*time.Second)
		if err != nil {
			continue
		}
		if err := f.takePage(r, m.Data); err != nil {
			return err
		}
	}
	return nil
}

// readConsumer reads with package consumer, from one run to the end.
func (f *fleet) readConsumer(ctx context.Context, r *reader) error {
	for ctx.Err() == nil {
		if err := f.consume(ctx, r, "", func(uint64) bool { return false }); err != nil {
			return err
		}
	}
	return nil
}

// readDurable reads with a durable that it leaves every now and then without a word
// of where it is.
func (f *fleet) readDurable(ctx context.Context, r *reader) error {
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond) // before it tries again
		most := uint64(50 + r.rng.IntN(2000))
		if err := f.consume(ctx, r, "torture", func(n uint64) bool { return n > most }); err != nil {
			return err
		}
	}
	return nil
}

// consume runs a consumer until enough says so.
func (f *fleet) consume(ctx context.Context, r *reader, durable string, enough func(taken uint64) bool) error {
	js, subjects, err := r.open()
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	o := consumer.Options{Subjects: subjects, Durable: durable, Workspace: r.workspace}
	if durable == "" {
		o.From = &bus.Cursor{Seq: r.cursor}
	}
	c, err := consumer.New(js, o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var taken uint64
	err = c.Run(ctx, func(_ context.Context, ev bus.Event) error {
		text := ev.AppendJSON(nil)
		if durable != "" && ev.Seq <= r.cursor {
			return nil // it was handled, and left before that was noted
		}
		if taken++; enough(taken) {
			stop()
		}
		return f.take(r, text)
	})
	if f.passing(err) {
		err = nil
	}
	return err
}

// passing reports whether a reader's error passes by itself: EVENTS is missing while it
// is repaired, and then it is another stream with the same numbers; it has lost its end,
// which is put back, and the error says so; and a durable that was left while its
// connection was cut is its own until its lease has ended.
func (f *fleet) passing(err error) bool {
	return errors.Is(err, bus.ErrCursorAhead) && f.ledger.hasLost() || errors.Is(err, consumer.ErrInUse) || errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrStreamMissing) || errors.Is(err, consumer.ErrStreamReplaced)
}
