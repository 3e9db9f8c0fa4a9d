package publisher

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
)

// traceContext is a W3C trace context as headers carry it; empty if there is none.
type traceContext struct{ parent, state string }

// traceOf returns the context of ctx's span, of this process or another.
func traceOf(ctx context.Context) traceContext {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return traceContext{}
	}
	h := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, h)
	t := traceContext{parent: h[bus.HeaderTrace], state: h[bus.HeaderTraceState]}
	if len(t.state) > bus.MaxTraceState {
		t.state = "" // the standard lets it go; cut anywhere it would say something else
	}
	return t
}

// id is the trace's, "" if there is none.
func (t traceContext) id() string {
	const begin, end = len("00-"), len("00-") + 32
	if len(t.parent) < end {
		return ""
	}
	return t.parent[begin:end]
}

// on sets the headers in h, which may be nil, and returns it.
func (t traceContext) on(h nats.Header) nats.Header {
	if t.parent == "" {
		return h
	}
	if h == nil {
		h = nats.Header{}
	}
	h[bus.HeaderTrace] = []string{t.parent}
	if t.state != "" {
		h[bus.HeaderTraceState] = []string{t.state}
	}
	return h
}

// traceOfPage is the context of the first event that has one; all are of one trace.
func traceOfPage(events []item) traceContext {
	for i := range events {
		if events[i].trace.parent != "" {
			return events[i].trace
		}
	}
	return traceContext{}
}
