package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/api"
)

// route is what serves a path.
type route struct {
	post   bool // by POST, else by GET and HEAD
	anyone bool // without a token too; the grant is then nil
	serve  func(http.ResponseWriter, *http.Request, *access.Grant)
}

// handler routes by the path as it was sent. The standard library's router would
// redirect paths with dots or doubled slashes, which are ids here.
func (g *Gateway) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		grant, err := g.admit(r)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		to, known := g.route(r.URL.EscapedPath())
		switch allow := to.methods(); {
		case !known:
			g.fail(w, r, &api.Failure{
				Status: http.StatusNotFound, Code: api.CodeNotFound, Message: "no such path, GET / lists them",
			})
		case !allowed(allow, r.Method):
			w.Header().Set("Allow", allow)
			g.fail(w, r, &api.Failure{
				Status: http.StatusMethodNotAllowed, Code: api.CodeNotAllowed,
				Message: "only " + allow + " is allowed here, publishing goes over NATS",
			})
		case grant == nil && !to.anyone:
			w.Header().Set("WWW-Authenticate", `Bearer realm="skald"`)
			g.fail(w, r, errToken)
		default:
			to.serve(w, r, grant)
		}
	})
}

func (t route) methods() string {
	if t.post {
		return http.MethodPost
	}
	return "GET, HEAD"
}

func allowed(allow, method string) bool {
	for m := range strings.SplitSeq(allow, ", ") {
		if m == method {
			return true
		}
	}
	return false
}

// route returns what serves the path, and whether anything does.
func (g *Gateway) route(path string) (route, bool) {
	switch path {
	case "/":
		return route{anyone: true, serve: g.page}, true
	case "/healthz":
		return route{anyone: true, serve: func(w http.ResponseWriter, _ *http.Request, _ *access.Grant) {
			write(w, http.StatusOK, []byte(`{"status":"ok"}`))
		}}, true
	case "/readyz":
		return route{anyone: true, serve: func(w http.ResponseWriter, _ *http.Request, grant *access.Grant) {
			status, body := g.readiness(grant != nil && grant.All())
			write(w, status, body)
		}}, true
	case "/metrics":
		return route{serve: func(w http.ResponseWriter, r *http.Request, grant *access.Grant) {
			if !grant.All() {
				g.fail(w, r, errScope)
				return
			}
			g.o.Metrics.ServeHTTP(w, r)
		}}, g.o.Metrics != nil
	case "/api/v1/openapi.json":
		return route{anyone: true, serve: func(w http.ResponseWriter, _ *http.Request, _ *access.Grant) {
			write(w, http.StatusOK, openAPI)
		}}, true
	case "/api/v1/login":
		return route{post: true, anyone: true, serve: g.login}, g.o.Tokens != nil
	case "/api/v1/logout":
		return route{post: true, anyone: true, serve: g.logout}, g.o.Tokens != nil
	case "/api/v1/events":
		return route{serve: g.events}, true
	case "/api/v1/sessions":
		return route{serve: g.answer(func(r *http.Request, a *api.API, p api.Params) ([]byte, error) {
			return a.Sessions(r.Context(), p, 0)
		})}, true
	case "/api/v1/status":
		return route{serve: func(w http.ResponseWriter, r *http.Request, grant *access.Grant) {
			if !grant.All() {
				g.fail(w, r, errScope)
				return
			}
			g.answer(func(r *http.Request, a *api.API, p api.Params) ([]byte, error) {
				return a.Status(r.Context(), p)
			})(w, r, grant)
		}}, true
	}
	if f, ok := g.files[path]; ok {
		return route{anyone: true, serve: func(w http.ResponseWriter, r *http.Request, _ *access.Grant) { f.serve(w, r) }}, true
	}
	segment, ok := strings.CutPrefix(path, "/api/v1/sessions/")
	if !ok || strings.Contains(segment, "/") {
		return route{}, false
	}
	id, err := url.PathUnescape(segment)
	if err != nil {
		return route{}, false
	}
	return route{serve: g.answer(func(r *http.Request, a *api.API, p api.Params) ([]byte, error) {
		return a.Session(r.Context(), id, p, 0)
	})}, true
}

// answer serves a query of package api, within what the grant allows.
func (g *Gateway) answer(query func(*http.Request, *api.API, api.Params) ([]byte, error)) func(http.ResponseWriter, *http.Request, *access.Grant) {
	return func(w http.ResponseWriter, r *http.Request, grant *access.Grant) {
		p, err := api.ParseQuery(r.URL.RawQuery)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		body, err := query(r, g.o.API.Within(grant.Workspaces), p)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		write(w, http.StatusOK, body)
	}
}

// events serves pages and live streams, as the client prefers.
func (g *Gateway) events(w http.ResponseWriter, r *http.Request, grant *access.Grant) {
	w.Header().Set("Vary", "Accept")
	if prefersStream(r.Header) {
		g.stream(w, r, grant)
		return
	}
	g.answer(func(r *http.Request, a *api.API, p api.Params) ([]byte, error) {
		if r.Header.Get(api.HeaderLastEventID) != "" {
			// A resume option that is ignored looks like one that works.
			return nil, &api.ParameterError{Parameter: api.HeaderLastEventID, Rule: "belongs to streaming, pages go on from after_seq"}
		}
		return a.Events(r.Context(), p, 0)
	})(w, r, grant)
}
