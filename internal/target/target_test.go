package target_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/store"
)

// ids are session ids that one door or another would not like as they are.
var ids = []string{"plain", "a b", "a.b", ".", "..", "*", ">", "a/b", "a%2Fb", "é", "日本", "a?b#c&d=e+f", "\u2028", strings.Repeat("é", 128)}

// doors returns the three targets over one store: the file, HTTP and NATS. Each
// of ids is a session of workspace w with one event; "both" is in w and in v.
func doors(t *testing.T) map[string]target.Target {
	t.Helper()
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "we ird?#%20ü")
	require.NoError(t, os.Mkdir(dir, 0o700))
	st, err := store.Open(filepath.Join(dir, target.StoreFile), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Adopt(ctx, store.Bus{Epoch: "e1", IngestID: "i1"}))
	var c store.Commit
	add := func(k bus.Key) {
		seq := uint64(len(c.Rows) + 1)
		c.Rows = append(c.Rows, store.Row{
			Seq: seq, Key: k, Type: bus.TypeError, RecordedAt: 1, Origin: bus.Origin{Seq: seq, Time: 1e9},
			Data: []byte(`{"message":"<&>` + "\u2028" + `\u0000","command_id":null}`),
		})
	}
	for _, id := range ids {
		add(bus.Key{Workspace: "w", Session: id})
	}
	add(bus.Key{Workspace: "w", Session: "both"})
	add(bus.Key{Workspace: "v", Session: "both"})
	n := uint64(len(c.Rows))
	c.Position = store.Position{IngestSeq: n, EventsSeq: n}
	require.NoError(t, st.Commit(ctx, &c))

	a := api.New(api.Options{Reader: st.Reader(), Ends: func(context.Context) (api.Ends, error) {
		return api.Ends{IngestLast: n, EventsLast: n}, nil
	}})
	server := skaldtest.Server(t)
	own, err := server.InProcess()
	require.NoError(t, err)
	t.Cleanup(own.Close)
	subjects, err := bus.NewSubjects("")
	require.NoError(t, err)
	s := service.New(service.Options{API: a, Conn: own, Subjects: subjects, Version: "0.0.0"})
	hub, err := live.New(ctx, live.Options{Reader: st.Reader()})
	require.NoError(t, err)
	g, err := gateway.New(gateway.Options{API: a, Live: hub, Listen: "127.0.0.1:0", Health: func() []gateway.Check { return nil }})
	require.NoError(t, err)
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- s.Run(run) }()
	go func() { ended <- g.Run(run) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})

	out := map[string]target.Target{}
	for name, o := range map[string]target.Options{
		"file": {Data: dir}, "http": {URL: g.URL() + "/"}, "nats": {Server: server.ClientURL()},
	} {
		d, err := target.Open(ctx, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		out[name] = d
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		_, err := out["nats"].Status(ctx)
		return err == nil
	})
	return out
}

// answer is what a door gave: a body, or a failure as JSON.
type answer struct{ body, failure string }

func same(t *testing.T, doors map[string]target.Target, what string, ask func(target.Target) ([]byte, error)) answer {
	t.Helper()
	got := map[string]answer{}
	for name, d := range doors {
		body, err := ask(d)
		if err != nil {
			got[name] = answer{failure: string(api.FailureOf(err).AppendJSON(nil))}
		} else {
			got[name] = answer{body: string(body)}
		}
	}
	require.Equal(t, got["file"], got["http"], what)
	require.Equal(t, got["file"], got["nats"], what)
	return got["file"]
}

