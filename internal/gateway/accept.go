package gateway

import (
	"net/http"
	"strconv"
	"strings"
)

// prefersStream reports whether the client rather takes server-sent events than JSON.
// Each is weighed by the most specific range that names it; a stream has to be named,
// and JSON that is named with the same weight wins.
func prefersStream(h http.Header) bool {
	stream, json, jsonNamed := -1.0, 0.0, 0
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, params, _ := strings.Cut(part, ";")
			named := 0
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/event-stream":
				stream = max(stream, weight(params))
			case "application/json":
				named = 3
			case "application/*":
				named = 2
			case "*/*":
				named = 1
			}
			if named > jsonNamed {
				json, jsonNamed = weight(params), named
			}
		}
	}
	return stream > 0 && (stream > json || stream == json && jsonNamed < 3)
}

// weight returns the q of a range's parameters, 1 if it has none that is a number.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}
