// Package tracing exports spans of OpenTelemetry as its standard variables say.
//
// [Start] reads them and returns a [Tracing], whose Tracer is nil while nothing asks for
// export: then nothing runs and nothing is counted. Which variables there are, and what
// they do here, says docs/tracing.md. This package reads those that choose (env.go); the
// SDK and its exporters read the rest, such as the sampler's, the batches' and those of
// TLS.
//
// Spans are kept in a bounded queue and sent in the background. A collector that does not
// answer costs spans, never time: what does not fit is dropped, and [Tracing.Close] gives
// up after [FlushFor].
//
// The SDK has one error handler and one logger for the whole process, and Start sets
// both, to the log that it was given: call it once, from the command. Values of variables
// are never logged; they may be secrets.
//
// Nothing else of the module imports the SDK or an exporter; a test keeps it so.
package tracing
