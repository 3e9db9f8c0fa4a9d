package consumer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// deaf is a JetStream that hears no answer to its next question for a lease, or to its
// next writing of a position.
type deaf struct {
	jetstream.JetStream
	lease, position atomic.Bool
}

func (d *deaf) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	if strings.HasSuffix(name, "=lease") && d.lease.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.JetStream.Consumer(ctx, stream, name)
}

func (d *deaf) ResetConsumerToSequence(ctx context.Context, stream, name string, seq uint64) (*jetstream.ConsumerResetResponse, error) {
	if d.position.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.JetStream.ResetConsumerToSequence(ctx, stream, name, seq)
}

// An answer that goes down with a connection is not waited for until the lease has lapsed.
func TestRun_LeaseOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	_, js := w.connect()
	d := &deaf{JetStream: js}
	first := w.read(d, consumer.Options{Durable: "d"}, nil)
	first.reach(3)
	d.lease.Store(true)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return !d.lease.Load() })
	second := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	require.ErrorIs(t, second.wait(), consumer.ErrInUse)
	w.fail(keyA, 3)
	first.reach(6)
	first.finish()
	require.Equal(t, span(1, 6), first.seqs())
}

// An answer that goes down with a connection keeps nobody from writing the position soon
// after: who is killed then would handle all of it again.
func TestRun_PositionOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 1)
	_, js := w.connect()
	d := &deaf{JetStream: js}
	r := w.read(d, consumer.Options{Durable: "d"}, nil)
	r.reach(1)
	last := uint64(1)
	written := func() {
		last++
		w.fail(keyA, 1)
		w.saved("d", last)
	}
	skaldtest.InTime(t, 10*time.Second, func() {
		for d.position.Store(true); d.position.Load(); {
			written()
		}
		written() // behind the one that was lost
		written()
	})
	r.finish()
	require.Equal(t, span(1, last), r.seqs())
}
