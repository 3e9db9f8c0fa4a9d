//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// goodIDs are ids that a broker, a path, a shell or a database may not like.
func goodIDs() []string {
	return []string{
		"a b", "a.b", "a..b", ".a", "a.", ".", "..", "*", ">", "a*b", "a_b", "a/b", "a%2Fb", "a=2Eb", "=", "é", "日本", "NUL", "a:b",
		"Foo", "foo", "skald", "$SYS", "-rf", "--json", "a'b\"c", "a?b#c&d=e", `a\b`, "\u2028", "\u202e", "e\u0301", "🙂",
		strings.Repeat("x", 200), strings.Repeat(".", 256), strings.Repeat("é", 128),
	}
}

// badIDs are ids that are none, with the rule that each breaks.
func badIDs() map[string]string {
	return map[string]string{
		"a\r\nPUB x 0":             "must not contain control characters, found U+000D",
		"a\nb":                     "must not contain control characters, found U+000A",
		"\t":                       "must not contain control characters, found U+0009",
		"a\x00":                    "must not contain control characters, found U+0000",
		"a\x7f":                    "must not contain control characters, found U+007F",
		"a\u0085":                  "must not contain control characters, found U+0085",
		"a\xff":                    "must be valid UTF-8",
		"\xed\xa0\x80":             "must be valid UTF-8",
		strings.Repeat("x", 257):   "is 257 bytes long, at most 256 are allowed",
		strings.Repeat("é", 129):   "is 258 bytes long, at most 256 are allowed",
		strings.Repeat("x", 300):   "is 300 bytes long, at most 256 are allowed",
		strings.Repeat("x", 1_300): "is 1300 bytes long, at most 256 are allowed",
	}
}

// Ids like a..b gave empty tokens and blocked all later events; spaces and line
// breaks became commands; long ones failed once a prefix was added; odd characters
// became '_', so that two names shared a feed. Here every id is its own, to the byte,
// or is refused with its rule, and what follows lands.
func TestB36_IdsTheBrokerDoesNotLike(t *testing.T) {
	t.Parallel()
	s := shared(t)
	w := s.worker(t)
	// Each id as a session of one workspace, and as a workspace of its own, once by
	// the command and once by a plain client.
	var lines []string
	for _, v := range goodIDs() {
		for _, k := range []bus.Key{{Workspace: "b36", Session: v}, {Workspace: v, Session: "b36"}} {
			lines = append(lines, `{"workspace_id":`+quoted(k.Workspace)+`,"session_id":`+quoted(k.Session)+`,"class":"error","body":`+failed("command "+v)+`}`)
		}
	}
	out := skald(t, strings.Join(lines, "\n"), "publish", "--server", s.nats, "--json").ok(t)
	require.Len(t, out, len(lines))
	for _, v := range goodIDs() {
		w.put(ingestSubject("b36", v, "error"), nil, failed("plain "+v))
		w.put(ingestSubject(v, "b36", "error"), nil, failed("plain "+v))
		w.put(ingestSubject("b36", "plain", "error"), nil, failed("after "+v))
	}
	s.settle(t)
	http, file := s.doors()[0], s.doors()[2]
	for i, v := range goodIDs() {
		for _, q := range []url.Values{{"workspace_id": {"b36"}, "session_id": {v}}, {"workspace_id": {v}, "session_id": {"b36"}}} {
			rows := http.walk(t, q, 10)
			require.Len(t, rows, 2, "%q", v)
			for k, by := range []string{"command ", "plain "} {
				e, err := bus.ParseEvent([]byte(rows[k]))
				require.NoError(t, err)
				require.Equal(t, q.Get("workspace_id"), e.Workspace)
				require.Equal(t, q.Get("session_id"), e.Session)
				require.Contains(t, string(e.Data), `"message":`+quoted(by+v), "%q", v)
			}
			got, refused := s.request(t, "skald.api."+bus.Escape(q.Get("workspace_id"))+".events", `{"after_seq":0,"session_id":`+quoted(q.Get("session_id"))+`}`)
			require.Nil(t, refused, "%q", v)
			require.Equal(t, rows, got.lines())
			if i%8 == 0 { // a process each
				q.Set("after_seq", "0")
				p, refused := file.ask(t, q)
				require.Nil(t, refused)
				require.Equal(t, rows, p.lines())
			}
			// The session by its id.
			status, _, body := s.fetch(t, "/api/v1/sessions/"+strings.ReplaceAll(url.PathEscape(q.Get("session_id")), ".", "%2E")+"?workspace_id="+url.QueryEscape(q.Get("workspace_id")))
			require.Equal(t, 200, status, "%q: %s", v, body)
			require.Contains(t, string(body), `"events":{"count":2,`)
			reply := s.ask(t, "skald.api."+bus.Escape(q.Get("workspace_id"))+".session."+bus.Escape(q.Get("session_id")), "")
			require.Equal(t, string(body), string(reply.Data))
		}
	}
	plain := s.rowsOf(t, "b36", "plain")
	require.Len(t, plain, len(goodIDs()))
	require.True(t, w.nc.IsConnected())
	require.Zero(t, w.nc.Stats().Reconnects)
}

