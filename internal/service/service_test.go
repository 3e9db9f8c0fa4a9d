package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// ids are ids that a subject can not hold as they are.
var ids = []string{"a b", "a.b", "a..b", ".a", "*", ">", "a/b", "é", "日本", "=", "=2E", "$SYS", strings.Repeat("x", 256), strings.Repeat("é", 128)}

// fixture is a running service over a store that holds two events for each of
// ids: one with it as session of workspace "w", one as workspace of session "s".
type fixture struct {
	t  *testing.T
	nc *nats.Conn // a client's
}

func start(t *testing.T, prefix string, a api.Options, maxPayload int32) *fixture {
	t.Helper()
	ctx := context.Background()
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Adopt(ctx, store.Bus{Epoch: "e1", IngestID: "i1"}))
	var c store.Commit
	for _, id := range ids {
		for _, k := range []bus.Key{{Workspace: "w", Session: id}, {Workspace: id, Session: "s"}} {
			seq := uint64(len(c.Rows) + 1)
			c.Rows = append(c.Rows, store.Row{
				Seq: seq, Key: k, Type: bus.TypeError, Origin: bus.Origin{Seq: seq, Time: 1e9},
				Data: []byte(`{"message":"` + strings.Repeat("m", 1000) + `","command_id":null}`),
			})
		}
	}
	n := uint64(len(c.Rows))
	c.Position = store.Position{IngestSeq: n, EventsSeq: n, HighestTime: 1e9}
	require.NoError(t, st.Commit(ctx, &c))

	server, err := natsd.Start(ctx, natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncInterval: time.Minute, MaxPayload: maxPayload})
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	subjects, err := bus.NewSubjects(prefix)
	require.NoError(t, err)
	own, err := server.InProcess()
	require.NoError(t, err)
	t.Cleanup(own.Close)
	client, err := nats.Connect(server.ClientURL())
	require.NoError(t, err)
	t.Cleanup(client.Close)

	a.Reader = st.Reader()
	s := service.New(service.Options{API: api.New(a), Conn: own, Subjects: subjects, Version: "1.2.3"})
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(run) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.ErrorIs(t, s.Run(ctx), service.ErrRunning)
	})
	f := &fixture{t: t, nc: client}
	require.Eventually(t, func() bool {
		_, err := client.Request(subjects.Prefix()+".op.status", nil, time.Second)
		return err == nil
	}, skaldtest.Timeout, 5*time.Millisecond)
	return f
}

// ask returns the reply's body, and the code of the failure if it is one.
func (f *fixture) ask(subject, body string) (string, api.Code) {
	f.t.Helper()
	m, err := f.nc.Request(subject, []byte(body), skaldtest.Timeout)
	require.NoError(f.t, err, subject)
	status := m.Header.Get(micro.ErrorCodeHeader)
	if status == "" {
		require.Empty(f.t, m.Header.Get(micro.ErrorHeader))
		return string(m.Data), ""
	}
	var e struct {
		Error string
		Code  api.Code
	}
	require.NoError(f.t, json.Unmarshal(m.Data, &e), "%s", m.Data)
	require.NotEmpty(f.t, e.Error)
	require.NotEmpty(f.t, m.Header.Get(micro.ErrorHeader))
	require.Len(f.t, status, 3)
	return string(m.Data), e.Code
}

type page struct {
	Events []struct {
		Session   string `json:"session_id"`
		Workspace string `json:"workspace_id"`
	} `json:"events"`
	NextAfter uint64 `json:"next_after_seq"`
}

func decode[T any](t *testing.T, body string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(body), &v), body)
	return v
}

// Every endpoint answers what its subject names, whatever the id; and an id that
// looks like a wildcard reaches nothing but itself.
func TestService_AnyID(t *testing.T) {
	f := start(t, "", api.Options{}, 0)
	for _, id := range ids {
		token := bus.Escape(id)
		body, code := f.ask("skald.api."+token+".events", `{"after_seq":0}`)
		require.Empty(t, code, "%q: %s", id, body)
		p := decode[page](t, body)
		require.Len(t, p.Events, 1, "%q", id)
		require.Equal(t, id, p.Events[0].Workspace)

		body, code = f.ask("skald.api."+token+".sessions", "")
		require.Empty(t, code)
		require.Equal(t, 1, strings.Count(body, `"session_id":"s"`), body)

		body, code = f.ask("skald.api.w.session."+token, "{}")
		require.Empty(t, code, "%q: %s", id, body)
		require.Equal(t, id, decode[struct {
			ID string `json:"session_id"`
		}](t, body).ID)

		body, code = f.ask("skald.api.w.position."+token, "")
		require.Empty(t, code, body)
		require.Contains(t, body, `"ingest_position":28`)
		body, code = f.ask("skald.api.w.outcome."+token, `{"publisher":"p","publisher_seq":1}`)
		require.Empty(t, code, body)
		require.Equal(t, `{"outcome":"unknown","ingest_position":28}`, body)
	}
	body, code := f.ask("skald.op.events", `{"after_seq":"0","limit":1000}`)
	require.Empty(t, code)
	require.Len(t, decode[page](t, body).Events, 2*len(ids))
	body, code = f.ask("skald.op.sessions", `{"session_id":"s"}`)
	require.Empty(t, code)
	require.Equal(t, len(ids), strings.Count(body, `"session_id":"s"`))
	body, code = f.ask("skald.op.status", "")
	require.Empty(t, code)
	require.Contains(t, body, `"latest_seq":28`)
}

