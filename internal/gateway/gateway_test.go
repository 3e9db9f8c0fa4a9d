package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

func TestMain(m *testing.M) { skaldtest.VerifyLeaks(m) }

// ids are ids of sessions that HTTP paths, proxies and routers do not like.
var ids = []string{
	"a b", "a.b", "a..b", ".a", "a.", ".", "..", "...", "*", ">", "a/b", "/", "//", "a%2Fb", "%", "é", "日本", "a:b", "a?b", "a#b",
	"a&b=c", "a+b", `a\b`, `"`, "s;t", strings.Repeat("x", 256), "\u2028",
}

// world is a gateway over a store that holds one event of each of ids in workspace w.
type world struct {
	*gateway.Gateway
	t     *testing.T
	store *store.Store
	hub   *live.Hub
	path  string
	pos   store.Position
	stop  func()
}

func startWorld(t *testing.T, o gateway.Options, a api.Options) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "skald.db")}
	s, err := store.Open(w.path, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w.store = s
	require.NoError(t, s.Adopt(context.Background(), store.Bus{Epoch: "e1", IngestID: "i1"}))
	w.hub, err = live.New(context.Background(), live.Options{Reader: s.Reader()})
	require.NoError(t, err)
	w.pos = store.Position{IngestSeq: uint64(len(ids)), EventsSeq: uint64(len(ids))}
	c := store.Commit{Position: w.pos}
	for i, id := range ids {
		c.Rows = append(c.Rows, store.Row{
			Seq: uint64(i + 1), Key: bus.Key{Workspace: "w", Session: id}, Type: bus.TypeError, RecordedAt: 1,
			Origin: bus.Origin{Seq: uint64(i + 1), Time: 1e9}, Data: []byte(`{"message":"x","command_id":null}`),
		})
	}
	w.commit(&c)
	a.Reader = s.Reader()
	o.API, o.Live = api.New(a), w.hub
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Health == nil {
		o.Health = func() []gateway.Check { return []gateway.Check{{Name: "x", OK: true}} }
	}
	w.Gateway, err = gateway.New(o)
	require.NoError(t, err)
	// The hub outlives the gateway, as in serve.
	w.stop = sync.OnceFunc(chain(run(t, w.Run), run(t, w.hub.Run), http.DefaultClient.CloseIdleConnections))
	t.Cleanup(w.stop)
	return w
}

// run runs a part, and returns what stops it.
func run(t *testing.T, part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

func chain(fns ...func()) func() {
	return func() {
		for _, fn := range fns {
			fn()
		}
	}
}

// commit commits, and tells the hub.
func (w *world) commit(c *store.Commit) {
	w.t.Helper()
	require.NoError(w.t, w.store.Commit(context.Background(), c))
	w.hub.Committed(c.Position)
}

func (w *world) prune(before uint64) {
	w.t.Helper()
	w.commit(&store.Commit{Position: w.pos, PruneBefore: before})
}

// start is startWorld for tests that need its parts only.
func start(t *testing.T, o gateway.Options, a api.Options) (*gateway.Gateway, *store.Store) {
	t.Helper()
	w := startWorld(t, o, a)
	return w.Gateway, w.store
}

type answer struct {
	*http.Response
	body string
}

func do(t *testing.T, method, address string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, address, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(body)}
}

