//go:build unix

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every refusal over HTTP has the right status, a code, and the name of the parameter
// that is wrong, and says its rule.
func TestBadInput_HTTP(t *testing.T) {
	t.Parallel()
	s := shared(t)
	x, e, eight := strings.Repeat("x", 257), strings.Repeat("%C3%A9", 129), strings.Repeat("9", 8_000)
	const (
		control = "must not contain control characters, found "
		cursor  = "must be a number from 0 to 9223372036854775807, or epoch:number"
		limit   = "must be a number from 1, of which at most 1000 count"
		place   = "must be a number that an earlier answer gave as next_after"
	)
	for _, c := range []struct {
		path            string
		status          int
		code, parameter string
		rule            string
	}{
		{"/api/v1/events?after_seq=-1", 400, "bad_parameter", "after_seq", cursor},
		{"/api/v1/events?after_seq=1.5", 400, "bad_parameter", "after_seq", cursor},
		{"/api/v1/events?after_seq=" + eight, 400, "bad_parameter", "after_seq", cursor},
		{"/api/v1/events?after_seq=:1", 400, "bad_parameter", "after_seq", "must be a number or epoch:number"},
		{"/api/v1/events?after_seq=" + x + ":1", 400, "bad_parameter", "after_seq", "must be a number or epoch:number"},
		{"/api/v1/events?after_seq=1&after_seq=1", 400, "bad_parameter", "after_seq", "is given 2 times"},
		{"/api/v1/events?after_seq=9223372036854775807", 400, "cursor_ahead", "", "cursor is ahead of the newest event"},
		{"/api/v1/events?after_seq=other:0", 409, "other_epoch", "", "cursor belongs to another epoch"},
		{"/api/v1/events?limit=-1", 400, "bad_parameter", "limit", limit},
		{"/api/v1/events?limit=ten", 400, "bad_parameter", "limit", limit},
		{"/api/v1/events?limit=0", 400, "bad_parameter", "limit", "must be at least 1"},
		{"/api/v1/events?session_id=", 400, "bad_parameter", "session_id", "must not be empty"},
		{"/api/v1/events?session_id=" + x, 400, "bad_parameter", "session_id", "is 257 bytes long, at most 256 are allowed"},
		{"/api/v1/events?session_id=a%0D%0Ab", 400, "bad_parameter", "session_id", control + "U+000D"},
		{"/api/v1/events?session_id=%00", 400, "bad_parameter", "session_id", control + "U+0000"},
		{"/api/v1/events?session_id=%FF", 400, "bad_parameter", "session_id", "must be valid UTF-8"},
		{"/api/v1/events?workspace_id=" + e, 400, "bad_parameter", "workspace_id", "is 258 bytes long, at most 256 are allowed"},
		{"/api/v1/events?type=", 400, "bad_parameter", "type", "must be 1 to 64 bytes long, not 0"},
		{"/api/v1/events?type=" + x, 400, "bad_parameter", "type", "must be 1 to 64 bytes long, not 257"},
		{"/api/v1/events?type=a%0Ab", 400, "bad_parameter", "type", control + "U+000A"},
		{"/api/v1/events?follow=1", 400, "bad_parameter", "follow", "is not known here"},
		{"/api/v1/events?After_Seq=1", 400, "bad_parameter", "After_Seq", "is not known here"},
		{"/api/v1/events?after_seq=1;limit=2", 400, "bad_parameter", "query", "is malformed"},
		{"/api/v1/events?after_seq=%zz", 400, "bad_parameter", "query", "is malformed"},
		{"/api/v1/sessions?after=-1", 400, "bad_parameter", "after", place},
		{"/api/v1/sessions?after=9223372036854775808", 400, "bad_parameter", "after", place},
		{"/api/v1/sessions?limit=0", 400, "bad_parameter", "limit", "must be at least 1"},
		{"/api/v1/sessions?session_id=%C2%85", 400, "bad_parameter", "session_id", control + "U+0085"},
		{"/api/v1/sessions?after_seq=1", 400, "bad_parameter", "after_seq", "is not known here"},
		{"/api/v1/sessions/", 400, "bad_parameter", "session_id", "must not be empty"},
		{"/api/v1/sessions/a%00", 400, "bad_parameter", "session_id", control + "U+0000"},
		{"/api/v1/sessions/%FF", 400, "bad_parameter", "session_id", "must be valid UTF-8"},
		{"/api/v1/sessions/" + x, 400, "bad_parameter", "session_id", "is 257 bytes long, at most 256 are allowed"},
		{"/api/v1/sessions/s?workspace_id=", 400, "bad_parameter", "workspace_id", "must not be empty"},
		{"/api/v1/sessions/s?session_id=s", 400, "bad_parameter", "session_id", "is not known here"},
		{"/api/v1/sessions/nobody%2Fhere", 404, "not_found", "", "not found"},
		{"/api/v1/sessions/a/b", 404, "not_found", "", "no such path"},
		{"/api/v1/status?x=1", 400, "bad_parameter", "x", "is not known here"},
		{"/api/v1/nothing", 404, "not_found", "", "no such path"},
		{"/api/v2/events", 404, "not_found", "", "no such path"},
		{"/api/v1/events/", 404, "not_found", "", "no such path"},
		{"//api/v1/events", 404, "not_found", "", "no such path"},
	} {
		status, header, body := s.fetch(t, c.path)
		at := fmt.Sprintf("%.80s", c.path)
		require.Equal(t, c.status, status, at)
		require.Equal(t, "application/json", header.Get("Content-Type"), at)
		_, r := decodePage(t, status, false, body)
		require.Equal(t, c.code, r.Code, at)
		require.Equal(t, c.parameter, r.Parameter, at)
		if c.parameter != "" {
			require.True(t, strings.HasPrefix(r.Text, c.parameter+": "), "%s: %s", at, r.Text)
		}
		require.Contains(t, r.Text, c.rule, at)
		// A good request behind it is answered.
		_, refused := s.get(t, "/api/v1/events?limit=1")
		require.Nil(t, refused, at)
	}
}

