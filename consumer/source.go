package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

const (
	// prefetch is how many messages the client library and the source each hold
	// ahead of the handler, prefetchBytes how much of them: more than the largest
	// payload that makes sense, so that any message fits.
	prefetch      = 256
	prefetchBytes = 32 << 20
	// pullHeartbeat is how often the server shows that a request is alive; two
	// missed ones and reading begins again.
	pullHeartbeat = 2 * time.Second
	pullExpiry    = 10 * time.Second
	// inactiveAfter is how long the server keeps a JetStream consumer that asks for
	// nothing. A reader whose handler is slower than that gets a new one.
	inactiveAfter = 10 * time.Second
)

// item is a message, or the error that ends the source.
type item struct {
	seq     uint64
	pending uint64 // messages of the filter behind this one
	msg     jetstream.Msg
	err     error
}

// weight is what the item takes of the room ahead of the handler, in bytes.
func (it *item) weight() int64 {
	if it.msg == nil {
		return 0
	}
	return int64(min(len(it.msg.Data()), prefetchBytes))
}

// source is one JetStream consumer, in the server's memory and without
// acknowledgements, and the goroutine that reads ahead from it.
type source struct {
	c        *Consumer
	cons     jetstream.Consumer
	it       jetstream.MessagesContext
	items    chan item           // full: the goroutine waits for the handler
	room     *semaphore.Weighted // bytes of what is in items, or was taken from there and is not handled
	stop     context.CancelFunc
	wg       sync.WaitGroup
	received atomic.Uint64 // messages that came, as the server counts them
}

// open begins behind the number after, which is not beyond EVENTS' end: a start in
// the future is not sure to survive a restart of the server.
func (c *Consumer) open(ctx context.Context, after uint64) (*source, error) {
	cfg := jetstream.ConsumerConfig{
		Description:       "reader",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       after + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        -1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactiveAfter,
	}
	c.setFilters(&cfg)
	cons, err := c.js.CreateConsumer(ctx, c.stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("create consumer behind %d: %w", after, err)
	}
	s := &source{c: c, cons: cons, items: make(chan item, prefetch), room: semaphore.NewWeighted(prefetchBytes)}
	s.it, err = cons.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(prefetch, prefetchBytes),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true),
	)
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("pull: %w", err)
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.wg.Go(func() { s.read(ctx) })
	return s, nil
}

// setFilters sets the subjects. One alone becomes part of the request's subject,
// where permissions can see it.
func (c *Consumer) setFilters(cfg *jetstream.ConsumerConfig) {
	if len(c.filters) == 1 {
		cfg.FilterSubject = c.filters[0]
	} else {
		cfg.FilterSubjects = c.filters
	}
}

// read puts what the server sends into items, and at last the error that ended it.
func (s *source) read(ctx context.Context) {
	for {
		it := s.next(ctx)
		if s.room.Acquire(ctx, it.weight()) != nil {
			return
		}
		select {
		case s.items <- it:
		case <-ctx.Done():
			return
		}
		if it.err != nil {
			return
		}
	}
}

func (s *source) next(ctx context.Context) item {
	msg, err := s.it.Next(jetstream.NextContext(ctx))
	if err != nil {
		return item{err: fmt.Errorf("next message: %w", err)}
	}
	meta, err := msg.Metadata()
	if err != nil {
		return item{err: fmt.Errorf("message metadata: %w", err)}
	}
	// What a broken connection loses on its way would look like numbers that the
	// filter leaves out.
	if meta.Sequence.Consumer != s.received.Load()+1 {
		return item{err: errLostDelivery}
	}
	s.received.Add(1)
	return item{seq: meta.Sequence.Stream, pending: meta.NumPending, msg: msg}
}

// handled makes room for what comes after the items.
func (s *source) handled(items []item) {
	for i := range items {
		s.room.Release(items[i].weight())
	}
}

// close ends reading and takes the JetStream consumer away.
func (s *source) close() {
	s.stop()
	s.it.Stop()
	s.wg.Wait()
	s.remove()
}

func (s *source) remove() {
	if s.c.js.Conn().Status() != nats.CONNECTED {
		return // the server takes it away after inactiveAfter
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.c.js.DeleteConsumer(ctx, s.c.stream, s.cons.CachedInfo().Name)
}