// Every door gives the same bytes for the same query, and the same failure for the
// same mistake.
func TestTargets_GiveTheSame(t *testing.T) {
	d := doors(t)
	ctx := context.Background()
	for _, c := range []struct {
		raw  string
		code api.Code
	}{
		{"", ""},
		{"after_seq=0", ""},
		{"after_seq=&limit=", ""},
		{"after_seq=0&limit=2&session_id=a.b", ""},
		{"after_seq=0&workspace_id=v", ""},
		{"after_seq=0&workspace_id=*", ""},
		{"after_seq=0&workspace_id=%C3%A9&type=error", ""},
		{"after_seq=0&session_id=*&workspace_id=w", ""},
		{"after_seq=99", api.CodeCursorAhead},
		{"after_seq=x:1", api.CodeOtherEpoch},
		{"after_seq=-1", api.CodeBadParameter},
		{"after_seq=1.5", api.CodeBadParameter},
		{"after_seq=1&after_seq=2", api.CodeBadParameter},
		{"limit=0", api.CodeBadParameter},
		{"limit=ten", api.CodeBadParameter},
		{"limit=1000000000000000000000000000000", ""},
		{"session_id=", api.CodeBadParameter},
		{"workspace_id=", api.CodeBadParameter},
		{"workspace_id=%0D%0A", api.CodeBadParameter},
		{"workspace_id=" + strings.Repeat("w", 257), api.CodeBadParameter},
		{"type=", api.CodeBadParameter},
		{"follow=1", api.CodeBadParameter},
	} {
		p, err := api.ParseQuery(c.raw)
		require.NoError(t, err)
		a := same(t, d, c.raw, func(t target.Target) ([]byte, error) { return t.Events(ctx, p) })
		if c.code == "" {
			require.Empty(t, a.failure, c.raw)
		} else {
			require.Contains(t, a.failure, `"code":"`+string(c.code)+`"`, c.raw)
		}
	}
	for _, id := range append(ids, "nobody", "both", "", "a\nb", strings.Repeat("x", 257)) {
		a := same(t, d, id, func(t target.Target) ([]byte, error) { return t.Session(ctx, id, nil) })
		if id == "both" {
			require.Contains(t, a.failure, `"candidates":["v","w"]`)
		}
		for _, w := range []string{"w", "v", "*", "", "\x00"} {
			same(t, d, id+" in "+w, func(t target.Target) ([]byte, error) {
				return t.Session(ctx, id, api.Params{api.ParamWorkspace: {w}})
			})
		}
	}
	for _, raw := range []string{"", "limit=3", "limit=3&after=3", "workspace_id=v", "session_id=both", "after=-1", "session_id=", "type=x"} {
		p, err := api.ParseQuery(raw)
		require.NoError(t, err)
		same(t, d, raw, func(t target.Target) ([]byte, error) { return t.Sessions(ctx, p) })
	}
	fromHTTP, err := d["http"].Status(ctx)
	require.NoError(t, err)
	fromNATS, err := d["nats"].Status(ctx)
	require.NoError(t, err)
	require.Equal(t, string(fromHTTP), string(fromNATS))
	fromFile, err := d["file"].Status(ctx)
	require.NoError(t, err)
	require.Contains(t, string(fromFile), `"last_seq":null,"lag":null`, "a file does not know the server's numbers")
}

// Taking an answer apart leaves every byte of an event as it came.
func TestParse(t *testing.T) {
	d := doors(t)
	body, err := d["file"].Events(context.Background(), api.Params{"after_seq": {"0"}, "limit": {"3"}})
	require.NoError(t, err)
	p, err := target.ParsePage(body)
	require.NoError(t, err)
	require.Len(t, p.Events, 3)
	require.Equal(t, [4]any{uint64(3), uint64(16), uint64(1), "e1"}, [4]any{p.NextAfter, p.Latest, p.Oldest, p.Epoch})
	for _, e := range p.Events {
		require.Contains(t, string(body), string(e))
		require.Contains(t, string(e), `<&>`+"\u2028"+`\u0000`)
	}
	body, err = d["file"].Sessions(context.Background(), api.Params{"session_id": {"both"}})
	require.NoError(t, err)
	list, next, err := target.ParseSessions(body)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Len(t, list, 2)
	require.Equal(t, "v", list[0].Workspace)
	require.Equal(t, "both", list[1].Session)
	for _, bad := range []string{"", "[]", "<html>", `{"events":5}`, `{"events":[],"latest_seq":"1"}`, `{"epoch":5}`} {
		_, err = target.ParsePage([]byte(bad))
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"[]", `{"sessions":5}`, `{"sessions":[5]}`, `{"next_after":"x"}`} {
		_, _, err = target.ParseSessions([]byte(bad))
		require.Error(t, err, bad)
	}
	o, err := target.ParseOutcome([]byte(`{"outcome":"rejected","reason":"r","detail":"d","ingest_position":7}`))
	require.NoError(t, err)
	require.Equal(t, target.Outcome{Outcome: "rejected", Reason: "r", Detail: "d", IngestPosition: 7}, o)
}

