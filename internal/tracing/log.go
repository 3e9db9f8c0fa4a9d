package tracing

import (
	"log/slog"

	"github.com/go-logr/logr"
)

// warning is the level at which the SDK warns; above it stands what it tells besides.
const warning = 1

// sink writes what the SDK says of itself to our log, without the values that it
// says it of: among them are headers with secrets.
type sink struct{ log *slog.Logger }

func sdkLogger(log *slog.Logger) logr.Logger { return logr.New(sink{log}) }

func (sink) Init(logr.RuntimeInfo)  {}
func (sink) Enabled(level int) bool { return level <= warning }

func (s sink) Info(_ int, msg string, _ ...any) {
	s.log.Warn("OpenTelemetry warns", slog.String("what", msg))
}

func (s sink) Error(_ error, msg string, _ ...any) {
	s.log.Error("OpenTelemetry can not use a setting", slog.String("what", msg))
}

func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }
