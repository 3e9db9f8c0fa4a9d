//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// `skald publish` refuses for certain what the materializer would reject, before it is
// sent, with the line's number, and publishes the good lines between.
func TestBadInput_PublishLines(t *testing.T) {
	t.Parallel()
	s := shared(t)
	x := strings.Repeat("x", 257)
	line := func(class, body string) string {
		return `{"workspace_id":"lines","session_id":"s","class":"` + class + `","body":` + body + `}`
	}
	withMember := func(member string) string {
		return `{"workspace_id":"lines","session_id":"s","class":"error","body":{"message":"x"},` + member + `}`
	}
	j := newRelayChain()
	rows := []struct{ line, says string }{
		{`{`, "body: is cut off after 1 bytes"},
		{`message`, "body: is not JSON at byte 0: a value must follow"},
		{`[]`, "must be a JSON object"},
		{"{\"workspace_id\":\"\xff\"}", "body: must be valid UTF-8, byte 17 is not"},
		{"\ufeff" + line("error", `{"message":"x"}`), "body: is not JSON at byte 0: a value must follow"},
		{line("error", strings.Repeat("[", 100_000)), "body: nests deeper than 520 levels at byte"},
		{line("error", strings.Repeat("[", 515)+strings.Repeat("]", 515)), "body: nests deeper than 512 levels at byte 512"},
		{`{"workspace_id":"lines","session_id":"s","class":"error"}`, "body: is missing"},
		{withMember(`"session_id":"t"`), "session_id: must not occur twice"},
		{withMember(`"id":"t"`), "id: is not known, the members are workspace_id, session_id, class, event_id and body"},
		{withMember(`"event_id":""`), "event_id: must not be empty, leave it out instead"},
		{withMember(`"event_id":5`), "event_id: must be a string"},
		{withMember(`"event_id":null`), "event_id: must be a string"},
		{withMember(`"event_id":"a b"`), "Skald-Event-Id: must be printable ASCII without spaces"},
		{withMember(`"event_id":"é"`), "Skald-Event-Id: must be printable ASCII without spaces"},
		{withMember(`"event_id":"a\r\nSkald-Publisher: p"`), "Skald-Event-Id: must be printable ASCII without spaces"},
		{withMember(`"event_id":"` + x[:129] + `"`), "Skald-Event-Id: must be 1 to 128 bytes long, not 129"},
		{`{"workspace_id":"lines","session_id":"` + x + `","class":"error","body":{"message":"x"}}`, "session: is 257 bytes long, at most 256 are allowed"},
		{`{"workspace_id":"lines","session_id":"a\u0000","class":"error","body":{"message":"x"}}`, "session: must not contain control characters, found U+0000"},
		{`{"workspace_id":"","session_id":"s","class":"error","body":{"message":"x"}}`, "workspace: must not be empty"},
		{`{"workspace_id":"\udc00","session_id":"s","class":"error","body":{"message":"x"}}`, "workspace: must be valid UTF-8"},
		{line("telepathy", `{}`), `class: must be session, activity, error, projection or control, not "telepathy"`},
		{line("", `{}`), `class: must be session, activity, error, projection or control, not ""`},
		{line("error", `{}`), "body of class error: message: is missing"},
		{line("error", `"x"`), "body of class error: body: must be a JSON object"},
		{line("error", `{"message":"x","recorded_at_ms":1.5}`), "body of class error: " + badTime},
		{line("error", `{"message":"a","message":"b"}`), "body of class error: message: must not occur twice"},
		{line("activity", `{"activity":7}`), "body of class activity: activity: must be an object"},
		{line("session", `{"op":"drop"}`), `body of class session: op: must be "save"`},
		{line("control", `{"op":"prune"}`), `body of class control: op: must be "forget" or "resync"`},
		{line("projection", `{"events":[]}`), "body of class projection: events: must hold 1 to 128 events, holds none"},
		{line("projection", j.page(129)), "body of class projection: events: must hold 1 to 128 events, holds more"},
		{line("error", `{"message":"`+strings.Repeat("x", 8<<20-16<<10)+`"}`), fmt.Sprintf("body: is %d bytes long, this server takes at most %d", 8<<20-16<<10+14, 8<<20-16<<10-768)},
		{line("error", `{"message":"`+strings.Repeat("x", 9<<20)+`"}`), "line is too long, at most"},
	}
	var in strings.Builder
	for i, c := range rows {
		fmt.Fprintf(&in, "%s\n%s\n", c.line, line("error", fmt.Sprintf(`{"message":"after %d"}`, i)))
	}
	r := skald(t, in.String(), "publish", "--server", s.nats)
	require.Equal(t, 1, r.code)
	require.Equal(t, len(rows), strings.Count(r.stdout, "\n"))
	said := map[int]string{}
	for l := range strings.Lines(r.stderr) {
		var n int
		if _, err := fmt.Sscanf(l, "skald: line %d:", &n); err == nil {
			said[n] = strings.TrimSuffix(l, "\n")
		}
	}
	require.Len(t, said, len(rows))
	for i, c := range rows {
		require.True(t, strings.HasPrefix(said[2*i+1], fmt.Sprintf("skald: line %d: %s", 2*i+1, c.says)), "%.120s: %s", c.line, said[2*i+1])
	}
	require.Contains(t, r.stderr, fmt.Sprintf("skald: %d stored, 0 not acknowledged, %d wrong", len(rows), len(rows)))
	require.Len(t, s.same(t, "lines"), len(rows))
	require.Empty(t, s.rejects(t, "--workspace", "lines"))
}

