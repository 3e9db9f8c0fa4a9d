package publisher_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// inTrace returns a context in a span of trace n, and the header that says so.
func inTrace(t testing.TB, n, span byte, state string) (context.Context, string) {
	t.Helper()
	ts, err := trace.ParseTraceState(state)
	require.NoError(t, err)
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{n}, SpanID: trace.SpanID{span}, TraceFlags: trace.FlagsSampled, TraceState: ts,
	})
	return trace.ContextWithSpanContext(within(t, skaldtest.Timeout), sc), fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())
}

// ingest is what INGEST holds of a session's class.
func (w *world) ingest(k bus.Key, class bus.Class) []*jetstream.RawStreamMsg {
	w.t.Helper()
	var out []*jetstream.RawStreamMsg
	js, err := jetstream.New(w.connect(w.server.ClientURL()))
	require.NoError(w.t, err)
	in, err := js.Stream(w.t.Context(), skaldtest.Subjects(w.t).IngestStream())
	require.NoError(w.t, err)
	info, err := in.Info(w.t.Context())
	require.NoError(w.t, err)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := in.GetMsg(w.t.Context(), seq)
		require.NoError(w.t, err)
		if m.Subject == skaldtest.Subjects(w.t).Ingest(k, class) {
			out = append(out, m)
		}
	}
	return out
}

func traces(messages []*jetstream.RawStreamMsg) (parents, states []string) {
	for _, m := range messages {
		parents, states = append(parents, m.Header.Get(bus.HeaderTrace)), append(states, m.Header.Get(bus.HeaderTraceState))
	}
	return parents, states
}

// A message carries the span context of the call that gave it, and none if the call had
// none; a trace state that is too long stays behind.
func TestTrace_Headers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	a, headerA := inTrace(t, 1, 1, "vendor=x")
	b, headerB := inTrace(t, 2, 2, "long="+strings.Repeat("x", 250)+",longer="+strings.Repeat("y", 250)+",too="+strings.Repeat("z", 100))
	none := within(t, skaldtest.Timeout)

	for _, ctx := range []context.Context{a, none, b} {
		_, err := s.Error(ctx, "m", "")
		require.NoError(t, err)
	}
	_, err := s.Publish(a, publisher.Message{Class: bus.ClassError, EventID: "e", Body: []byte(`{"message":"id"}`)})
	require.NoError(t, err)
	r, err := s.Observe(b, ended("o"), publisher.ObserveOptions{})
	require.NoError(t, err)
	materialized(t, r)

	parents, states := traces(w.ingest(key("s"), bus.ClassError))
	require.Equal(t, []string{headerA, "", headerB, headerA}, parents)
	require.Equal(t, []string{"vendor=x", "", "", "vendor=x"}, states)
	parents, _ = traces(w.ingest(key("s"), bus.ClassProjection))
	require.Equal(t, []string{headerB}, parents)
}

// Relay events of one trace share a page, which carries the first one's context. An
// event without one goes along, another trace begins a new page. All of that is kept in
// the outbox over the worker's death.
func TestTrace_PagesFromTheOutbox(t *testing.T) {
	t.Parallel()
	w := away(t)
	dir := t.TempDir()
	o := publisher.Options{Outbox: dir}
	p := w.publisherAt(freeURL(t, w), o, nats.RetryOnFailedConnect(true))
	s := p.open(key("s"))
	none := within(t, skaldtest.Timeout)
	a1, headerA1 := inTrace(t, 1, 1, "vendor=x")
	a2, headerA2 := inTrace(t, 1, 2, "")
	b, headerB := inTrace(t, 2, 3, "")
	for i, ctx := range []context.Context{none, a1, a2, none, b, b, a2} {
		_, err := s.Observe(ctx, ended(fmt.Sprint(i)), publisher.ObserveOptions{})
		require.NoError(t, err)
	}
	_, err := s.Error(b, "m", "")
	require.NoError(t, err)

	o.Outbox = p.crash(dir)
	next := w.publisherAt(freeURL(t, w), o, nats.RetryOnFailedConnect(true))
	s = next.open(key("s"))
	w.back()
	r, err := s.Error(none, "last", "")
	require.NoError(t, err)
	materialized(t, r)

	pages := w.ingest(key("s"), bus.ClassProjection)
	parents, states := traces(pages)
	require.Equal(t, []string{headerA1, headerB, headerA2}, parents)
	require.Equal(t, []string{"vendor=x", "", ""}, states)
	for i, want := range []int{4, 2, 1} {
		body, err := bus.ParsePage(pages[i].Data)
		require.NoError(t, err)
		require.Len(t, body.Events, want)
	}
	parents, _ = traces(w.ingest(key("s"), bus.ClassError))
	require.Equal(t, []string{headerB, ""}, parents)
}
