package materializer

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// Attributes of spans and links. Beside them those of OpenTelemetry's conventions for
// messaging are set. No workspace, session or id, and nothing of a body is ever one:
// who may read traces need not be who may read sessions.
const (
	attrMessages    = "messaging.batch.message_count"
	attrIngestFirst = "skald.ingest.first_seq"
	attrIngestLast  = "skald.ingest.last_seq"
	attrEventsLast  = "skald.events.last_seq"
	attrFacts       = "skald.facts"
	attrIngestSeq   = "skald.ingest.seq" // of a link: the first message of that context
	attrOutcome     = "skald.outcome"    // of a link
)

// span tells of a unit that is durable, if a message of it is of a sampled trace. The
// links are known from the beginning so, which is when a sampler looks at them, and
// what was tried in vain before leaves no span.
func (m *Materializer) span(ctx context.Context, u *unit) {
	links := links(u.done)
	if len(links) == 0 {
		return
	}
	first, last := u.done[0].msg.Seq, u.done[len(u.done)-1].msg.Seq
	stream := m.o.Subjects.IngestStream()
	_, span := m.o.Tracer.Start(ctx, "materialize "+stream,
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(u.began),
		trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("messaging.system", "nats"),
			attribute.String("messaging.destination.name", stream),
			attribute.String("messaging.operation.name", "materialize"),
			attribute.String("messaging.operation.type", "process"),
			attribute.Int(attrMessages, len(u.done)),
			attribute.Int64(attrIngestFirst, int64(first)),
			attribute.Int64(attrIngestLast, int64(last)),
			attribute.Int64(attrEventsLast, int64(u.commit.Position.EventsSeq)),
			attribute.Int(attrFacts, len(u.commit.Rows)),
		),
	)
	span.End()
}

// links returns one link for each sampled context and outcome among the messages.
func links(messages []done) []trace.Link {
	type key struct {
		trace   string
		outcome projection.Outcome
	}
	var known map[key]bool
	var out []trace.Link
	for i := range messages {
		d := &messages[i]
		if d.msg.trace == "" {
			continue
		}
		k := key{d.msg.trace, d.outcome}
		if known[k] {
			continue
		}
		if known == nil {
			known = make(map[key]bool)
		}
		known[k] = true
		sc := spanContext(d.msg)
		if !sc.IsSampled() {
			continue
		}
		out = append(out, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
			attribute.Int64(attrIngestSeq, int64(d.msg.Seq)),
			attribute.String(attrOutcome, d.outcome.String()),
		}})
	}
	return out
}

// spanContext reads a message's trace context; it is invalid if the parts are.
func spanContext(m *message) trace.SpanContext {
	h := propagation.MapCarrier{bus.HeaderTrace: m.trace}
	if m.traceState != "" {
		h[bus.HeaderTraceState] = m.traceState
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), h))
}
