package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// latencySessions is how many sessions the open loop goes over.
const latencySessions = 100

// turns is how often the two ways take turns, so that what disturbs the machine
// disturbs both.
const turns = 6

// openLoop publishes messages at fixed times, whatever became of the ones before, and
// knows when each should have been sent and when it arrived.
type openLoop struct {
	n     int // of all slices
	every time.Duration
	js    jetstream.JetStream

	mu      sync.Mutex
	begin   time.Time       // when the slice's first one is to be sent
	first   int             // of the slice
	arrived []time.Duration // after the intended time; 0 while it has not come
	missing int             // of the slice
	all     chan struct{}   // closed when all of the slice have come
	err     error           // something came that should not have
}

func (b *Bench) newOpenLoop(nc *nats.Conn) (*openLoop, error) {
	n := b.Sizes.LatencyRate * int((b.Sizes.LatencyFor + b.Sizes.LatencyFor/(turns-1)).Milliseconds()) / 1000
	// Nothing may hold back an open loop, so the bound of what is pending is all.
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(n))
	return &openLoop{n: n, every: time.Second / time.Duration(b.Sizes.LatencyRate), js: js, arrived: make([]time.Duration, n)}, err
}

func (l *openLoop) intended(i int) time.Time {
	return l.begin.Add(time.Duration(i-l.first) * l.every)
}

// came notes that the message with this body has arrived.
func (l *openLoop) came(body []byte, now time.Time) {
	_, rest, ok := bytes.Cut(body, []byte(`"message":"`))
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	i, err := strconv.Atoi(string(digits))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !ok || err != nil || i >= l.n:
		l.err = fmt.Errorf("a message came that nobody sent: %.80s", body)
	case l.arrived[i] != 0:
		l.err = fmt.Errorf("message %d came twice", i)
	default:
		l.arrived[i] = now.Sub(l.intended(i))
		if l.missing--; l.missing == 0 {
			close(l.all)
		}
	}
}

// send publishes a slice, waits until all of it has arrived, and returns an error if
// anything else has.
func (l *openLoop) send(ctx context.Context, slice int, subjects bus.Subjects) error {
	from, to := l.n*slice/turns, l.n*(slice+1)/turns
	msgs := make([]*nats.Msg, 0, to-from)
	for i := from; i < to; i++ {
		msgs = append(msgs, message(subjects, ByCount, i, latencySessions))
	}
	l.mu.Lock()
	l.begin, l.first, l.missing, l.all = time.Now().Add(50*time.Millisecond), from, to-from, make(chan struct{})
	l.mu.Unlock()
	for i, m := range msgs {
		if d := time.Until(l.intended(from + i)); d > 0 {
			time.Sleep(d) // the next one's time
		}
		if _, err := l.js.PublishMsgAsync(m); err != nil {
			return fmt.Errorf("publish at a fixed rate: %w", err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("messages are missing after 30s"))
	defer cancel()
	select {
	case <-l.all:
	case <-ctx.Done():
		return fmt.Errorf("publish at a fixed rate: %w", context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// percentile returns a percentile of what came in all slices but the first, in ms.
func (l *openLoop) percentile(p float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counted := append([]time.Duration(nil), l.arrived[l.n/turns:]...)
	sort.Slice(counted, func(i, j int) bool { return counted[i] < counted[j] })
	return float64(counted[min(len(counted)-1, int(p*float64(len(counted))))].Microseconds()) / 1000
}

// latencyFigure measures a bare server and serve in turn. Both are children, sync
// before they acknowledge, and get the same messages at the same pace.
func latencyFigure(ctx context.Context, b *Bench) (_ []Result, err error) {
	b.note("%d messages a second for %s each, in turn through a bare server and through serve", b.Sizes.LatencyRate, b.Sizes.LatencyFor)
	subjects, err := bus.NewSubjects("")
	if err != nil {
		return nil, err
	}
	bare, stopBare, err := b.bareLatency(ctx, subjects)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopBare()) }()
	ours, stopOurs, err := b.serveLatency(ctx, subjects)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopOurs()) }()
	for slice := range turns {
		for _, l := range []*openLoop{bare, ours} {
			if err := l.send(ctx, slice, subjects); err != nil {
				return nil, err
			}
		}
	}
	var out []Result
	for _, p := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		out = append(out, Result{
			Figure: "latency", Case: p.name, Measured: ours.percentile(p.at), Baseline: bare.percentile(p.at), Unit: "ms",
			BaselineOf: "bare JetStream", Bar: Bar{Op: AtMost, Value: 4, OfBaseline: true},
		})
	}
	return out, nil
}

// bareLatency is from publishing into a stream to a consumer's callback.
func (b *Bench) bareLatency(ctx context.Context, subjects bus.Subjects) (l *openLoop, stop func() error, err error) {
	c, err := b.startServer(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	streams, err := subjects.Open(ctx, c.js, bus.StreamOptions{MaxPayload: c.nc.MaxPayload()}, "")
	if err != nil {
		return nil, nil, fmt.Errorf("make stream: %w", err)
	}
	cons, err := streams.Ingest.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, nil, fmt.Errorf("make consumer: %w", err)
	}
	if l, err = b.newOpenLoop(c.nc); err != nil {
		return nil, nil, err
	}
	run, err := cons.Consume(func(m jetstream.Msg) { l.came(m.Data(), time.Now()) })
	if err != nil {
		return nil, nil, fmt.Errorf("consume: %w", err)
	}
	return l, func() error {
		run.Stop()
		return c.stop()
	}, nil
}

// serveLatency is from publishing into INGEST to the row in a page of the table,
// read in this process each time a hint says that something was committed.
func (b *Bench) serveLatency(ctx context.Context, subjects bus.Subjects) (l *openLoop, stop func() error, err error) {
	c, err := b.startServe(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	hints := make(chan *nats.Msg, 1<<16)
	if _, err = c.nc.ChanSubscribe(subjects.Prefix()+".done.>", hints); err == nil {
		err = c.nc.Flush()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("subscribe to hints: %w", err)
	}
	if l, err = b.newOpenLoop(c.nc); err != nil {
		return nil, nil, err
	}
	r, err := store.OpenReader(filepath.Join(c.dir, storeFile))
	if err != nil {
		return nil, nil, err
	}
	reading, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.readPages(reading, r, hints) }()
	return l, func() error {
		end()
		return errors.Join(<-ended, r.Close(), c.stop())
	}, nil
}

// readPages pages on behind each hint until ctx ends.
func (l *openLoop) readPages(ctx context.Context, r *store.Reader, hints <-chan *nats.Msg) error {
	var at bus.Cursor
	for {
		select {
		case <-hints:
		case <-ctx.Done():
			return nil
		}
		for more := true; more; { // one page answers all that wait
			select {
			case <-hints:
			default:
				more = false
			}
		}
		for latest := uint64(math.MaxUint64); at.Seq < latest; {
			p, err := r.Page(ctx, store.PageQuery{After: &at, Limit: store.MaxLimit})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			now := time.Now()
			for i := range p.Events {
				l.came(p.Events[i].Data, now)
			}
			at.Seq, latest = p.NextAfter, p.Latest
		}
	}
}