// What is no id is refused by the command before it is sent, and rejected when a
// plain client has sent it; both say the rule.
func TestB36_IdsThatAreNone(t *testing.T) {
	t.Parallel()
	s := shared(t)
	w := s.worker(t)
	var lines, says []string
	seqs := map[uint64]string{} // the detail of each message that is stored
	for v, rule := range badIDs() {
		seqs[w.put(ingestSubject("b36-none", v, "error"), nil, failed("session"))] = "session: " + rule
		seqs[w.put(ingestSubject(v, "b36-none", "error"), nil, failed("workspace"))] = "workspace: " + rule
		w.put(ingestSubject("b36-none", "plain", "error"), nil, failed("after"))
		if rule == "must be valid UTF-8" {
			continue // JSON can not say it
		}
		lines = append(lines,
			`{"workspace_id":"b36-none","session_id":`+quoted(v)+`,"class":"error","body":{"message":"x"}}`,
			`{"workspace_id":`+quoted(v)+`,"session_id":"b36-none","class":"error","body":{"message":"x"}}`)
		says = append(says, "session: "+rule, "workspace: "+rule)
	}
	lines = append(lines, `{"workspace_id":"b36-none","session_id":"","class":"error","body":{"message":"x"}}`)
	says = append(says, "session: must not be empty")
	lines = append(lines, `{"workspace_id":"b36-none","session_id":"plain","class":"error","body":{"message":"after all"}}`)
	r := skald(t, strings.Join(lines, "\n"), "publish", "--server", s.nats)
	require.Equal(t, 1, r.code)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "the good one is stored")
	for i, rule := range says {
		require.Contains(t, r.stderr, fmt.Sprintf("skald: line %d: %s\n", i+1, rule))
	}
	require.Contains(t, r.stderr, fmt.Sprintf("1 stored, 0 not acknowledged, %d wrong", len(says)))

	require.Len(t, s.rowsOf(t, "b36-none", "plain"), len(badIDs())+1)
	entries := s.rejects(t)
	for seq, rule := range seqs {
		require.Equal(t, "bad_subject", entries[seq].Reason)
		require.Equal(t, rule, entries[seq].Detail)
		require.Nil(t, entries[seq].Session)
	}
}

// A filter went straight into a subject, so that a wildcard read every workspace.
// Here a filter is an id and matches nothing but itself; an address that names a
// workspace can not be widened; and permissions follow the subjects.
func TestB42_WildcardsInFilters(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, []byte(`
no_auth_user: operator
authorization { users: [
  { user: operator, password: operator }
  { user: acme, password: acme, permissions: {
      publish: ["skald.in.acme.>", "skald.api.acme.>"], subscribe: ["_INBOX.>", "skald.done.acme.>"] } }
] }`), 0o600))
	s := serve(t, t.TempDir(), "--nats-config", config)
	w := s.worker(t)
	for i := range 3 {
		w.put(ingestSubject("acme", "s-1", "error"), nil, failed(fmt.Sprint("acme ", i)))
		w.put(ingestSubject("other", "s-1", "error"), nil, failed("secret"))
		w.put(ingestSubject("other", "s-2", "error"), nil, failed("secret"))
	}
	s.settle(t)
	filters := []string{"*", ">", "acme.>", "other.s-1", "%", "_", "..%2Fother", "../other", "acme*", "' OR '1'='1", "=2A"}
	for _, d := range s.doors() {
		for _, name := range []string{"workspace_id", "session_id", "type"} {
			for i, v := range filters {
				if d.shell && i > 2 {
					continue // a process each; the answer is made at one place
				}
				q := url.Values{"after_seq": {"0"}, name: {v}}
				p, r := d.ask(t, q)
				require.Nil(t, r, "%s %v", d.name, q)
				require.Empty(t, p.Events, "%s %v", d.name, q)
			}
			d.refuses(t, url.Values{"after_seq": {"0"}, name: {""}}, 400, "bad_parameter", name)
		}
	}

	// Who may ask for acme only asks at acme's address.
	mine := s.as(t, nats.UserInfo("acme", "acme"))
	p, r := mine.request(t, "skald.api.acme.events", `{"after_seq":0}`)
	require.Nil(t, r)
	require.Len(t, p.Events, 3)
	for _, v := range slices.Concat(filters, []string{"other"}) {
		_, r := mine.request(t, "skald.api.acme.events", `{"after_seq":0,"workspace_id":`+quoted(v)+`}`)
		require.Equal(t, http.StatusBadRequest, r.Status)
		require.Equal(t, "workspace_id", r.Parameter)
		require.Equal(t, `workspace_id: is fixed to "acme" by the address of this request`, r.Text)
		p, r := mine.request(t, "skald.api.acme.events", `{"after_seq":0,"session_id":`+quoted(v)+`}`)
		require.Nil(t, r)
		require.Empty(t, p.Events)
	}
	for _, at := range []string{"skald.api.other.events", "skald.api.*.events", "skald.api.>", "skald.op.events", "skald.in.other.s-1.error", "skald.in.*.s-1.error"} {
		denied(t, s, at)
	}
	// Literal wildcards name no workspace, whoever may send them.
	for _, token := range []string{"*", "other*", "%", "=6F", "=6f"} {
		_, r := s.request(t, "skald.api."+token+".events", `{"after_seq":0}`)
		require.Equal(t, http.StatusBadRequest, r.Status, token)
		require.Equal(t, "workspace_id", r.Parameter, token)
	}
	require.Empty(t, s.readersConsumers(t), "pages need no consumer")
}

// as is the server as another user sees it over NATS.
func (s *server) as(t *testing.T, opts ...nats.Option) *server {
	t.Helper()
	return &server{process: &process{}, nats: s.nats, conns: map[string]*nats.Conn{t.Name(): connect(t, s.nats, opts...)}}
}

// denied requires that acme may not publish there.
func denied(t *testing.T, s *server, subject string) {
	t.Helper()
	refused := make(chan error, 8)
	nc := connect(t, s.nats, nats.UserInfo("acme", "acme"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refused <- err
	}))
	require.NoError(t, nc.Publish(subject, []byte(`{"message":"x"}`)))
	require.NoError(t, nc.FlushTimeout(patience))
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation, subject)
}
