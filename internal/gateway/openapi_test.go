package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/materializer/store"
)

// description is the served OpenAPI document, and what answers are checked with.
type description struct {
	t       *testing.T
	doc     map[string]any
	c       *jsonschema.Compiler
	covered map[string]bool // path and status
}

func newDescription(t *testing.T, body string) *description {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("openapi.json", parsed))
	return &description{t: t, doc: parsed.(map[string]any), c: c, covered: map[string]bool{}}
}

// at returns what stands in the document, nil if nothing does.
func (d *description) at(keys ...string) any {
	var v any = d.doc
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// check requires that an answer is described, and that it is as described.
func (d *description) check(method, path string, a answer) {
	d.t.Helper()
	kind, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	keys := []string{"paths", path, strings.ToLower(method), "responses", fmt.Sprint(a.StatusCode), "content", kind, "schema"}
	require.NotNil(d.t, d.at(keys...), "%s %s %d %s is not described", method, path, a.StatusCode, kind)
	d.covered[method+" "+path+" "+fmt.Sprint(a.StatusCode)] = true
	if kind != "application/json" {
		return
	}
	for i, k := range keys {
		keys[i] = url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1"))
	}
	schema, err := d.c.Compile("openapi.json#/" + strings.Join(keys, "/"))
	require.NoError(d.t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
	require.NoError(d.t, err)
	require.NoError(d.t, schema.Validate(v), "%s %s: %s", method, path, a.body)
	// A member that is there and not described is described wrongly.
	for name := range v.(map[string]any) {
		if d.closed(keys) {
			require.Contains(d.t, d.properties(path, method, a.StatusCode), name, "%s %s: %s", method, path, a.body)
		}
	}
}

func (d *description) closed(keys []string) bool { return !strings.Contains(keys[1], "openapi") }

// properties returns the members that the answer's schema names.
func (d *description) properties(path, method string, status int) map[string]any {
	r, _ := d.at("paths", path, strings.ToLower(method), "responses", fmt.Sprint(status), "content", "application/json", "schema", "$ref").(string)
	p, _ := d.at("components", "schemas", strings.TrimPrefix(r, "#/components/schemas/"), "properties").(map[string]any)
	return p
}

// Every answer of every path, with and without a fault, is one that the served
// description has; and each path that it has is there.
func TestOpenAPI(t *testing.T) {
	g := startGuarded(t)
	d := newDescription(t, g.get(t, "", "/api/v1/openapi.json").body)
	require.Equal(t, "3.1.0", d.doc["openapi"])
	k := bus.Key{Workspace: "acme", Session: "seen"}
	g.commit(&store.Commit{Position: g.pos, Sessions: []store.SessionWrite{{Key: k, Exists: true}}})
	for _, c := range []struct {
		token, path, ask string
		status           int
	}{
		{"", "/", "/", 200},
		{"", "/healthz", "/healthz", 200},
		{"", "/readyz", "/readyz", 200},
		{g.all, "/readyz", "/readyz", 200},
		{"", "/api/v1/openapi.json", "/api/v1/openapi.json", 200},
		{g.all, "/api/v1/events", "/api/v1/events?after_seq=0", 200},
		{g.all, "/api/v1/events", "/api/v1/events?after_seq=x", 400},
		{g.all, "/api/v1/events", "/api/v1/events?after_seq=99999", 400},
		{g.all, "/api/v1/events", "/api/v1/events?after_seq=e9:1", 409},
		{"x", "/api/v1/events", "/api/v1/events", 401},
		{g.all, "/api/v1/sessions", "/api/v1/sessions", 200},
		{g.all, "/api/v1/sessions", "/api/v1/sessions?limit=1", 200},
		{g.all, "/api/v1/sessions", "/api/v1/sessions?limit=0", 400},
		{"x", "/api/v1/sessions", "/api/v1/sessions", 401},
		{g.all, "/api/v1/sessions/{id}", "/api/v1/sessions/seen", 200},
		{g.all, "/api/v1/sessions/{id}", "/api/v1/sessions/live", 409},
		{g.all, "/api/v1/sessions/{id}", "/api/v1/sessions/nobody", 404},
		{g.all, "/api/v1/sessions/{id}", "/api/v1/sessions/%00", 400},
		{"x", "/api/v1/sessions/{id}", "/api/v1/sessions/x", 401},
		{g.all, "/api/v1/status", "/api/v1/status", 200},
		{"x", "/api/v1/status", "/api/v1/status", 401},
		{g.acme, "/api/v1/status", "/api/v1/status", 403},
		{g.all, "/api/v1/status", "/api/v1/status?x=1", 400},
		{g.all, "/metrics", "/metrics", 200},
		{g.acme, "/metrics", "/metrics", 403},
		{"x", "/metrics", "/metrics", 401},
	} {
		a := g.get(t, c.token, c.ask)
		require.Equal(t, c.status, a.StatusCode, c.ask)
		d.check("GET", c.path, a)
	}
	g.prune(4)
	d.check("GET", "/api/v1/events", g.get(t, g.all, "/api/v1/events?after_seq=1"))
	s := open(t, clients(t)["HTTP/1.1"], g.url("/api/v1/events"), "Authorization", "Bearer "+g.all)
	d.check("GET", "/api/v1/events", answer{s.Response, ""})
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/api/v1/login", `{"token":"` + g.acme + `"}`, 200}, {"/api/v1/login", `{"token":"x"}`, 401}, {"/api/v1/login", `{}`, 400},
		{"/api/v1/logout", "", 200},
	} {
		resp, err := http.Post(g.url(c.path), "application/json", strings.NewReader(c.body))
		require.NoError(t, err)
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, c.status, resp.StatusCode, c.path)
		d.check("POST", c.path, answer{resp, b.String()})
	}

	// What goes wrong on the server's side.
	w := startWorld(t, gateway.Options{Health: func() []gateway.Check { return []gateway.Check{{Name: "x", Detail: "y"}} }}, api.Options{})
	d.check("GET", "/readyz", do(t, "GET", w.URL()+"/readyz"))
	w.breakTable(func() {
		for path, ask := range map[string]string{
			"/api/v1/events": "/api/v1/events", "/api/v1/sessions/{id}": "/api/v1/sessions/x", "/api/v1/status": "/api/v1/status",
		} {
			if path == "/api/v1/sessions/{id}" {
				continue // it needs no position
			}
			a := do(t, "GET", w.URL()+ask)
			require.Equal(t, http.StatusInternalServerError, a.StatusCode, ask)
			d.check("GET", path, a)
		}
	})
	off := startWorld(t, gateway.Options{}, api.Options{Ready: func() error { return bus.ErrUnavailable }})
	for _, c := range []struct{ path, ask string }{
		{"/api/v1/events", "/api/v1/events"}, {"/api/v1/sessions", "/api/v1/sessions"}, {"/api/v1/sessions/{id}", "/api/v1/sessions/x"},
	} {
		a := do(t, "GET", off.URL()+c.ask)
		require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, c.ask)
		d.check("GET", c.path, a)
	}
	for _, path := range []string{"/api/v1/login", "/api/v1/logout"} {
		a := do(t, "POST", off.URL()+path, "Content-Type", "application/json")
		require.Equal(t, http.StatusNotFound, a.StatusCode, path)
		d.check("POST", path, a)
	}
	for path, item := range d.at("paths").(map[string]any) {
		for method := range item.(map[string]any) {
			// Reached by a name that could be another site's.
			a := doAs(t, strings.ToUpper(method), off.URL()+strings.ReplaceAll(path, "{id}", "x"), "evil.example")
			require.Equal(t, http.StatusForbidden, a.StatusCode, path)
			d.check(strings.ToUpper(method), path, a)
		}
	}
	for path, item := range d.at("paths").(map[string]any) {
		for method := range item.(map[string]any) {
			require.True(t, d.covered[strings.ToUpper(method)+" "+path+" 200"], "%s %s is described and was not tried", method, path)
			other := "POST"
			if method == "post" {
				other = "GET"
			}
			a := do(t, other, g.url(strings.ReplaceAll(path, "{id}", "x")))
			require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode, path)
			// It is described beside the method that is allowed.
			d.check(strings.ToUpper(method), path, a)
			for status := range d.at("paths", path, method, "responses").(map[string]any) {
				tried := strings.ToUpper(method) + " " + path + " " + status
				// These need a file that fails in the middle of a query.
				rare := []string{"GET /api/v1/sessions 500", "GET /api/v1/sessions/{id} 500", "GET /api/v1/status 503"}
				require.True(t, d.covered[tried] || slices.Contains(rare, tried), "%s is described and was not tried", tried)
			}
		}
	}
}

