package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// guarded is a gateway with a token for all workspaces, one for acme and one for two.
type guarded struct {
	*world
	tokens           *access.Tokens
	file             string
	all, acme, two   string
	allLine, twoLine []byte
	log              *bytes.Buffer
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{file: filepath.Join(t.TempDir(), "tokens"), log: new(bytes.Buffer)}
	var acmeLine []byte
	var err error
	g.all, g.allLine, err = access.New("all", nil)
	require.NoError(t, err)
	g.acme, acmeLine, err = access.New("acme", []string{"acme"})
	require.NoError(t, err)
	g.two, g.twoLine, err = access.New("two", []string{"acme", "w"})
	require.NoError(t, err)
	g.write(t, g.allLine, acmeLine, g.twoLine)
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.tokens, err = access.Open(g.file, nil)
	require.NoError(t, err)
	g.world = startWorld(t, gateway.Options{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintln(w, "figures")
		}),
		Tokens: g.tokens, Listen: "0.0.0.0:0", Logger: log}, api.Options{Logger: log})
	g.put("acme", 1)
	g.put("other", 1)
	return g
}

func (g *guarded) write(t *testing.T, lines ...[]byte) {
	t.Helper()
	skaldtest.ReplaceFile(t, g.file, append(bytes.Join(lines, []byte("\n")), '\n'))
}

func (g *guarded) url(path string) string {
	_, port, _ := strings.Cut(strings.TrimPrefix(g.Addr(), "[::]"), ":")
	return "http://127.0.0.1:" + port + path
}

func (g *guarded) get(t *testing.T, token, path string) answer {
	t.Helper()
	if token == "" {
		return do(t, http.MethodGet, g.url(path))
	}
	return do(t, http.MethodGet, g.url(path), "Authorization", "Bearer "+token)
}

// numbers returns the numbers of a page.
func numbers(t *testing.T, a answer) []int {
	t.Helper()
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var p struct{ Events []struct{ Seq int } }
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	out := []int{}
	for _, e := range p.Events {
		out = append(out, e.Seq)
	}
	return out
}

// Without a known token nothing is answered but that the process is there, and what
// describes the API.
func TestTokens_Needed(t *testing.T) {
	g := startGuarded(t)
	for _, path := range []string{"/api/v1/events", "/api/v1/sessions", "/api/v1/sessions/a.b", "/api/v1/status", "/metrics"} {
		for _, token := range []string{"", "x", g.all + "x", strings.Repeat("x", 5000)} {
			a := g.get(t, token, path)
			require.Equal(t, http.StatusUnauthorized, a.StatusCode, path)
			require.Equal(t, `Bearer realm="skald"`, a.Header.Get("WWW-Authenticate"))
			require.Contains(t, a.body, `"code":"unauthorized"`)
		}
		require.Equal(t, http.StatusOK, g.get(t, g.all, path).StatusCode, path)
	}
	require.Equal(t, http.StatusUnauthorized, do(t, http.MethodGet, g.url("/api/v1/events"), "Accept", "text/event-stream").StatusCode)
	require.Equal(t, http.StatusUnauthorized, do(t, http.MethodGet, g.url("/api/v1/events"), "Authorization", "Basic "+g.all).StatusCode)
	for _, path := range []string{"/", "/healthz", "/readyz", "/api/v1/openapi.json"} {
		require.Equal(t, http.StatusOK, g.get(t, "", path).StatusCode, path)
	}
}

// A token sees its workspaces and no other; what is not its own looks like what is not
// there, byte for byte.
func TestTokens_Scope(t *testing.T) {
	g := startGuarded(t)
	n := len(ids)
	require.Equal(t, []int{n + 1}, numbers(t, g.get(t, g.acme, "/api/v1/events?after_seq=0")))
	require.Len(t, numbers(t, g.get(t, g.two, "/api/v1/events?after_seq=0")), n+1)
	require.Len(t, numbers(t, g.get(t, g.all, "/api/v1/events?after_seq=0")), n+2)
	require.Equal(t, []int{n + 1}, numbers(t, g.get(t, g.two, "/api/v1/events?after_seq=0&session_id=live")))
	require.Contains(t, g.get(t, g.all, "/api/v1/sessions/live").body, `"candidates":["acme","other"]`)
	require.Contains(t, g.get(t, g.two, "/api/v1/sessions/live").body, `"workspace_id":"acme"`)
	for _, path := range []string{
		"/api/v1/events?after_seq=0&workspace_id=WHERE", "/api/v1/sessions?workspace_id=WHERE",
		"/api/v1/sessions/live?workspace_id=WHERE", "/api/v1/events?after_seq=0&workspace_id=WHERE&session_id=live",
	} {
		foreign := g.get(t, g.acme, strings.ReplaceAll(path, "WHERE", "other"))
		unknown := g.get(t, g.acme, strings.ReplaceAll(path, "WHERE", "nobody"))
		require.Equal(t, unknown.StatusCode, foreign.StatusCode, path)
		require.Equal(t, unknown.body, foreign.body, path)
	}
	// Wildcards and ways around are ids that are not known.
	for _, id := range []string{"*", ">", "acme.>", "other.live", "%25", "_", "..%2Fother", "acme%00", "", "acme&workspace_id=other"} {
		for _, name := range []string{"workspace_id", "session_id"} {
			a := g.get(t, g.acme, "/api/v1/events?after_seq=0&"+name+"="+id)
			require.NotContains(t, a.body, "other", id)
			if a.StatusCode != http.StatusBadRequest {
				require.Empty(t, numbers(t, a), id)
			}
		}
	}
	a := g.get(t, g.acme, "/api/v1/status")
	require.Equal(t, http.StatusForbidden, a.StatusCode)
	require.Contains(t, a.body, `"code":"forbidden"`)
}

