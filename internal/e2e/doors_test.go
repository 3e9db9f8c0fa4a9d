//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// eventPage is a page of events as a door gives it; each event is the bytes that came.
type eventPage struct {
	Events []json.RawMessage `json:"events"`
	Next   uint64            `json:"next_after_seq"`
	Latest uint64            `json:"latest_seq"`
	Oldest uint64            `json:"oldest_seq"`
	Epoch  string            `json:"epoch"`
}

// lines are the events as text.
func (p eventPage) lines() []string {
	out := []string{}
	for _, e := range p.Events {
		out = append(out, string(e))
	}
	return out
}

// refusal is what a door says no with. The command line's status is that of the
// process, and of the members it shows the text alone.
type refusal struct {
	Status    int     `json:"-"`
	Text      string  `json:"error"`
	Code      string  `json:"code"`
	Parameter string  `json:"parameter"`
	Latest    *uint64 `json:"latest_seq"`
	Oldest    *uint64 `json:"oldest_seq"`
	Epoch     string  `json:"epoch"`
}

// door is a way to ask for pages. Exactly one of its results is set.
type door struct {
	name  string
	shell bool // a command: refusals are a status and a text
	ask   func(t *testing.T, q url.Values) (*eventPage, *refusal)
}

// doors are all ways to page the table.
func (s *server) doors() []door {
	return []door{
		{"HTTP", false, func(t *testing.T, q url.Values) (*eventPage, *refusal) {
			return s.get(t, "/api/v1/events?"+q.Encode())
		}},
		{"NATS", false, func(t *testing.T, q url.Values) (*eventPage, *refusal) {
			return s.request(t, "skald.op.events", queryObject(q))
		}},
		{"file", true, func(t *testing.T, q url.Values) (*eventPage, *refusal) {
			return s.command(t, q, "--data", s.data)
		}},
		{"url", true, func(t *testing.T, q url.Values) (*eventPage, *refusal) {
			return s.command(t, q, "--url", s.http)
		}},
	}
}

// fetch asks for a path and returns status and body.
func (s *server) fetch(t *testing.T, path string) (int, http.Header, []byte) {
	t.Helper()
	resp, err := client.Get(s.http + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header, body
}

// fetchWith is fetch with one header.
func (s *server) fetchWith(t *testing.T, path, name, value string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.http+path, nil)
	require.NoError(t, err)
	req.Header.Set(name, value)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, body
}

func (s *server) get(t *testing.T, path string) (*eventPage, *refusal) {
	t.Helper()
	status, _, body := s.fetch(t, path)
	return decodePage(t, status, status == http.StatusOK, body)
}

// decodePage reads a page or a refusal.
func decodePage(t *testing.T, status int, ok bool, body []byte) (*eventPage, *refusal) {
	t.Helper()
	if ok {
		var p eventPage
		require.NoError(t, json.Unmarshal(body, &p), "%.200s", body)
		return &p, nil
	}
	r := refusal{Status: status}
	require.NoError(t, json.Unmarshal(body, &r), "%.200s", body)
	require.Less(t, len(body), 2000, "a refusal is short")
	return nil, &r
}

// ask sends a request and returns the reply.
func (s *server) ask(t *testing.T, subject, body string) *nats.Msg {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := s.conn(t).RequestWithContext(ctx, subject, []byte(body))
	require.NoError(t, err, "%s %.200s", subject, body)
	return m
}

func (s *server) request(t *testing.T, subject, body string) (*eventPage, *refusal) {
	t.Helper()
	m := s.ask(t, subject, body)
	code := m.Header.Get("Nats-Service-Error-Code")
	status, err := strconv.Atoi(code)
	require.True(t, code == "" || err == nil, code)
	p, r := decodePage(t, status, code == "", m.Data)
	if r != nil {
		oneLine := strings.NewReplacer("\r", " ", "\n", " ").Replace(r.Text)
		require.Equal(t, oneLine, m.Header.Get("Nats-Service-Error"))
	}
	return p, r
}

