package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/skaldbus/skald/internal/api"
)

// index is what GET / answers.
const index = `skald

GET /api/v1/events          after_seq, limit, session_id, workspace_id, type
GET /api/v1/sessions        workspace_id, session_id, after, limit
GET /api/v1/sessions/{id}   workspace_id
GET /api/v1/status
GET /healthz
GET /readyz
`

// handler routes by the path as it was sent. The standard library's router would
// redirect paths with dots or doubled slashes, which are ids here.
func (g *Gateway) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		serve := g.route(r.URL.EscapedPath())
		switch {
		case serve == nil:
			g.fail(w, r, &api.Failure{
				Status: http.StatusNotFound, Code: api.CodeNotFound, Message: "no such path, GET / lists them",
			})
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			g.fail(w, r, &api.Failure{
				Status: http.StatusMethodNotAllowed, Code: api.CodeNotAllowed,
				Message: "only GET and HEAD are allowed here, publishing goes over NATS",
			})
		default:
			serve(w, r)
		}
	})
}

// route returns what serves the path, nil if nothing does.
func (g *Gateway) route(path string) http.HandlerFunc {
	switch path {
	case "/":
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(index)) // a client that has left needs no answer
		}
	case "/healthz":
		return func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, []byte(`{"status":"ok"}`))
		}
	case "/readyz":
		return func(w http.ResponseWriter, _ *http.Request) {
			status, body := g.readiness()
			write(w, status, body)
		}
	case "/api/v1/events":
		return g.answer(g.events)
	case "/api/v1/sessions":
		return g.answer(func(r *http.Request, p api.Params) ([]byte, error) {
			return g.api.Sessions(r.Context(), p, 0)
		})
	case "/api/v1/status":
		return g.answer(func(r *http.Request, p api.Params) ([]byte, error) {
			return g.api.Status(r.Context(), p)
		})
	}
	segment, ok := strings.CutPrefix(path, "/api/v1/sessions/")
	if !ok || strings.Contains(segment, "/") {
		return nil
	}
	id, err := url.PathUnescape(segment)
	if err != nil {
		return nil
	}
	return g.answer(func(r *http.Request, p api.Params) ([]byte, error) {
		return g.api.Session(r.Context(), id, p, 0)
	})
}

// answer serves a query of package api.
func (g *Gateway) answer(query func(*http.Request, api.Params) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := api.ParseQuery(r.URL.RawQuery)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		body, err := query(r, p)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		write(w, http.StatusOK, body)
	}
}

func (g *Gateway) events(r *http.Request, p api.Params) ([]byte, error) {
	if streamOnly(r.Header) {
		return nil, &api.Failure{
			Status: http.StatusNotAcceptable, Code: api.CodeNotAcceptable,
			Message: "streaming (text/event-stream) is not part of this version, ask for pages with after_seq",
		}
	}
	if r.Header.Get("Last-Event-ID") != "" {
		// A resume option that is ignored looks like one that works.
		return nil, &api.ParameterError{Parameter: "Last-Event-ID", Rule: "belongs to streaming, pages go on from after_seq"}
	}
	return g.api.Events(r.Context(), p, 0)
}

// streamOnly reports whether the client takes server-sent events and no JSON.
func streamOnly(h http.Header) bool {
	stream := false
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/event-stream":
				stream = true
			case "application/json", "application/*", "*/*":
				return false
			}
		}
	}
	return stream
}