// A stream shows what its token may read, and ends when the token is revoked.
func TestTokens_Stream(t *testing.T) {
	g := startGuarded(t)
	t.Cleanup(run(t, g.tokens.Run))
	c := clients(t)["HTTP/1.1"]
	s := open(t, c, g.url("/api/v1/events"), "Authorization", "Bearer "+g.acme)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return g.hub.Stats().Readers == 1 })
	g.put("other", 1)
	g.put("acme", 1)
	e, err := s.Next()
	require.NoError(t, err)
	require.Contains(t, string(e.Data), `"workspace_id":"acme"`)

	g.write(t, []byte("{not a line"))
	g.tokens.Check()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return g.tokens.Problem() != nil })
	require.Equal(t, http.StatusOK, g.get(t, g.acme, "/api/v1/events").StatusCode, "a wrong file changes nothing")
	g.write(t, g.allLine, g.twoLine)
	g.tokens.Check()
	e, err = s.Next()
	require.NoError(t, err)
	require.Equal(t, "stream_error", e.Name)
	require.Contains(t, string(e.Data), `"code":"unauthorized"`)
	_, err = s.Next()
	require.Equal(t, io.EOF, err)
	require.NoError(t, g.tokens.Problem())
	require.Equal(t, http.StatusUnauthorized, g.get(t, g.acme, "/api/v1/events").StatusCode)
}

// A browser gets a cookie for a token that no script can read and no other site can
// send, and logs out. No token is in any log.
func TestTokens_Login(t *testing.T) {
	g := startGuarded(t)
	post := func(path, body string, headers ...string) *http.Response {
		req, err := http.NewRequest(http.MethodPost, g.url(path), strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		return resp
	}
	in := post("/api/v1/login", `{"token":"`+g.acme+`"}`)
	require.Equal(t, http.StatusOK, in.StatusCode)
	require.Len(t, in.Cookies(), 1)
	c := in.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.False(t, c.Secure)
	require.True(t, post("/api/v1/login", `{"token":"`+g.acme+`"}`, "X-Forwarded-Proto", "https").Cookies()[0].Secure)
	cookie := c.Name + "=" + c.Value
	require.Equal(t, []int{len(ids) + 1}, numbers(t, do(t, http.MethodGet, g.url("/api/v1/events?after_seq=0"), "Cookie", cookie)))
	s := open(t, clients(t)["HTTP/1.1"], g.url("/api/v1/events?after_seq=0"), "Cookie", cookie)
	e, err := s.Next()
	require.NoError(t, err)
	require.Contains(t, string(e.Data), `"workspace_id":"acme"`)

	require.Equal(t, http.StatusUnauthorized, post("/api/v1/login", `{"token":"wrong"}`).StatusCode)
	require.Equal(t, http.StatusBadRequest, post("/api/v1/login", `{}`).StatusCode)
	require.Equal(t, http.StatusBadRequest, post("/api/v1/login", `{"token":"`+strings.Repeat("x", 5000)+`"}`).StatusCode)
	require.Equal(t, http.StatusBadRequest, post("/api/v1/login", `{"token":"`+g.acme+`"}`, "Content-Type", "text/plain").StatusCode)
	require.Equal(t, http.StatusForbidden, post("/api/v1/login", `{"token":"`+g.acme+`"}`, "Origin", "http://evil.example").StatusCode)
	out := post("/api/v1/logout", "")
	require.Equal(t, http.StatusOK, out.StatusCode)
	require.Negative(t, out.Cookies()[0].MaxAge)
	get := do(t, http.MethodGet, g.url("/api/v1/login"))
	require.Equal(t, http.StatusMethodNotAllowed, get.StatusCode)
	require.Equal(t, "POST", get.Header.Get("Allow"))
	g.stop()
	for _, token := range []string{g.all, g.acme, g.two} {
		require.NotContains(t, g.log.String(), token)
	}
}

// Without tokens only this machine's own names are answered to: a page of another site
// whose name is made to lead here is not.
func TestOpen_Host(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:7525": 200, "127.0.0.1": 200, "127.8.8.8:80": 200, "[::1]:7525": 200, "localhost.": 200,
		"evil.example": 403, "evil.example:7525": 403, "127.0.0.1.evil.example": 403, "192.0.2.1": 403, "localhost.evil.example": 403,
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			req, err := http.NewRequest(http.MethodHead, g.URL()+"/api/v1/events", nil)
			require.NoError(t, err)
			req.Host = host
			req.Header.Set("Accept", accept)
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, status, resp.StatusCode, host)
		}
	}
	require.Equal(t, http.StatusNotFound, do(t, http.MethodPost, g.URL()+"/api/v1/login").StatusCode, "there is nothing to log in to")
	a := do(t, http.MethodGet, g.URL()+"/api/v1/events")
	require.Equal(t, "default-src 'none'; frame-ancestors 'none'", a.Header.Get("Content-Security-Policy"))
	require.Equal(t, "same-origin", a.Header.Get("Cross-Origin-Resource-Policy"))
	require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
}
