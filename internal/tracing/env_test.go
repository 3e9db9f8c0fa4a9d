package tracing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// Export is off until a variable asks for it; what can not be done is an error that names
// the variable, and never shows an address, which may hold a password.
func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		env   map[string]string
		want  choice
		wrong string // the field of the error
	}{
		"nothing":        {},
		"empty":          {env: map[string]string{envEndpoint: "", envExporter: " "}},
		"endpoint":       {env: map[string]string{envEndpoint: "http://c:4318"}, want: choice{true, protocolHTTP, "http://c:4318"}},
		"path and user":  {env: map[string]string{envEndpoint: "https://u:p@c/x?token=y"}, want: choice{true, protocolHTTP, "https://c"}},
		"of traces":      {env: map[string]string{envEndpoint: "http://a", envTracesEndpoint: "http://b"}, want: choice{true, protocolHTTP, "http://b"}},
		"otlp":           {env: map[string]string{envExporter: "otlp"}, want: choice{true, protocolHTTP, ""}},
		"none":           {env: map[string]string{envExporter: "none", envEndpoint: "http://c"}},
		"disabled":       {env: map[string]string{envDisabled: "TRUE", envEndpoint: "http://c"}},
		"not disabled":   {env: map[string]string{envDisabled: "1", envEndpoint: "http://c"}, want: choice{true, protocolHTTP, "http://c"}},
		"disabled first": {env: map[string]string{envDisabled: "true", envExporter: "jaeger"}},
		"grpc":           {env: map[string]string{envEndpoint: "http://c", envProtocol: "grpc"}, want: choice{true, protocolGRPC, "http://c"}},
		"grpc of traces": {env: map[string]string{envEndpoint: "http://c", envProtocol: "http/json", envTracesProtocol: "grpc"}, want: choice{true, protocolGRPC, "http://c"}},
		"exporter":       {env: map[string]string{envExporter: "console"}, wrong: envExporter},
		"two exporters":  {env: map[string]string{envExporter: "otlp,console"}, wrong: envExporter},
		"protocol":       {env: map[string]string{envEndpoint: "http://c", envProtocol: "http/json"}, wrong: envProtocol},
		"no scheme":      {env: map[string]string{envEndpoint: "hunter2@c:4318"}, wrong: envEndpoint},
		"other scheme":   {env: map[string]string{envTracesEndpoint: "unix://hunter2"}, wrong: envTracesEndpoint},
		"no host":        {env: map[string]string{envEndpoint: "http://"}, wrong: envEndpoint},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(func(name string) string { return tc.env[name] })
			if tc.wrong != "" {
				var invalid *bus.InvalidError
				require.ErrorAs(t, err, &invalid)
				require.Equal(t, tc.wrong, invalid.Field)
				require.NotContains(t, err.Error(), "hunter2")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}