// What HTTP itself is used wrongly for is answered as clearly.
func TestBadInput_HTTPRequests(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, c := range []struct {
		name, sent string
		status     int
		code       string // empty: the answer is the HTTP library's
	}{
		{"publishing", "POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405, "method_not_allowed"},
		{"removing", "DELETE /api/v1/sessions/s HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
		{"a made-up method", "FORGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
		{"a stream with a limit", "GET /api/v1/events?limit=1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", 400, "bad_parameter"},
		{"another host", "GET /api/v1/events HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "forbidden"},
		{"a way up", "GET /api/v1/sessions/..?workspace_id=nobody HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found"},
		{"a way up, escaped", "GET /api/v1/sessions/%2E%2E?workspace_id=nobody HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found"},
		{"a way out", "GET /api/v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found"},
		{"a malformed escape", "GET /api/v1/sessions/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, ""},
		{"a line break in the path", "GET /api/v1/sessions/a\nb HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, ""},
		{"a raw byte in the path", "GET /api/v1/sessions/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_parameter"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, ""},
		{"no HTTP", "hello\r\n\r\n", 400, ""},
		{"headers of 100 KB", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", 431, ""},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.http, "http://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprint(conn, c.sent)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, c.name)
		require.Equal(t, c.status, resp.StatusCode, c.name)
		if c.code != "" {
			var r refusal
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&r), c.name)
			require.Equal(t, c.code, r.Code, c.name)
			require.NotEmpty(t, r.Text)
		}
		resp.Body.Close()
		conn.Close()
		status, _, _ := s.fetch(t, "/healthz")
		require.Equal(t, 200, status)
	}
}

// A cursor that pruning has overtaken is gone, with where to go on, at every door.
func TestBadInput_CursorGone(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for i := range 10 {
		w.put(ingestSubject("gone", "s", "error"), nil, failed(fmt.Sprint(i)))
	}
	w.put("skald.in.=.=.control", nil, `{"op":"prune","before_seq":6}`)
	s.settle(t)
	for _, d := range s.doors() {
		r := d.refuses(t, map[string][]string{"after_seq": {"3"}}, 410, "cursor_gone", "")
		if d.shell {
			require.Contains(t, r.Text, "cursor is older than the oldest kept event: cursor 3")
			require.Contains(t, r.Text, "oldest 6, latest 10")
		} else {
			require.EqualValues(t, 6, *r.Oldest)
			require.EqualValues(t, 10, *r.Latest)
		}
		p, refused := d.ask(t, map[string][]string{"after_seq": {"5"}})
		require.Nil(t, refused)
		require.Len(t, p.Events, 5)
	}
}