// What is no query is refused with the rule it breaks, and never widened.
func TestService_RefusesNonsense(t *testing.T) {
	f := start(t, "", api.Options{}, 0)
	for _, c := range []struct {
		subject, body string
		code          api.Code
		says          string
	}{
		{"skald.api.w.events", `{"after_seq":-1}`, api.CodeBadParameter, `"parameter":"after_seq"`},
		{"skald.api.w.events", `{"after_seq":1.5}`, api.CodeBadParameter, `"parameter":"after_seq"`},
		{"skald.api.w.events", `{"after_seq":1e3}`, api.CodeBadParameter, `"parameter":"after_seq"`},
		{"skald.api.w.events", `{"after_seq":null}`, api.CodeBadParameter, `"parameter":"after_seq"`},
		{"skald.api.w.events", `{"after_seq":99}`, api.CodeCursorAhead, `"latest_seq":28`},
		{"skald.api.w.events", `{"after_seq":"x:1"}`, api.CodeOtherEpoch, `"epoch":"e1"`},
		{"skald.api.w.events", `{"limit":0}`, api.CodeBadParameter, `"parameter":"limit"`},
		{"skald.api.w.events", `{"limit":"ten"}`, api.CodeBadParameter, `"parameter":"limit"`},
		{"skald.api.w.events", `{"follow":true}`, api.CodeBadParameter, `"parameter":"follow"`},
		{"skald.api.w.events", `{"session_id":""}`, api.CodeBadParameter, `"parameter":"session_id"`},
		{"skald.api.w.events", `{"session_id":5}`, api.CodeBadParameter, `"parameter":"session_id"`},
		{"skald.api.w.events", `[`, api.CodeBadParameter, `"parameter":"request"`},
		{"skald.api.w.events", "\xff", api.CodeBadParameter, `"parameter":"request"`},
		{"skald.api.w.events", `{"workspace_id":"other"}`, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.w.events", `{"workspace_id":"*"}`, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.w.sessions", `{"workspace_id":""}`, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.w.session.s", `{"session_id":"s"}`, api.CodeBadParameter, `"parameter":"session_id"`},
		{"skald.api.w.session.nobody", ``, api.CodeNotFound, ``},
		{"skald.api.other.session.a=2Eb", ``, api.CodeNotFound, ``},
		{"skald.api.é.events", ``, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.a=2e.events", ``, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.=41.events", ``, api.CodeBadParameter, `canonical`},
		{"skald.api.=.events", ``, api.CodeBadParameter, `"parameter":"workspace_id"`},
		{"skald.api.=0A.events", ``, api.CodeBadParameter, `control`},
		{"skald.api." + strings.Repeat("x", 257) + ".events", ``, api.CodeBadParameter, `257`},
		{"skald.api.w.session.=", ``, api.CodeBadParameter, `"parameter":"session_id"`},
		{"skald.api.w.position.=FF", ``, api.CodeBadParameter, `"parameter":"session_id"`},
		{"skald.api.w.position.s", `{"limit":1}`, api.CodeBadParameter, `"parameter":"limit"`},
		{"skald.api.w.outcome.s", ``, api.CodeBadParameter, `"parameter":"event_id"`},
		{"skald.api.w.outcome.s", `{"event_id":5}`, api.CodeBadParameter, `"parameter":"event_id"`},
		{"skald.op.status", `{"x":"y"}`, api.CodeBadParameter, `"parameter":"x"`},
		{"skald.op.events", `{"` + strings.Repeat("x", 100_000) + `":"y"}`, api.CodeBadParameter, `xxx`},
	} {
		body, code := f.ask(c.subject, c.body)
		require.Equal(t, c.code, code, "%.60s %.60s: %s", c.subject, c.body, body)
		require.Contains(t, body, c.says, "%.60s %.60s", c.subject, c.body)
	}
	for _, subject := range []string{"skald.api.w.nothing", "skald.op.nothing", "skald.api.w.session", "skald.api.w.session.s.t"} {
		_, err := f.nc.Request(subject, nil, skaldtest.Timeout)
		require.ErrorIs(t, err, nats.ErrNoResponders, subject)
	}
}

// A wildcard as a literal token of a request's subject is no id's token.
func TestService_WildcardInSubject(t *testing.T) {
	f := start(t, "", api.Options{}, 0)
	inbox := f.nc.NewRespInbox()
	replies, err := f.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	for _, token := range []string{"*", ">"} {
		require.NoError(t, f.nc.PublishRequest("skald.api."+token+".events", inbox, nil))
		m, err := replies.NextMsg(skaldtest.Timeout)
		require.NoError(t, err)
		require.Equal(t, "400", m.Header.Get(micro.ErrorCodeHeader), "%s: %s", token, m.Data)
	}
}

// Replies stay below the server's payload limit; a walk with the largest limit
// still gives every event.
func TestService_SmallPayload(t *testing.T) {
	f := start(t, "", api.Options{}, 20<<10) // leaves 4 KiB for a page
	after, n := uint64(0), 0
	for n < 2*len(ids) {
		body, code := f.ask("skald.op.events", string((api.Params{"after_seq": {bus.Cursor{Seq: after}.String()}, "limit": {"1000"}}).AppendJSON(nil)))
		require.Empty(t, code, body)
		require.LessOrEqual(t, len(body), 4<<10)
		p := decode[page](t, body)
		require.NotEmpty(t, p.Events)
		after, n = p.NextAfter, n+len(p.Events)
	}
	body, code := f.ask("skald.op.sessions", "")
	require.Empty(t, code)
	require.LessOrEqual(t, len(body), 4<<10)
	require.NotContains(t, body, `"next_after":null`)
}

// Requests that wait for the store hold up no others, not even of their endpoint.
func TestService_WaitingRequestsHoldUpNobody(t *testing.T) {
	var waiting atomic.Int64
	f := start(t, "", api.Options{Ends: func(context.Context) (api.Ends, error) {
		waiting.Add(1)
		return api.Ends{EventsLast: 1000}, nil
	}}, 0)
	inbox := f.nc.NewRespInbox()
	replies, err := f.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	const n = 20
	// They wait for two seconds, in which a busy machine may not get to the one behind them.
	answered := -1
	for try := 0; answered != 0 && try < 10; try++ {
		before := waiting.Load()
		for range n {
			require.NoError(t, f.nc.PublishRequest("skald.op.events", inbox, []byte(`{"after_seq":1000}`)))
		}
		require.Eventually(t, func() bool { return waiting.Load() >= before+n }, skaldtest.Timeout, time.Millisecond)
		body, code := f.ask("skald.op.events", `{"after_seq":27}`)
		require.Empty(t, code)
		require.Len(t, decode[page](t, body).Events, 1)
		answered, _, err = replies.Pending()
		require.NoError(t, err)
		for range n {
			m, err := replies.NextMsg(skaldtest.Timeout)
			require.NoError(t, err)
			require.Equal(t, "503", m.Header.Get(micro.ErrorCodeHeader))
			require.Contains(t, string(m.Data), `"code":"behind"`)
		}
	}
	require.Zero(t, answered, "the others were still waiting")
}

// What the service does not tell, no reply tells.
func TestService_HidesCauses(t *testing.T) {
	f := start(t, "", api.Options{Ends: func(context.Context) (api.Ends, error) {
		return api.Ends{}, errors.New("nats://user:pa55@host\r\nis gone")
	}}, 0)
	m, err := f.nc.Request("skald.op.events", []byte(`{"after_seq":99}`), skaldtest.Timeout)
	require.NoError(t, err)
	require.Equal(t, "503", m.Header.Get(micro.ErrorCodeHeader))
	require.NotContains(t, m.Header.Get(micro.ErrorHeader)+string(m.Data), "pa55")
}

// A bus with another prefix has subjects of its own, and the tools of NATS' services
// find it by name and version.
func TestService_PrefixAndDiscovery(t *testing.T) {
	f := start(t, "other", api.Options{}, 0)
	_, err := f.nc.Request("skald.op.status", nil, skaldtest.Timeout)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	body, code := f.ask("other.api.w.events", "")
	require.Empty(t, code, body)

	m, err := f.nc.Request("$SRV.INFO.skald", nil, skaldtest.Timeout)
	require.NoError(t, err)
	var info micro.Info
	require.NoError(t, json.Unmarshal(m.Data, &info))
	require.Equal(t, "1.2.3", info.Version)
	require.Equal(t, "other", info.Metadata["prefix"])
	require.Len(t, info.Endpoints, 8)
}