// doAs is do at a gateway that the caller calls by that name.
func doAs(t *testing.T, method, address, host string) answer {
	t.Helper()
	req, err := http.NewRequest(method, address, nil)
	require.NoError(t, err)
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(body)}
}

// All references lead somewhere, and each operation has a name of its own.
func TestOpenAPI_Whole(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	d := newDescription(t, do(t, "GET", g.URL()+"/api/v1/openapi.json").body)
	names := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			if r, ok := v["$ref"].(string); ok {
				require.NotNil(t, d.at(strings.Split(strings.TrimPrefix(r, "#/"), "/")...), r)
			}
			if id, ok := v["operationId"].(string); ok {
				require.False(t, names[id], id)
				names[id] = true
			}
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(d.doc)
	require.Len(t, names, 11)
	text, err := json.Marshal(d.doc)
	require.NoError(t, err)
	for _, code := range []api.Code{
		api.CodeBadParameter, api.CodeCursorAhead, api.CodeCursorGone, api.CodeOtherEpoch, api.CodeNotFound, api.CodeAmbiguous,
		api.CodeBehind, api.CodeUnavailable, api.CodeInternal, api.CodeUnauthorized, api.CodeForbidden, api.CodeNotAllowed,
	} {
		require.Contains(t, string(text), `"`+string(code)+`"`)
	}
}
