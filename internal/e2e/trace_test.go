//go:build unix

package e2e_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// traceCollector takes spans over OTLP/HTTP.
type traceCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	names map[string]bool // of the services
	text  string          // all that came, as JSON
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{names: map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &m) != nil || r.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(&m)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *traceCollector) take(m *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text += protojson.Format(m)
	for _, r := range m.ResourceSpans {
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				c.names[a.Value.GetStringValue()] = true
			}
		}
		for _, s := range r.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
}

// attribute is a span's number of that name.
func attribute(s *otlp.Span, name string) int {
	for _, a := range s.Attributes {
		if a.Key == name {
			return int(a.Value.GetIntValue())
		}
	}
	return -1
}

// serveTraced starts a server that exports to endpoint.
func serveTraced(t *testing.T, endpoint string) *server {
	t.Helper()
	dir := t.TempDir()
	cmd := command(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000")
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_SERVICE_NAME=skald-under-test", "OTEL_BSP_SCHEDULE_DELAY=50")
	p, err := spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { kill(p) })
	s := &server{process: p, data: dir}
	require.Eventually(t, s.ready, patience, patience/1000, p.text())
	return s
}

// A trace that a worker in JavaScript starts is seen by a reader in Go with each fact, and
// in the collector the materializer's spans are linked to it. Spans tell of no session and
// nothing of what was said.
func TestJavaScript_Trace(t *testing.T) {
	t.Parallel()
	spans := newTraceCollector(t)
	s := serveTraced(t, spans.URL)
	const turns = 6
	const facts = 4*turns + turns/3 // two activities, start and end each, and an error in every third

	worker := background(t, node(t, "worker.js", "--server", s.nats, "--workspace", "private ws", "--session", "private session", "--turns", "6"))
	<-worker.exited
	require.Equal(t, 0, worker.code, worker.text())
	var said struct{ Traceparent string }
	require.NoError(t, json.Unmarshal([]byte(worker.lastLine(t)), &said))
	s.worker(t).put(ingestSubject("private ws", "untraced", "error"), nil, failed("untraced"))

	// The reader.
	c, err := consumer.New(s.js(t), consumer.Options{Subjects: skaldtest.Subjects(t), Workspace: "private ws"})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	seen := map[string]int{}
	require.NoError(t, c.Run(ctx, func(ctx context.Context, ev bus.Event) error {
		sc := trace.SpanContextFromContext(ctx)
		if ev.Session == "untraced" {
			require.False(t, sc.IsValid())
			stop()
			return nil
		}
		require.True(t, sc.IsRemote() && sc.IsSampled())
		seen["00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-"+sc.TraceFlags().String()]++
		return nil
	}))
	require.Equal(t, map[string]int{said.Traceparent: facts}, seen)

	s.stop(t) // brings the last spans
	spans.mu.Lock()
	defer spans.mu.Unlock()
	require.Equal(t, map[string]bool{"skald-under-test": true}, spans.names)
	told := 0
	for _, span := range spans.spans {
		require.Equal(t, "materialize SKALD_INGEST", span.Name)
		require.Len(t, span.Links, 1)
		require.Equal(t, said.Traceparent, "00-"+hex.EncodeToString(span.Links[0].TraceId)+"-"+hex.EncodeToString(span.Links[0].SpanId)+"-01")
		require.NotEqual(t, span.Links[0].TraceId, span.TraceId, "linked, not below it")
		told += attribute(span, "skald.facts")
	}
	// The untraced message may have been committed with the last of the others.
	require.Contains(t, []int{facts, facts + 1}, told)
	require.NotContains(t, spans.text, "private")
	require.NotContains(t, spans.text, "build failed")
}

// A collector that takes the connection and does not answer delays neither the facts nor,
// beyond a bound, the stop.
func TestTrace_DeadCollector(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	release := make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer dead.Close()
	defer close(release)
	s := serveTraced(t, dead.URL)
	w := s.worker(t)
	header := nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	w.put(ingestSubject("w", "s", "error"), header, failed("first"))
	<-asked // its span is on the way, for good
	for range 50 {
		w.put(ingestSubject("w", "s", "error"), header, failed("more"))
	}
	require.Len(t, s.same(t, "w"), 51)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	skaldtest.Eventually(t, patience, func() bool { return !s.running() })
	require.Equal(t, 0, s.code, s.text())
	require.Contains(t, s.text(), "the last traces are not exported")
}
