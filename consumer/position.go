package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	// saveEvery is how often a durable's position is written while it moves, unless
	// writing it takes long: the server then counts what is left, which in a big
	// stream is work, and is given ten times as long to rest.
	saveEvery = 200 * time.Millisecond
	// saveAgain writes one that has not moved, so that a durable that someone
	// deleted is there again.
	saveAgain = 5 * time.Second
	// saveTry bounds a question of one try, saveRetry is how long after a try that failed
	// the next one begins.
	saveTry   = 2 * time.Second
	saveRetry = time.Second
	// settleFor bounds the last writing, when Run ends, settleTry one try of it.
	settleFor   = 2 * time.Second
	settleTry   = settleFor / 4
	settleRetry = 50 * time.Millisecond
)

// A durable is a JetStream consumer that is never read from. Its place is the
// position, moved by resetting it; reading goes through a consumer of its own.
// With deliveries of the durable itself, the server counts a message that is
// removed before it is acknowledged as acknowledged, and under cumulative
// acknowledgement all before it as well (seen with nats-server 2.15.3): a
// forgotten session would move the position past events that nobody handled.

// load returns the durable's position, or ok false if there is no such durable.
func (c *Consumer) load(ctx context.Context, v view) (seq uint64, ok bool, err error) {
	d, err := c.js.Consumer(ctx, c.stream, c.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("ask for the durable: %w", err)
	}
	info := d.CachedInfo()
	if err := c.checkDurable(info.Config); err != nil {
		return 0, false, final{err}
	}
	at := bus.Cursor{Epoch: info.Config.Metadata[bus.MetaEpoch], Seq: info.AckFloor.Stream}
	if at.Epoch != v.epoch {
		return 0, false, final{v.misplaced(bus.ErrOtherEpoch, at)}
	}
	return at.Seq, true, nil
}

// ensure makes the durable at the cursor, or moves it there.
func (c *Consumer) ensure(ctx context.Context, at bus.Cursor) error {
	d, err := c.js.Consumer(ctx, c.stream, c.durable)
	if err == nil {
		cfg := d.CachedInfo().Config
		if err := c.checkDurable(cfg); err != nil {
			return final{err}
		}
		// A durable can not be moved before the place it was made at.
		if cfg.Metadata[bus.MetaEpoch] == at.Epoch && at.Seq+1 >= cfg.OptStartSeq {
			return c.save(ctx, at.Seq)
		}
		// Only a caller that gives From comes here: it knows its position without us.
		err = c.js.DeleteConsumer(ctx, c.stream, c.durable)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("look for the durable: %w", err)
	}
	cfg := jetstream.ConsumerConfig{
		Durable:       c.durable,
		Description:   "position of a reader",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   at.Seq + 1,
		AckPolicy:     jetstream.AckExplicitPolicy,
		Metadata:      map[string]string{bus.MetaEpoch: at.Epoch},
	}
	c.setFilters(&cfg)
	if _, err := c.js.CreateConsumer(ctx, c.stream, cfg); err != nil {
		return fmt.Errorf("create the durable: %w", err)
	}
	return nil
}

func (c *Consumer) save(ctx context.Context, seq uint64) error {
	if _, err := c.js.ResetConsumerToSequence(ctx, c.stream, c.durable, seq+1); err != nil {
		return fmt.Errorf("save position %d: %w", seq, err)
	}
	return nil
}

// checkDurable compares what the server has with what ensure makes.
func (c *Consumer) checkDurable(got jetstream.ConsumerConfig) error {
	if _, ours := got.Metadata[bus.MetaEpoch]; !ours || got.DeliverPolicy != jetstream.DeliverByStartSequencePolicy {
		return fmt.Errorf("%w: the consumer %s of another program has its name", ErrDurableDiffers, c.durable)
	}
	filters := got.FilterSubjects
	if got.FilterSubject != "" {
		filters = []string{got.FilterSubject}
	}
	filters = slices.Sorted(slices.Values(filters))
	if want := slices.Sorted(slices.Values(c.filters)); !slices.Equal(filters, want) {
		return fmt.Errorf("%w: %q reads %s, not %s; choose another name, or delete the consumer %s", ErrDurableDiffers, c.o.Durable,
			strings.Join(filters, " "), strings.Join(want, " "), c.durable)
	}
	return nil
}

// keepSaved writes the position as Run moves it, until ctx ends.
func (c *Consumer) keepSaved(ctx context.Context, l *lease) {
	var saved bus.Cursor
	last := time.Now()
	for wait := saveEvery; pause(ctx, wait) == nil; {
		at := c.Cursor()
		if at.Epoch == "" || !l.held() || at == saved && time.Since(last) < saveAgain {
			continue
		}
		last = time.Now()
		switch took, err := c.trySave(ctx, at, saveTry); {
		case err == nil:
			saved, wait = at, max(saveEvery, 10*took)
		case ctx.Err() == nil:
			wait = saveRetry
			c.log.WarnContext(ctx, "position of the durable is not saved", slog.Uint64("seq", at.Seq), slog.Any("err", err))
		}
	}
}

// trySave writes the position, and makes a durable that someone deleted, for which nobody
// answers. Each of the two is given up after limit: a question that a broken connection
// took with it is not answered either. It returns how long the one took that was answered.
func (c *Consumer) trySave(ctx context.Context, at bus.Cursor, limit time.Duration) (took time.Duration, err error) {
	within := func(do func(ctx context.Context) error) {
		ctx, cancel := bounded(ctx, limit)
		defer cancel()
		began := time.Now()
		err = do(ctx)
		took = time.Since(began)
	}
	within(func(ctx context.Context) error { return c.save(ctx, at.Seq) })
	if err != nil && ctx.Err() == nil {
		within(func(ctx context.Context) error { return c.ensure(ctx, at) })
	}
	return took, err
}

// settle writes the position for the last time: a process that ends in order
// leaves nothing to come again, if it reaches the server within settleFor.
func (c *Consumer) settle(l *lease) {
	at := c.Cursor()
	if at.Epoch == "" {
		return // Run has not found its place
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	for {
		if c.closed() != nil || !l.held() {
			return
		}
		_, err := c.trySave(ctx, at, settleTry)
		if err == nil {
			return
		}
		if pause(ctx, settleRetry) != nil {
			c.log.Warn("position of the durable is not saved", slog.Uint64("seq", at.Seq), slog.Any("err", err))
			return
		}
	}
}
