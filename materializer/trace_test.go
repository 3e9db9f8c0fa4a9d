package materializer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

func traceparent(n int, flags string) string {
	return fmt.Sprintf("00-%032x-%016x-%s", n, n, flags)
}

// What is committed of sampled traces is told by spans with a link to each of them; what
// is not sampled, or in no trace, is in none. The facts carry the messages' contexts as
// they are, with spans or without, and two stores agree on them.
func TestTrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := bus.Key{Workspace: "secret workspace", Session: "secret session"}
	w.fail(k, "one", bus.HeaderTrace, traceparent(1, "01"), bus.HeaderTraceState, "vendor=x")
	w.fail(k, "again", bus.HeaderTrace, traceparent(1, "01"))
	w.fail(k, "not sampled", bus.HeaderTrace, traceparent(2, "00"))
	w.fail(k, "no id", bus.HeaderTrace, traceparent(0, "01"))
	w.fail(k, "in none")
	w.say(k, bus.ClassError, `{"message":1}`, bus.HeaderTrace, traceparent(3, "01"))

	n := w.node()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	n.tracer = provider.Tracer("test")
	n.start(nil)
	other := w.node() // makes no spans
	other.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return n.caughtUp() && other.caughtUp() })
	// A span ends a moment after the commit that it tells of.
	require.NoError(t, n.m.WaitCommitted(t.Context(), w.fail(k, "in none either")))
	told := spans.GetSpans()
	require.NoError(t, n.m.WaitCommitted(t.Context(), w.fail(k, "last", bus.HeaderTrace, traceparent(4, "01"))))
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, other.caughtUp)

	outcomes := map[string]string{}
	facts := 0
	for _, s := range spans.GetSpans() {
		require.Equal(t, "materialize SKALD_INGEST", s.Name)
		require.Equal(t, trace.SpanKindConsumer, s.SpanKind)
		require.False(t, s.Parent.IsValid())
		require.NotEmpty(t, s.Links)
		require.True(t, s.EndTime.After(s.StartTime))
		for _, a := range s.Attributes {
			require.NotContains(t, a.Value.String(), "secret")
			if a.Key == "skald.facts" {
				facts += int(a.Value.AsInt64())
			}
		}
		for _, l := range s.Links {
			require.True(t, l.SpanContext.IsRemote())
			set := attribute.NewSet(l.Attributes...)
			outcome, _ := set.Value("skald.outcome")
			id := l.SpanContext.TraceID().String()
			outcomes[id] += outcome.AsString() + " "
			if seq, _ := set.Value("skald.ingest.seq"); seq.AsInt64() == 1 {
				require.Equal(t, "vendor=x", l.SpanContext.TraceState().String())
			}
		}
	}
	id := func(n int) string { return traceparent(n, "")[3:35] }
	require.Contains(t, []string{"applied ", "applied applied "}, outcomes[id(1)]) // in one commit or two
	require.Equal(t, "rejected ", outcomes[id(3)])
	require.Equal(t, "applied ", outcomes[id(4)])
	require.Len(t, outcomes, 3)
	require.GreaterOrEqual(t, facts, 2)
	require.Len(t, spans.GetSpans(), len(told)+1, "a commit without a trace gives no span")

	want := []string{traceparent(1, "01"), traceparent(1, "01"), traceparent(2, "00"), traceparent(0, "01"), "", "", traceparent(4, "01")}
	for _, node := range []*node{n, other} {
		rows, err := node.st.Reader().Rows(t.Context(), 0, 100, 1<<20)
		require.NoError(t, err)
		var got []string
		for _, r := range rows {
			got = append(got, r.Trace)
			m, err := w.streams.Events.GetMsg(context.Background(), r.Seq)
			require.NoError(t, err)
			require.Equal(t, r.Trace, bus.Traceparent(m.Header))
			require.Empty(t, bus.Tracestate(m.Header), "it ends at the materializer")
		}
		require.Equal(t, want, got)
	}
	n.finish()
	other.finish()
}