// queryObject is a query as the service reads it, what is given twice twice.
func queryObject(q url.Values) string {
	var members []string
	for name, values := range q {
		for _, v := range values {
			members = append(members, quoted(name)+":"+quoted(v))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func quoted(s string) string { return string(bus.AppendQuoted(nil, s)) }

// goesOn is where the command says to go on.
var goesOn = regexp.MustCompile(`--after-seq (\d+) goes on`)

func (s *server) command(t *testing.T, q url.Values, at ...string) (*eventPage, *refusal) {
	t.Helper()
	flags := map[string]string{"after_seq": "after-seq", "session_id": "session", "workspace_id": "workspace"}
	args := append([]string{"events", "--json"}, at...)
	for name, values := range q {
		if f, ok := flags[name]; ok {
			name = f
		}
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	r := skald(t, "", args...)
	if r.code != 0 {
		require.Empty(t, r.stdout)
		require.NotContains(t, r.stderr, "panic")
		return nil, &refusal{Status: r.code, Text: r.stderr}
	}
	p := &eventPage{}
	for _, line := range r.ok(t) {
		p.Events = append(p.Events, json.RawMessage(line))
	}
	next := goesOn.FindStringSubmatch(r.stderr)
	require.NotNil(t, next, r.stderr)
	p.Next, _ = strconv.ParseUint(next[1], 10, 64)
	return p, nil
}

// walk pages through a door until there is no more, and returns the events.
func (d door) walk(t *testing.T, q url.Values, limit int) []string {
	t.Helper()
	out := []string{}
	for after := uint64(0); ; {
		q.Set("after_seq", strconv.FormatUint(after, 10))
		q.Set("limit", strconv.Itoa(limit))
		p, r := d.ask(t, q)
		require.Nil(t, r, "%s: %v", d.name, r)
		require.LessOrEqual(t, len(p.Events), limit)
		if len(p.Events) == 0 && p.Next == after {
			return out
		}
		require.Greater(t, p.Next, after, d.name)
		out, after = append(out, p.lines()...), p.Next
	}
}

// stream reads the workspace's events from EVENTS, as a follower would.
func (s *server) stream(t *testing.T, workspace string) []string {
	t.Helper()
	js := s.js(t)
	c, err := js.OrderedConsumer(t.Context(), "SKALD_EVENTS", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"skald.ev." + bus.Escape(workspace) + ".*.*"},
	})
	require.NoError(t, err)
	info, err := c.Info(t.Context())
	require.NoError(t, err)
	out := []string{}
	for range info.NumPending {
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		require.NoError(t, err)
		out = append(out, string(m.Data()))
	}
	return out
}

// same waits until all is in the table, and returns the workspace's events, which
// must be the same bytes at every door and in EVENTS, whatever the limit.
func (s *server) same(t *testing.T, workspace string) []string {
	t.Helper()
	s.settle(t)
	var first []string
	for i, d := range s.doors() {
		limit := 1000
		if i == 0 {
			limit = 7
		}
		got := d.walk(t, url.Values{"workspace_id": {workspace}}, limit)
		if i == 0 {
			first = got
			continue
		}
		require.Equal(t, first, got, "the first door and %s", d.name)
	}
	require.Equal(t, first, s.stream(t, workspace), "table and EVENTS")
	return first
}

// refuses asks a door and requires its refusal. The command line shows status 2
// for a wrong parameter and 1 for any other refusal.
func (d door) refuses(t *testing.T, q url.Values, status int, code, parameter string) *refusal {
	t.Helper()
	p, r := d.ask(t, q)
	at := fmt.Sprintf("%s %.200v", d.name, q)
	require.Nil(t, p, at)
	if !d.shell {
		require.Equal(t, status, r.Status, "%s: %s", at, r.Text)
		require.Equal(t, code, r.Code, "%s: %s", at, r.Text)
		require.Equal(t, parameter, r.Parameter, "%s: %s", at, r.Text)
		return r
	}
	want := 1
	if code == "bad_parameter" {
		want = 2
		flag := map[string]string{"after_seq": "after-seq", "session_id": "session", "workspace_id": "workspace"}[parameter]
		if !strings.Contains(r.Text, parameter+": ") {
			require.Contains(t, r.Text, "--"+flag, at)
		}
	}
	require.Equal(t, want, r.Status, "%s: %s", at, r.Text)
	return r
}
