//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The NATS service refuses as HTTP does: status in the header, code and parameter in
// the body. Subjects take ids as canonical tokens, bodies take them as they are.
func TestBadInput_Service(t *testing.T) {
	t.Parallel()
	s := shared(t)
	x := strings.Repeat("x", 257)
	const (
		op        = "skald.op.events"
		cursor    = "must be a number from 0 to 9223372036854775807, or epoch:number"
		limit     = "must be a number from 1, of which at most 1000 count"
		hex       = "token has a = that two upper-case hex digits do not follow"
		canonical = "token is not the canonical escape of its id, which is "
		count     = "must be a decimal number from 1 to 2^63-1"
		outcome   = "skald.api.w.outcome.s"
		printable = "must be printable ASCII without spaces"
	)
	for _, c := range []struct {
		subject, body   string
		status          int
		code, parameter string
		rule            string
	}{
		{op, `{"after_seq":-1}`, 400, "bad_parameter", "after_seq", cursor},
		{op, `{"after_seq":1.5}`, 400, "bad_parameter", "after_seq", cursor},
		{op, `{"after_seq":1e3}`, 400, "bad_parameter", "after_seq", cursor},
		{op, `{"after_seq":9223372036854775808}`, 400, "bad_parameter", "after_seq", cursor},
		{op, `{"after_seq":"five"}`, 400, "bad_parameter", "after_seq", cursor},
		{op, `{"after_seq":null}`, 400, "bad_parameter", "after_seq", "must be a number or a string"},
		{op, `{"after_seq":[1]}`, 400, "bad_parameter", "after_seq", "must be a number or a string"},
		{op, `{"after_seq":1,"after_seq":1}`, 400, "bad_parameter", "after_seq", "is given 2 times"},
		{op, `{"after_seq":9223372036854775807}`, 400, "cursor_ahead", "", "cursor is ahead of the newest event"},
		{op, `{"after_seq":"other:0"}`, 409, "other_epoch", "", "cursor belongs to another epoch"},
		{op, `{"limit":-1}`, 400, "bad_parameter", "limit", limit},
		{op, `{"limit":1.0}`, 400, "bad_parameter", "limit", limit},
		{op, `{"limit":"ten"}`, 400, "bad_parameter", "limit", limit},
		{op, `{"limit":0}`, 400, "bad_parameter", "limit", "must be at least 1"},
		{op, `{"limit":true}`, 400, "bad_parameter", "limit", "must be a number or a string"},
		{op, `{"session_id":""}`, 400, "bad_parameter", "session_id", "must not be empty"},
		{op, `{"session_id":5}`, 400, "bad_parameter", "session_id", "must be a string"},
		{op, `{"session_id":null}`, 400, "bad_parameter", "session_id", "must be a string"},
		{op, `{"session_id":"a\r\nb"}`, 400, "bad_parameter", "session_id", "must not contain control characters, found U+000D"},
		{op, `{"session_id":"\ud800"}`, 400, "bad_parameter", "session_id", "must be valid UTF-8"},
		{op, `{"workspace_id":"` + x + `"}`, 400, "bad_parameter", "workspace_id", "is 257 bytes long, at most 256 are allowed"},
		{op, `{"type":"` + x + `"}`, 400, "bad_parameter", "type", "must be 1 to 64 bytes long, not 257"},
		{op, `{"follow":"true"}`, 400, "bad_parameter", "follow", "is not known here"},
		{op, `{"` + x + `":"1"}`, 400, "bad_parameter", x[:64] + "…", "is not known here"},
		{op, `{"a\r\nNats-Service-Error-Code: 200":"1"}`, 400, "bad_parameter", "a\r\nNats-Service-Error-Code: 200", "is not known here"},
		{op, `{"after_seq":1`, 400, "bad_parameter", "request", "body: is cut off after 14 bytes"},
		{op, `after_seq=1`, 400, "bad_parameter", "request", "body: is not JSON at byte 0"},
		{op, `[]`, 400, "bad_parameter", "request", "must be a JSON object or empty"},
		{op, `null`, 400, "bad_parameter", "request", "must be a JSON object or empty"},
		{op, "{\"session_id\":\"\xff\"}", 400, "bad_parameter", "request", "body: must be valid UTF-8, byte 15 is not"},
		{op, strings.Repeat(`[`, 100_000), 400, "bad_parameter", "request", "body: nests deeper than 512 levels"},
		{"skald.op.status", `{"x":"1"}`, 400, "bad_parameter", "x", "is not known here, no parameter is"},
		{"skald.op.sessions", `{"after":-1}`, 400, "bad_parameter", "after", "must be a number that an earlier answer gave as next_after"},

		{"skald.api.=61.events", ``, 400, "bad_parameter", "workspace_id", canonical + `"a"`},
		{"skald.api.a=2e.events", ``, 400, "bad_parameter", "workspace_id", hex},
		{"skald.api.a=2.sessions", ``, 400, "bad_parameter", "workspace_id", hex},
		{"skald.api.=.events", ``, 400, "bad_parameter", "workspace_id", hex},
		{"skald.api.*.events", ``, 400, "bad_parameter", "workspace_id", canonical + `"=2A"`},
		{"skald.api.=0D=0A.events", ``, 400, "bad_parameter", "workspace_id", "must not contain control characters, found U+000D"},
		{"skald.api." + x + ".events", ``, 400, "bad_parameter", "workspace_id", "is 257 bytes long, at most 256 are allowed"},
		{"skald.api.w.session.=61", ``, 400, "bad_parameter", "session_id", canonical + `"a"`},
		{"skald.api.w.session.>", ``, 400, "bad_parameter", "session_id", canonical + `"=3E"`},
		{"skald.api.w.session.=FF", ``, 400, "bad_parameter", "session_id", "must be valid UTF-8"},
		{"skald.api.w.session.nobody", ``, 404, "not_found", "", "not found"},
		{"skald.api.w.session.s", `{"session_id":"t"}`, 400, "bad_parameter", "session_id", "is not known here"},
		{"skald.api.w.session.s", `{"workspace_id":"v"}`, 400, "bad_parameter", "workspace_id", `is fixed to "w" by the address of this request`},
		{"skald.api.w.position.a=2E=2e", ``, 400, "bad_parameter", "session_id", hex},
		{"skald.api.w.position.s", `{"x":"1"}`, 400, "bad_parameter", "x", "is not known here, no parameter is"},

		{outcome, ``, 400, "bad_parameter", "event_id", "is missing: name the message by event_id, or by publisher and publisher_seq"},
		{outcome, `{"event_id":""}`, 400, "bad_parameter", "event_id", "must be 1 to 128 bytes long, not 0"},
		{outcome, `{"event_id":"` + x[:129] + `"}`, 400, "bad_parameter", "event_id", "must be 1 to 128 bytes long, not 129"},
		{outcome, `{"event_id":"a b"}`, 400, "bad_parameter", "event_id", printable},
		{outcome, `{"event_id":"é"}`, 400, "bad_parameter", "event_id", printable},
		{outcome, `{"event_id":7}`, 400, "bad_parameter", "event_id", "must be a string"},
		{outcome, `{"publisher":"p"}`, 400, "bad_parameter", "publisher_seq", "is missing beside "},
		{outcome, `{"publisher_seq":1}`, 400, "bad_parameter", "publisher", "is missing beside "},
		{outcome, `{"publisher":"p","publisher_seq":0}`, 400, "bad_parameter", "publisher_seq", count},
		{outcome, `{"publisher":"p","publisher_seq":1.5}`, 400, "bad_parameter", "publisher_seq", count},
		{outcome, `{"publisher":"p","publisher_seq":9223372036854775808}`, 400, "bad_parameter", "publisher_seq", count},
		{outcome, `{"publisher":"` + x[:65] + `","publisher_seq":1}`, 400, "bad_parameter", "publisher", "must be 1 to 64 bytes long, not 65"},
		{outcome, `{"event_id":"e","publisher":"p","publisher_seq":1}`, 400, "bad_parameter", "event_id", "must not be given beside publisher"},
		{outcome, `{"event_id":"e","event_id":"e"}`, 400, "bad_parameter", "event_id", "is given 2 times"},
	} {
		p, r := s.request(t, c.subject, c.body)
		at := fmt.Sprintf("%.60s %.60s", c.subject, c.body)
		require.Nil(t, p, at)
		require.Equal(t, c.status, r.Status, at)
		require.Equal(t, c.code, r.Code, at)
		require.Equal(t, c.parameter, r.Parameter, at)
		if c.parameter != "" {
			require.True(t, strings.HasPrefix(r.Text, c.parameter+": "), "%s: %s", at, r.Text)
		}
		require.Contains(t, r.Text, c.rule, at)
		_, refused := s.request(t, op, "")
		require.Nil(t, refused, at)
	}
	for _, body := range []string{``, `{}`, `{"limit":1001}`, `{"limit":"1001"}`, `{"after_seq":0}`, `{"after_seq":""}`, ` { "limit" : 1 } `} {
		_, refused := s.request(t, op, body)
		require.Nil(t, refused, body)
	}
}
