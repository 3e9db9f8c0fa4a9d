package tracing

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Variables that choose.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Protocols.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// choice is what the variables ask for.
type choice struct {
	on       bool
	protocol string
	endpoint string // for the log, without user and query; "" if it is the default
}

// choose reads the variables; an empty one counts as absent. The error is a
// *[bus.InvalidError] that names the variable.
func choose(getenv func(string) string) (choice, error) {
	get := func(names ...string) (name, value string) {
		for _, name := range names {
			if v := strings.TrimSpace(getenv(name)); v != "" {
				return name, v
			}
		}
		return "", ""
	}
	if _, v := get(envDisabled); strings.EqualFold(v, "true") {
		return choice{}, nil
	}
	endpointIn, endpoint := get(envTracesEndpoint, envEndpoint)
	switch _, exporter := get(envExporter); exporter {
	case "none":
		return choice{}, nil
	case "otlp":
	case "":
		if endpoint == "" {
			return choice{}, nil
		}
	default:
		return choice{}, &bus.InvalidError{Field: envExporter, Rule: fmt.Sprintf("must be otlp or none, not %q", exporter)}
	}
	c := choice{on: true, protocol: protocolHTTP}
	if name, v := get(envTracesProtocol, envProtocol); v != "" {
		if v != protocolHTTP && v != protocolGRPC {
			return choice{}, &bus.InvalidError{Field: name, Rule: fmt.Sprintf("must be %s or %s, not %q", protocolHTTP, protocolGRPC, v)}
		}
		c.protocol = v
	}
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			// Not shown: it may hold a password.
			return choice{}, &bus.InvalidError{Field: endpointIn, Rule: "must be a URL with the scheme http or https and a host"}
		}
		c.endpoint = u.Scheme + "://" + u.Host
	}
	return c, nil
}