// Every answer but the index is JSON that nobody caches or takes for something
// else, with the status of its code; what is no answer says which rule it breaks.
func TestGateway_Answers(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for _, c := range []struct {
		path   string
		status int
		code   string
	}{
		{"/api/v1/events", 200, ""},
		{"/api/v1/events?after_seq=0&limit=1001", 200, ""},
		{"/api/v1/events?after_seq=-1", 400, "bad_parameter"},
		{"/api/v1/events?after_seq=99", 400, "cursor_ahead"},
		{"/api/v1/events?after_seq=other:1", 409, "other_epoch"},
		{"/api/v1/events?after_seq=%zz", 400, "bad_parameter"},
		{"/api/v1/events?a;b", 400, "bad_parameter"},
		{"/api/v1/events?follow", 400, "bad_parameter"},
		{"/api/v1/sessions", 200, ""},
		{"/api/v1/sessions?limit=0", 400, "bad_parameter"},
		{"/api/v1/sessions/a.b", 200, ""},
		{"/api/v1/sessions/a.b?workspace_id=other", 404, "not_found"},
		{"/api/v1/sessions/a.b?limit=1", 400, "bad_parameter"},
		{"/api/v1/sessions/", 400, "bad_parameter"},
		{"/api/v1/sessions/nobody", 404, "not_found"},
		{"/api/v1/sessions/" + strings.Repeat("x", 257), 400, "bad_parameter"},
		{"/api/v1/sessions/a%0D%0AB", 400, "bad_parameter"},
		{"/api/v1/sessions/%00", 400, "bad_parameter"},
		{"/api/v1/sessions/%FF", 400, "bad_parameter"},
		{"/api/v1/sessions/a/b", 404, "not_found"},
		{"/api/v1/status", 200, ""},
		{"/api/v1/status?x=1", 400, "bad_parameter"},
		{"/api/v1/", 404, "not_found"},
		{"/api/v1/events/", 404, "not_found"},
		{"/api//v1/events", 404, "not_found"},
		{"/api/v1/../v1/events", 404, "not_found"},
		{"/favicon.ico", 404, "not_found"},
		{"/metrics", 404, "not_found"}, // none were given
		{"/healthz", 200, ""},
		{"/readyz", 200, ""},
	} {
		a := do(t, http.MethodGet, g.URL()+c.path)
		require.Equal(t, c.status, a.StatusCode, c.path)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), c.path)
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"), c.path)
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"), c.path)
		var e struct{ Error, Code string }
		require.NoError(t, json.Unmarshal([]byte(a.body), &e), a.body)
		require.Equal(t, c.code, e.Code, c.path)
		require.Equal(t, c.code != "", e.Error != "", c.path)
	}
	require.Equal(t, `{"status":"ok"}`, do(t, http.MethodGet, g.URL()+"/healthz").body)
	index := do(t, http.MethodGet, g.URL()+"/")
	require.Equal(t, "text/plain; charset=utf-8", index.Header.Get("Content-Type"))
	require.Contains(t, index.body, "GET  /api/v1/sessions/{id}")
}

