package consumer

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/skaldbus/skald/bus"
)

// WithTrace returns ctx with the trace context of the event, which is that of the
// worker's message: as a remote span context, whose trace a span that is started with
// it belongs to. trace.LinkFromContext makes a link of it instead, which suits work on
// many events. An event without one, or with one that is none, leaves ctx as it is.
//
// A [Handler] is called with it. Who ranges over [Follower.Events] calls it. Events that
// were read from the table have none: the pages do not carry it.
func WithTrace(ctx context.Context, ev bus.Event) context.Context {
	if ev.Traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{bus.HeaderTrace: ev.Traceparent})
}