// What is named counts, in the order of the documentation; then the environment,
// then what is there.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	all := target.Options{Data: "d", URL: "u", Server: "s"}
	require.Equal(t, all, all.Resolve("env"))
	require.Equal(t, target.Options{Server: "s"}, target.Options{Server: "s"}.Resolve("env"))
	require.Equal(t, target.Options{URL: target.DefaultURL}, target.Options{}.Resolve(""))
	require.Equal(t, target.Options{Server: "env"}, target.Options{}.Resolve("env"))
	require.NoError(t, os.Mkdir(target.DefaultData, 0o700))
	require.Equal(t, target.Options{URL: target.DefaultURL}, target.Options{}.Resolve(""), "a directory is no store")
	s, err := store.Open(filepath.Join(target.DefaultData, target.StoreFile), store.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, target.Options{Data: target.DefaultData}, target.Options{}.Resolve(""))
	require.Equal(t, target.Options{Server: "env"}, target.Options{}.Resolve("env"))
}

// A place that is not there, or is something else, is named without its password,
// with what to check.
func TestOpen_Unreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), skaldtest.Timeout)
	defer cancel()
	_, err := target.Open(ctx, target.Options{Data: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, store.ErrNoStore)
	for _, u := range []string{"127.0.0.1:80", "ftp://x", "http://", "://", "http://x?y=1", "http://me:pa55 @x"} {
		_, err = target.Open(ctx, target.Options{URL: u})
		require.ErrorIs(t, err, target.ErrUsage, u)
		require.NotContains(t, err.Error(), "pa55")
	}
	_, err = target.Open(ctx, target.Options{Server: "nats://me:pa55@127.0.0.1:1"})
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.NotContains(t, err.Error(), "pa55")
	_, err = target.Open(ctx, target.Options{Server: "nats://127.0.0.1:1", Prefix: "A.b"})
	require.ErrorIs(t, err, target.ErrUsage)
	_, err = target.Open(ctx, target.Options{})
	require.ErrorIs(t, err, target.ErrUsage)

	d, err := target.Open(ctx, target.Options{URL: "http://me:pa55@127.0.0.1:1"})
	require.NoError(t, err)
	_, err = d.Status(ctx)
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error()+d.String(), "pa55")

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such thing", http.StatusTeapot)
	}))
	defer other.Close()
	d, err = target.Open(ctx, target.Options{URL: other.URL})
	require.NoError(t, err)
	_, err = d.Status(ctx)
	require.ErrorContains(t, err, "418")
	require.ErrorContains(t, err, "no answer of skald's")

	server := skaldtest.Server(t)
	d, err = target.Open(ctx, target.Options{Server: server.ClientURL()})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Status(ctx)
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "is skald serve running")
}

// An id is one segment of the path that neither a client nor a proxy takes for
// more: slashes, and the dots of "." and "..", are escaped.
func TestHTTP_IDsInPaths(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
	}))
	defer server.Close()
	d, err := target.Open(context.Background(), target.Options{URL: server.URL + "/behind/a/proxy/"})
	require.NoError(t, err)
	defer d.Close()
	for id, path := range map[string]string{
		".": "%2E", "..": "%2E%2E", "a/b": "a%2Fb", "a%2Fb": "a%252Fb", "a b?c#d": "a%20b%3Fc%23d", "é": "%C3%A9", "...": "...",
	} {
		_, err := d.Session(context.Background(), id, api.Params{api.ParamWorkspace: {"w x"}})
		require.NoError(t, err)
		require.Equal(t, "/behind/a/proxy/api/v1/sessions/"+path+"?workspace_id=w+x", <-asked)
	}
}

// Without the permission, the error says which one is missing.
func TestNATS_NoPermission(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `listen: %q
authorization { users: [ { user: me, password: pa55, permissions: { publish: ["skald.api.w.>"] } } ] }`, skaldtest.FreeAddress(t)), 0o600))
	server := skaldtest.ServerWith(t, natsd.Options{ConfigFile: conf, SyncInterval: time.Minute})
	d, err := target.Open(t.Context(), target.Options{Server: strings.Replace(server.ClientURL(), "://", "://me:pa55@", 1)})
	require.NoError(t, err)
	defer d.Close()
	// The refusal comes by itself, on a busy machine after a short time-out.
	skaldtest.EventuallyWith(t, skaldtest.Timeout, func(c *assert.CollectT) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Status(ctx)
		require.ErrorIs(c, err, bus.ErrUnavailable)
		require.ErrorContains(c, err, "skald.op.status")
		require.ErrorIs(c, err, natsconn.ErrPermission)
		require.NotContains(c, err.Error(), "pa55")
	})
}