// A command line that can not be meant is refused with status 2 and the flag's name,
// one that asks for what is not there with 3, and nothing is printed as data.
func TestBadInput_Commands(t *testing.T) {
	t.Parallel()
	s := shared(t)
	x := strings.Repeat("x", 257)
	good := strings.Repeat("a", 64)
	publish := []string{"publish", "--server", s.nats, "--workspace", "commands", "--session", "s"}
	control := []string{"--server", s.nats, "--workspace", "commands", "s"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{append(publish, "--class", "error", "--body", ""), 2, "body: must not be empty"},
		{append(publish, "--class", "error", "--body", `{"message":`), 2, "body: is cut off after 11 bytes"},
		{append(publish, "--class", "Error", "--body", `{}`), 2, `class: must be session, activity, error, projection or control, not "Error"`},
		{append(publish, "--id", "", "--body", `{"activity":{}}`), 2, "--id: must not be empty"},
		{append(publish, "--id", "a b", "--body", `{"activity":{}}`), 2, "Skald-Event-Id: must be printable ASCII without spaces"},
		{append(publish, "--id", "x"), 2, "--id: names one message, so it needs --body"},
		{append(publish[:5:5], "--body", `{"activity":{}}`), 2, "--session: is missing"},
		{append(publish[:5:5], "--session", "", "--body", `{"activity":{}}`), 2, "session: must not be empty"},
		{append(publish[:5:5], "--session", "a\nb", "--body", `{"activity":{}}`), 2, "session: must not contain control characters, found U+000A"},
		{append(publish[:5:5], "--session", "a\xff", "--body", `{"activity":{}}`), 2, "session: must be valid UTF-8"},
		{append(publish[:5:5], "--session", x, "--body", `{"activity":{}}`), 2, "session: is 257 bytes long, at most 256 are allowed"},

		{[]string{"events", "--url", s.http, "--session", ""}, 2, "session_id: must not be empty"},
		{[]string{"events", "--data", s.data, "--workspace", x}, 2, "workspace_id: is 257 bytes long, at most 256 are allowed"},
		{[]string{"events", "--server", s.nats, "--workspace", "a\x7f"}, 2, "workspace_id: must not contain control characters, found U+007F"},
		{[]string{"events", "--server", s.nats, "--limit", "ten"}, 2, "limit: must be a number from 1, of which at most 1000 count"},
		{[]string{"events", "--server", s.nats, "--after-seq", "1.5"}, 2, "after_seq: must be a number from 0"},
		{[]string{"events", "--data", s.data, "--limit", "1", "--limit", "2"}, 2, "--limit"},
		{[]string{"events", "--data", s.data, "--folow"}, 2, "--folow"},
		{[]string{"events", "--data", s.data, "extra"}, 2, "extra"},
		{[]string{"events", "--data", ""}, 2, "--data: must not be empty"},
		{[]string{"events", "--url", "nats://x"}, 2, "url must be http://host:port"},
		{[]string{"sessions", "--data", s.data, "--after", "-1"}, 2, "after: must be a number that an earlier answer gave as next_after"},
		{[]string{"session", "--data", s.data, ""}, 2, "session_id: must not be empty"},
		{[]string{"session", "--url", s.http, x}, 2, "session_id: is 257 bytes long, at most 256 are allowed"},
		{[]string{"session", "--data", s.data, "nobody"}, 3, "not found"},
		{[]string{"session", "--url", s.http, "..", "--workspace", "nobody"}, 3, "not found"},
		{[]string{"session", "--server", s.nats, "nobody"}, 3, "not found"},
		{[]string{"rejects", "--data", s.data, "--limit", "0"}, 2, "--limit must be at least 1"},
		{[]string{"rejects", "--data", s.data, "--limit", "ten"}, 2, "--limit"},
		{[]string{"rejects", "--data", s.data, "--session", ""}, 2, "--session: must not be empty"},
		{[]string{"rejects", "show", "--data", s.data, "x"}, 2, "the id must be a number from 1"},
		{[]string{"rejects", "show", "--data", s.data, "999999"}, 3, "not found"},

		{append([]string{"resync", "--ordinal", "0", "--digest", good}, control...), 2, "ordinal: must be an integer literal from 1 to 2^63-1"},
		{append([]string{"resync", "--ordinal", "9223372036854775808", "--digest", good}, control...), 2, "ordinal: must be an integer literal from 1 to 2^63-1"},
		{append([]string{"resync", "--ordinal", "1.5", "--digest", good}, control...), 2, "--ordinal"},
		{append([]string{"resync", "--ordinal", "5", "--digest", strings.ToUpper(good)}, control...), 2, "digest: must be 64 lower-case hex digits"},
		{append([]string{"resync", "--ordinal", "5", "--digest", good[1:]}, control...), 2, "digest: must be 64 lower-case hex digits"},
		{[]string{"forget", "--server", s.nats, "s"}, 2, "--workspace: is missing"},
		{[]string{"forget", "--server", s.nats, "--workspace", "commands", ""}, 2, "session: must not be empty"},
		{[]string{"forget", "--server", s.nats, "--workspace", "commands", x}, 2, "session: is 257 bytes long, at most 256 are allowed"},
		{[]string{"forgetful"}, 2, "forgetful"},
	} {
		skald(t, "", c.args...).fails(t, c.code, c.says)
	}
	// A resync that is not ahead is rejected by the materializer, which the command tells.
	require.Len(t, skald(t, "", append([]string{"resync", "--ordinal", "5", "--digest", good}, control...)...).ok(t), 1)
	skald(t, "", append([]string{"resync", "--ordinal", "5", "--digest", good}, control...)...).
		fails(t, 1, "resync: rejected: bad_chain: not ahead of the position 5")
	require.Len(t, skald(t, "", append(publish, "--class", "error", "--body", `{"message":"after"}`)...).ok(t), 1)
	require.Len(t, s.same(t, "commands"), 1)
}