// Any id can be asked for by its path and by a filter, and gives its own session
// and event and no other.
func TestGateway_AnyID(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for i, id := range ids {
		a := do(t, http.MethodGet, g.URL()+"/api/v1/sessions/"+strings.ReplaceAll(url.PathEscape(id), ".", "%2E"))
		require.Equal(t, http.StatusOK, a.StatusCode, "%q: %s", id, a.body)
		var s struct {
			ID string `json:"session_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &s))
		require.Equal(t, id, s.ID)
		a = do(t, http.MethodGet, g.URL()+"/api/v1/events?after_seq=0&session_id="+url.QueryEscape(id))
		var p struct{ Events []struct{ Seq int } }
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		require.Len(t, p.Events, 1, "%q", id)
		require.Equal(t, i+1, p.Events[0].Seq, "%q", id)
	}
}

// Only GET and HEAD; HEAD is GET without the body.
func TestGateway_Methods(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		for _, path := range []string{"/", "/api/v1/events", "/api/v1/sessions/x", "/readyz"} {
			a := do(t, method, g.URL()+path)
			require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
			require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
			require.Contains(t, a.body, `"code":"method_not_allowed"`)
		}
		require.Equal(t, http.StatusNotFound, do(t, method, g.URL()+"/nothing").StatusCode)
	}
	get, head := do(t, "GET", g.URL()+"/api/v1/events"), do(t, "HEAD", g.URL()+"/api/v1/events")
	require.Equal(t, get.Header.Get("Content-Length"), head.Header.Get("Content-Length"))
	require.Empty(t, head.body)
}

// A client that rather takes a stream gets one, any other gets JSON; and what belongs
// to one of them is not silently ignored by the other.
func TestGateway_Accept(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	const stream, json = "text/event-stream", "application/json"
	for accept, kind := range map[string]string{
		"text/event-stream":                        stream,
		"text/event-stream; q=1, text/html":        stream,
		"TEXT/Event-Stream":                        stream,
		"text/event-stream;q=0.5, */*;q=0.1":       stream,
		"text/event-stream, */*":                   stream,
		"application/json;q=0.1,text/event-stream": stream,
		"application/json, text/event-stream":      json,
		"text/event-stream;q=0.1, */*":             json,
		"text/event-stream;q=0":                    json,
		"application/json":                         json,
		"text/html,application/xhtml+xml,*/*;q=.8": json,
		"": json,
	} {
		a := do(t, http.MethodHead, g.URL()+"/api/v1/events?after_seq=0", "Accept", accept)
		require.Equal(t, http.StatusOK, a.StatusCode, accept)
		require.Equal(t, kind, a.Header.Get("Content-Type"), accept)
	}
	a := do(t, http.MethodGet, g.URL()+"/api/v1/events", "Last-Event-ID", "5")
	require.Equal(t, http.StatusBadRequest, a.StatusCode)
	require.Contains(t, a.body, `"parameter":"Last-Event-ID"`)
	a = do(t, http.MethodGet, g.URL()+"/api/v1/events?limit=5", "Accept", stream)
	require.Equal(t, http.StatusBadRequest, a.StatusCode)
	require.Contains(t, a.body, `"parameter":"limit"`)
}

// Readiness has a line for each check and is 503 while one fails.
func TestGateway_Ready(t *testing.T) {
	checks := []gateway.Check{{Name: "store", OK: true}, {Name: "nats", OK: true, Detail: "slow"}}
	g, _ := start(t, gateway.Options{Health: func() []gateway.Check { return checks }}, api.Options{})
	a := do(t, http.MethodGet, g.URL()+"/readyz")
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, `{"ready":true,"checks":[{"name":"store","ok":true},{"name":"nats","ok":true,"detail":"slow"}]}`, a.body)
	checks = []gateway.Check{{Name: "store", OK: true}, {Name: "nats", Detail: "disconnected"}}
	a = do(t, http.MethodGet, g.URL()+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	require.Equal(t, `{"ready":false,"checks":[{"name":"store","ok":true},{"name":"nats","ok":false,"detail":"disconnected"}]}`, a.body)
	require.Equal(t, http.StatusOK, do(t, http.MethodGet, g.URL()+"/healthz").StatusCode, "alive all the same")
}

// What can not be answered now says when to try again, and nothing of the reason.
func TestGateway_Unavailable(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{Ends: func(context.Context) (api.Ends, error) {
		return api.Ends{}, errors.New("nats://user:pa55@host is gone")
	}})
	a := do(t, http.MethodGet, g.URL()+"/api/v1/events?after_seq=99")
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Contains(t, a.body, `"code":"unavailable"`)
	require.NotContains(t, a.body, "pa55")
	require.Equal(t, http.StatusOK, do(t, http.MethodGet, g.URL()+"/api/v1/status").StatusCode)
}

// Without tokens it listens where only this machine can reach it.
func TestNew_RefusesOtherAddresses(t *testing.T) {
	o := gateway.Options{API: new(api.API), Live: new(live.Hub), Health: func() []gateway.Check { return nil }}
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1.example.com:0"} {
		o.Listen = listen
		_, err := gateway.New(o)
		require.ErrorIs(t, err, gateway.ErrNotLoopback, listen)
		require.ErrorContains(t, err, "loopback", listen)
	}
	for _, listen := range []string{"127.0.0.1", "127.0.0.1:http:1", "127.0.0.1:99999", "127.0.0.1:x"} {
		o.Listen = listen
		_, err := gateway.New(o)
		require.ErrorIs(t, err, gateway.ErrListen, listen)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	o.Listen = l.Addr().String()
	_, err = gateway.New(o)
	require.ErrorIs(t, err, gateway.ErrListen)
	require.ErrorContains(t, err, o.Listen, "the address in use is named")
	require.Equal(t, err, gateway.Try(o.Listen, false))
	require.ErrorIs(t, gateway.Try("0.0.0.0:0", false), gateway.ErrNotLoopback)
	require.NoError(t, gateway.Try("127.0.0.1:0", false))
	o.Listen = "localhost:0"
	g, err := gateway.New(o)
	require.NoError(t, err)
	require.NoError(t, g.Close())
}

// Stopping lets an answer in progress end, and takes no new requests.
func TestRun_StopsGracefully(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	defer s.Close()
	asked, release := make(chan struct{}), make(chan struct{})
	a := api.New(api.Options{Reader: s.Reader(), Ends: func(context.Context) (api.Ends, error) {
		close(asked)
		<-release
		return api.Ends{}, nil
	}})
	g, err := gateway.New(gateway.Options{API: a, Listen: "127.0.0.1:0", Live: new(live.Hub), Health: func() []gateway.Check { return nil }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	got := make(chan int, 1)
	go func() {
		resp, err := http.Get(g.URL() + "/api/v1/status")
		if err != nil {
			got <- 0
			return
		}
		resp.Body.Close()
		got <- resp.StatusCode
	}()
	<-asked
	cancel()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", g.Addr())
		if err == nil {
			c.Close()
		}
		return err != nil
	}, skaldtest.Timeout, 5*time.Millisecond, "the address is given back while the answer is on its way")
	close(release)
	require.Equal(t, http.StatusOK, <-got)
	require.NoError(t, <-ended)
	http.DefaultClient.CloseIdleConnections()
}
