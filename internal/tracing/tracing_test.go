package tracing

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clean removes what the tests' own environment says of OpenTelemetry.
func clean(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// log is what was logged.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T) (*Tracing, *log) {
	t.Helper()
	l := &log{}
	tr, err := Start(t.Context(), Options{Logger: slog.New(slog.NewTextHandler(l, nil)), Service: "skald", Version: "v1"})
	require.NoError(t, err)
	return tr, l
}

func span(tr *Tracing, name string) {
	_, s := tr.Tracer().Start(context.Background(), name)
	s.End()
}

// Nothing is exported, and nobody gets a tracer, while nothing asks for it.
func TestStart_Off(t *testing.T) {
	clean(t)
	tr, l := start(t)
	require.Nil(t, tr.Tracer())
	tr.Close()
	require.Empty(t, l.text())
}

func TestStart_Refuses(t *testing.T) {
	clean(t)
	t.Setenv(envExporter, "console")
	_, err := Start(t.Context(), Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "OTEL_TRACES_EXPORTER: must be otlp or none")
	t.Setenv(envExporter, "otlp")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	_, err = Start(t.Context(), Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "OTEL_RESOURCE_ATTRIBUTES")
}

// grpcCollector takes spans over gRPC.
type grpcCollector struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (c *grpcCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.got <- r
	return &collector.ExportTraceServiceResponse{}, nil
}

// Over both protocols Close brings what is left, said to be of the service that the
// environment names.
func TestStart_Exports(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 10)
	overHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &m) != nil || r.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got <- &m
	}))
	defer overHTTP.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	overGRPC := grpc.NewServer()
	collector.RegisterTraceServiceServer(overGRPC, &grpcCollector{got: got})
	served := make(chan error, 1)
	go func() { served <- overGRPC.Serve(listener) }()
	defer func() { overGRPC.Stop(); <-served }()

	for protocol, endpoint := range map[string]string{protocolHTTP: overHTTP.URL, protocolGRPC: "http://" + listener.Addr().String()} {
		t.Run(protocol, func(t *testing.T) {
			clean(t)
			t.Setenv(envEndpoint, endpoint)
			t.Setenv(envProtocol, protocol)
			t.Setenv("OTEL_SERVICE_NAME", "named")
			tr, l := start(t)
			span(tr, "one")
			tr.Close()
			require.NotContains(t, l.text(), "level=WARN")
			r := <-got
			require.Len(t, r.ResourceSpans, 1)
			resource := map[string]string{}
			for _, a := range r.ResourceSpans[0].Resource.Attributes {
				resource[a.Key] = a.Value.GetStringValue()
			}
			require.Equal(t, "named", resource["service.name"])
			require.Equal(t, "v1", resource["service.version"])
			require.Equal(t, "one", r.ResourceSpans[0].ScopeSpans[0].Spans[0].Name)
		})
	}
}

// The sampler is the environment's.
func TestStart_Sampler(t *testing.T) {
	clean(t)
	t.Setenv(envExporter, "otlp")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tr, _ := start(t)
	defer tr.Close()
	_, s := tr.Tracer().Start(context.Background(), "x")
	require.False(t, s.SpanContext().IsSampled())
	require.True(t, trace.SpanContextFromContext(trace.ContextWithSpan(context.Background(), s)).IsValid())
}

// A collector that takes connections and never answers keeps nobody: more spans than
// the queue holds end while its first request is open, and Close gives up on it.
func TestClose_DeadCollector(t *testing.T) {
	clean(t)
	asked, gone := make(chan struct{}, 1), make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client leaves
		asked <- struct{}{}
		<-r.Context().Done()
		close(gone)
	}))
	defer dead.Close()
	t.Setenv(envEndpoint, dead.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "hunter2")
	tr, l := start(t)
	span(tr, "first")
	<-asked
	for range 5000 {
		span(tr, "more")
	}
	select {
	case <-gone:
		t.Fatal("the request has ended: nothing is shown")
	default:
	}
	tr.Close()
	<-gone
	require.Contains(t, l.text(), "the last traces are not exported")
	require.Contains(t, l.text(), "parse headers")
	require.NotContains(t, l.text(), "hunter2")
}
