package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// FlushFor is how long Close waits for the collector to take the last spans.
	FlushFor = 3 * time.Second
	// scope is what the spans are said to come from.
	scope = "github.com/skaldbus/skald"
)

// Options are what Start needs beside the environment.
type Options struct {
	Logger  *slog.Logger // required
	Service string       // service.name, unless OTEL_SERVICE_NAME or the resource attributes say another
	Version string       // service.version
}

// Tracing is an export under way, or none.
type Tracing struct {
	log      *slog.Logger
	provider *sdk.TracerProvider // nil if nothing is exported
	exporter *exporter
	version  string
}

// Start begins to export if the environment asks for it. It does not wait for the
// collector. The error is a *[bus.InvalidError] that names a variable, or what kept the
// exporter from being made. Close it.
func Start(ctx context.Context, o Options) (*Tracing, error) {
	c, err := choose(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	if !c.on {
		return &Tracing{log: o.Logger}, nil
	}
	otel.SetLogger(sdkLogger(o.Logger))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Logger.Warn("tracing has trouble", slog.Any("err", err))
	}))
	// What the environment says comes last, and wins.
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", o.Service),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", uuid.NewString()),
		),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("export traces: read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	e, err := newExporter(ctx, c.protocol, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	o.Logger.Info("traces are exported", slog.String("protocol", c.protocol), slog.String("endpoint", c.endpoint))
	return &Tracing{
		log: o.Logger, exporter: e, version: o.Version,
		provider: sdk.NewTracerProvider(sdk.WithBatcher(e), sdk.WithResource(res)),
	}, nil
}

// Tracer is for who makes spans; nil if nothing is exported. Safe for concurrent use.
func (t *Tracing) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer(scope, trace.WithInstrumentationVersion(t.version))
}

// Close sends what is left, gives up after [FlushFor], and leaves nothing running.
func (t *Tracing) Close() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), FlushFor)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last traces are not exported", slog.Any("err", err))
	}
	t.exporter.giveUp()
	<-t.exporter.ended
}

// exporter is an OTLP exporter whose errors go to the log and whose sending ends with
// giveUp: the SDK would let a request go on after the shutdown's deadline.
type exporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	going  context.Context // ends with giveUp
	giveUp context.CancelFunc
	ended  chan struct{} // closed by Shutdown
}

func newExporter(ctx context.Context, protocol string, log *slog.Logger) (*exporter, error) {
	var inner sdk.SpanExporter
	var err error
	if protocol == protocolGRPC {
		inner, err = otlptracegrpc.New(ctx)
	} else {
		inner, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, err
	}
	e := &exporter{SpanExporter: inner, log: log, ended: make(chan struct{})}
	e.going, e.giveUp = context.WithCancel(context.Background())
	return e, nil
}

// ExportSpans sends the spans, and drops them if the collector does not take them.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.going, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.Warn("traces are lost: the collector does not take them", slog.Int("spans", len(spans)), slog.Any("err", err))
	}
	return nil
}

// Shutdown is called by the SDK when the last spans have gone to ExportSpans.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.ended)
	return e.SpanExporter.Shutdown(ctx)
}
