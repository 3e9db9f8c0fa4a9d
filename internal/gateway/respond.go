package gateway

import (
	"net/http"
	"strconv"
	"time"
)

// write sends one JSON text.
func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left needs no answer
}

// fail sends what the caller is told about err.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := g.o.API.Fail(r.Context(), r.Method+" "+r.URL.Path, err)
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	write(w, f.Status, f.AppendJSON(nil))
}
