package consumer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// The handler's context, and WithTrace's in a loop, carry the context of the worker's
// message, as one of another process; an event without one leaves the context alone.
func TestTrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	skaldtest.Publish(t, w.js, keyA, bus.ClassError, `{"message":"traced"}`, nats.Header{"Traceparent": {parent}})
	w.fail(keyA, 1)

	var mu sync.Mutex
	var got []trace.SpanContext
	r := w.read(w.js, consumer.Options{}, func(ctx context.Context, ev bus.Event) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, trace.SpanContextFromContext(ctx))
		return nil
	})
	r.reach(2)
	r.finish()
	require.Len(t, got, 2)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", got[0].TraceID().String())
	require.Equal(t, "b7ad6b7169203331", got[0].SpanID().String())
	require.True(t, got[0].IsSampled() && got[0].IsRemote())
	require.False(t, got[1].IsValid())

	// History comes from the table, without contexts, what follows from EVENTS.
	w.serveTable(w.store)
	w.catchUp()
	f, err := consumer.Follow(w.js, consumer.FollowOptions{From: from(0), Logger: logger(t), Subjects: w.subj})
	require.NoError(t, err)
	for ev, err := range f.Events(t.Context()) {
		require.NoError(t, err)
		if ev.Seq < 3 {
			require.Empty(t, ev.Traceparent)
			if ev.Seq == 2 {
				skaldtest.Publish(t, w.js, keyA, bus.ClassError, `{"message":"traced"}`, nats.Header{"traceparent": {parent}})
			}
			continue
		}
		require.Equal(t, parent, ev.Traceparent)
		link := trace.LinkFromContext(consumer.WithTrace(t.Context(), ev))
		require.Equal(t, got[0], link.SpanContext)
		break
	}
	require.Equal(t, t.Context(), consumer.WithTrace(t.Context(), bus.Event{}))
	require.False(t, trace.SpanContextFromContext(consumer.WithTrace(t.Context(), bus.Event{Traceparent: "x"})).IsValid())
}
