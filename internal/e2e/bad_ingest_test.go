//go:build unix

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
)

// badMessage is a message that a worker stores and that is no good. An empty class
// stands for error, an empty body for one that is good.
type badMessage struct {
	name, class, body string
	header            nats.Header
	reason, detail    string
}

const (
	badTime  = "recorded_at_ms: must be an integer literal within int64"
	goodBody = `{"message":"x"}`
)

func badBodies() []badMessage {
	body := func(name, class, body, detail string) badMessage {
		return badMessage{name: name, class: class, body: body, reason: "bad_body", detail: detail}
	}
	rows := []badMessage{
		body("white space", "error", " \n\t ", "body: is cut off after 4 bytes"),
		body("cut off", "error", `{"message":"x`, "body: is cut off after 13 bytes"),
		body("cut off in an escape", "error", `{"message":"\u00`, "body: is cut off after 16 bytes"),
		body("two values", "error", `{"message":"x"}{}`, "body: is not JSON at byte 15: there is more after the value"),
		body("no JSON", "error", `message=x`, "body: is not JSON at byte 0: a value must follow"),
		body("single quotes", "error", `{'message':'x'}`, "body: is not JSON at byte 1: a member name must follow"),
		body("a comma too many", "error", `{"message":"x",}`, "body: is not JSON at byte 15: a member name must follow"),
		body("leading zero", "error", `{"message":"x","recorded_at_ms":01}`, "body: is not JSON at byte 33: a comma or the end of the object or array must follow"),
		body("NaN", "activity", `{"activity":{"v":NaN}}`, "body: is not JSON at byte 17: a value must follow"),
		body("raw line break", "error", "{\"message\":\"a\nb\"}", "body: is not JSON at byte 13: a control character in a string must be escaped"),
		body("unknown escape", "error", `{"message":"\x41"}`, "body: is not JSON at byte 12: unknown escape"),
		body("not UTF-8", "error", "{\"message\":\"\xe9\"}", "body: must be valid UTF-8, byte 12 is not"),
		body("byte order mark", "error", "\ufeff{\"message\":\"x\"}", "body: is not JSON at byte 0: a value must follow"),
		body("100,000 levels", "error", strings.Repeat(`{"a":`, 100_000), "body: nests deeper than 512 levels at byte 2560"),
		body("an array", "error", `[]`, "body: must be a JSON object"),
		body("null", "session", `null`, "body: must be a JSON object"),
		body("a string", "activity", `"{}"`, "body: must be a JSON object"),
		body("error without message", "error", `{}`, "message: is missing"),
		body("message of a number", "error", `{"message":1}`, "message: must be a string"),
		body("message null", "error", `{"message":null}`, "message: must be a string"),
		body("message twice", "error", `{"message":"a","message":"b"}`, "message: must not occur twice"),
		body("message twice, once escaped", "error", `{"message":"a","mess\u0061ge":"b"}`, "message: must not occur twice"),
		body("command_id of a number", "error", `{"message":"x","command_id":1}`, "command_id: must be a string or null"),
		body("activity missing", "activity", `{}`, "activity: is missing"),
		body("activity of an array", "activity", `{"activity":[]}`, "activity: must be an object"),
		body("activity null", "activity", `{"activity":null}`, "activity: must be an object"),
		body("op missing", "session", `{"title":"x"}`, `op: must be "save"`),
		body("op unknown", "session", `{"op":"drop"}`, `op: must be "save"`),
		body("title of a number", "session", `{"op":"save","title":1}`, "title: must be a string or null"),
		body("state of an object", "session", `{"op":"save","state":{}}`, "state: must be a string or null"),
		body("last_error false", "session", `{"op":"save","last_error":false}`, "last_error: must be a string or null"),
		body("control without op", "control", `{}`, `op: must be "forget" or "resync"`),
		body("prune of a session", "control", `{"op":"prune","before_seq":1}`, `op: must be "forget" or "resync"`),
		body("op twice", "control", `{"op":"forget","op":"forget"}`, "op: must not occur twice"),
		body("resync to nowhere", "control", `{"op":"resync"}`, "ordinal: must be an integer literal from 1 to 2^63-1"),
		body("resync to 0", "control", `{"op":"resync","ordinal":0,"digest":"`+strings.Repeat("0", 64)+`"}`, "ordinal: must be an integer literal from 1 to 2^63-1"),
		body("resync to a fraction", "control", `{"op":"resync","ordinal":1.5}`, "ordinal: must be an integer literal from 1 to 2^63-1"),
		body("resync without digest", "control", `{"op":"resync","ordinal":5}`, "digest: must be 64 lower-case hex digits"),
		body("resync in upper case", "control", `{"op":"resync","ordinal":5,"digest":"`+strings.Repeat("A", 64)+`"}`, "digest: must be 64 lower-case hex digits"),
		body("resync with 63 digits", "control", `{"op":"resync","ordinal":5,"digest":"`+strings.Repeat("a", 63)+`"}`, "digest: must be 64 lower-case hex digits"),
		{name: "unknown class", class: "telepathy", reason: "unknown_class", detail: `class: "telepathy" is not known`},
		{name: "class in upper case", class: "Error", reason: "unknown_class", detail: `class: "Error" is not known`},
		{name: "long class", class: strings.Repeat("c", 100), reason: "unknown_class", detail: `class: "` + strings.Repeat("c", 64) + `" is not known`},
	}
	for _, v := range []string{`"1"`, `1.0`, `1.5`, `1e3`, `null`, `true`, `[]`, `9223372036854775808`, `-9223372036854775809`, `1` + strings.Repeat("0", 400)} {
		for class, body := range map[string]string{"error": `"message":"x"`, "activity": `"activity":{}`, "session": `"op":"save"`} {
			rows = append(rows, badMessage{name: class + " at " + v[:min(len(v), 30)], class: class, body: "{" + body + `,"recorded_at_ms":` + v + "}", reason: "bad_body", detail: badTime})
		}
	}
	return rows
}

func badHeaders() []badMessage {
	header := func(name, detail string, pairs ...string) badMessage {
		h := nats.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
		}
		return badMessage{name: name, header: h, reason: "bad_header", detail: detail}
	}
	const (
		event, pub, seq = "Skald-Event-Id", "Skald-Publisher", "Skald-Publisher-Seq"
		badCount        = seq + ": must be a decimal number from 1 to 2^63-1"
		printable       = ": must be printable ASCII without spaces"
	)
	control := header("event id of a control message", event+printable, event, "a b")
	control.class, control.body = "control", `{"op":"forget"}`
	return []badMessage{
		header("publisher alone", seq+": is missing beside "+pub, pub, "p"),
		header("count alone", pub+": is missing beside "+seq, seq, "1"),
		header("count 0", badCount, pub, "p", seq, "0"),
		header("count 1.5", badCount, pub, "p", seq, "1.5"),
		header("count -1", badCount, pub, "p", seq, "-1"),
		header("count +1", badCount, pub, "p", seq, "+1"),
		header("count in hex", badCount, pub, "p", seq, "0x1"),
		header("count of letters", badCount, pub, "p", seq, "one"),
		header("count 2^63", badCount, pub, "p", seq, "9223372036854775808"),
		header("count of 20 digits", seq+": must be 1 to 19 bytes long, not 20", pub, "p", seq, "10000000000000000000"),
		header("count empty", seq+": must be 1 to 19 bytes long, not 0", pub, "p", seq, ""),
		header("count twice", seq+": must occur once", pub, "p", seq, "1", seq, "1"),
		header("publisher empty", pub+": must be 1 to 64 bytes long, not 0", pub, "", seq, "1"),
		header("publisher of 65 bytes", pub+": must be 1 to 64 bytes long, not 65", pub, strings.Repeat("p", 65), seq, "1"),
		header("publisher with a space", pub+printable, pub, "a b", seq, "1"),
		header("publisher not ASCII", pub+printable, pub, "é", seq, "1"),
		header("id empty", event+": must be 1 to 128 bytes long, not 0", event, ""),
		header("id of 129 bytes", event+": must be 1 to 128 bytes long, not 129", event, strings.Repeat("e", 129)),
		header("id with a space", event+printable, event, "a b"),
		header("id not ASCII", event+printable, event, "é"),
		header("id not UTF-8", event+printable, event, "\xff"),
		header("id with NUL", event+printable, event, "a\x00b"),
		header("id twice", event+": must occur once", event, "a", event, "b"),
		header("id bad beside a count", event+printable, event, "a b", pub, "p", seq, "1"),
		control,
	}
}

// What a worker stores is read later: each bad message is listed with its reason,
// the field and the rule, is told to whom listens, and hinders none that follows.
func TestBadInput_Ingest(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w, heard := s.worker(t), s.listen(t, "bad")
	rows := append(badBodies(), badHeaders()...)
	seqs := make([]uint64, len(rows))
	for i := range rows {
		c := &rows[i]
		if c.class == "" {
			c.class = "error"
		}
		if c.body == "" {
			c.body = goodBody
		}
		seqs[i] = w.put(ingestSubject("bad", c.name, c.class), c.header, c.body)
		w.put(ingestSubject("bad", c.name, "error"), withID("good"), failed("after "+c.name))
	}
	require.Equal(t, len(rows), s.settle(t).Rejects)
	entries := s.rejects(t, "--workspace", "bad")
	for i, c := range rows {
		e := entries[seqs[i]]
		require.Equal(t, c.reason, e.Reason, c.name)
		require.Equal(t, c.detail, e.Detail, c.name)
		require.Equal(t, c.class, e.Class, c.name)
		require.Equal(t, c.name, *e.Session)
		sum := sha256.Sum256([]byte(c.body))
		require.Equal(t, hex.EncodeToString(sum[:]), e.Hash, c.name)
		got := heard.of(seqs[i])
		require.Equal(t, "rejected", got.Outcome, c.name)
		require.Equal(t, c.reason, got.Reason, c.name)
	}
	events := s.same(t, "bad")
	require.Len(t, events, len(rows))
	for i, c := range rows {
		require.Contains(t, events[i], `"session_id":`+quoted(c.name))
		require.Contains(t, events[i], `"message":`+quoted("after "+c.name))
	}
	require.Equal(t, len(rows), s.settle(t).Applied)
}

// What looks odd but breaks no rule comes back byte for byte at every door.
func TestBadInput_KeptAsSent(t *testing.T) {
	t.Parallel()
	s := shared(t)
	w := s.worker(t)
	deep := strings.Repeat("[", 510) + strings.Repeat("]", 510)
	objects := []string{
		`{"n":9007199254740993,"m":-9007199254740993,"u":18446744073709551616}`,
		`{"n":123456789012345678901234567890.123456789012345678901234567890}`,
		`{"n":1.0,"m":1e2,"o":1E+2,"p":-0,"q":0.10,"r":1e400,"s":5e-400}`,
		`{"a":1,"a":2,"b":{"c":1,"c":1}}`,
		`{"v":"\u0000 \ud800 \udc00\ud800 \uD83D\uDE42 \/ \" \\ \b"}`,
		"{\"v\":\"<&>\u2028\u2029\u007f\u0085\U0001F642\"}",
		`{"v":` + deep + `}`,
		`{"":{"":""}}`,
		`{"seq":1,"session_id":"forged","type":"forged","data":{}}`,
		`{"v":"` + strings.Repeat("é", 100_000) + `"}`,
	}
	for i, o := range objects {
		h := nats.Header{"traceparent": {"not a trace"}, "Skald-Epoch": {"forged"}, "Skald-Ingest-Seq": {"1"}, "X-Else": {"\xff"}}
		w.put(ingestSubject("kept", fmt.Sprint(i), "activity"), h, " \n{ \"else\" : [1 , 2] , \"activity\" :\t"+o+" , \"recorded_at_ms\" : 7 }\r\n")
	}
	times := []string{"-1", "0", "-0", "-9223372036854775808", "9223372036854775807"}
	for _, at := range times {
		w.put(ingestSubject("kept", "times", "error"), nil, `{"message":"x","recorded_at_ms":`+at+`}`)
	}
	missing := w.put(ingestSubject("kept", "times", "error"), nil, `{"message":"x"}`)
	rows := s.same(t, "kept")
	require.Len(t, rows, len(objects)+len(times)+1)
	for i, o := range objects {
		require.Equal(t, `{"activity":`+o+`}`, dataOf(rows[i]))
		require.Contains(t, rows[i], fmt.Sprintf(`"session_id":"%d"`, i))
	}
	for i, at := range append(times, "") {
		e, err := bus.ParseEvent([]byte(rows[len(objects)+i]))
		require.NoError(t, err)
		if at == "" { // INGEST's time stands in for it
			raw, err := s.js(t).Stream(t.Context(), "SKALD_INGEST")
			require.NoError(t, err)
			m, err := raw.GetMsg(t.Context(), missing)
			require.NoError(t, err)
			require.Equal(t, m.Time.UnixMilli(), e.RecordedAt)
			require.Equal(t, m.Time.UnixMilli(), e.StoredAt)
			continue
		}
		require.Equal(t, strings.TrimPrefix(at, "-0")+map[bool]string{true: "0"}[at == "-0"], fmt.Sprint(e.RecordedAt))
	}
	// The session's view holds the same bytes, whoever asks.
	for i, o := range objects {
		id := fmt.Sprint(i)
		_, _, body := s.fetch(t, "/api/v1/sessions/"+id+"?workspace_id=kept")
		require.Contains(t, string(body), `"activity":`+o+`,`)
		require.Equal(t, string(body), string(s.ask(t, "skald.api.kept.session."+id, "").Data))
		if len(o) > 1000 { // a process each
			for _, at := range [][]string{{"--data", s.data}, {"--url", s.http}, {"--server", s.nats}} {
				require.Equal(t, []string{string(body)}, skald(t, "", append([]string{"session", id, "--json", "--workspace", "kept"}, at...)...).ok(t))
			}
		}
	}
	require.Empty(t, s.rejects(t, "--workspace", "kept"))
}

// A subject is the authority on whose message it is: one that is not the canonical
// form of two ids and a class names no session, and is listed by its subject.
func TestBadInput_Subjects(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	const (
		hex       = ": token has a = that two upper-case hex digits do not follow"
		canonical = ": token is not the canonical escape of its id, which is "
	)
	stored := map[string]string{
		"=61.s.error":       `workspace` + canonical + `"a"`,
		"w.=61.error":       `session` + canonical + `"a"`,
		"w.=2D=5F.error":    `session` + canonical + `"-_"`,
		"w.a=2e.error":      `session` + hex,
		"w.a=2.error":       `session` + hex,
		"w.a=.error":        `session` + hex,
		"w.a==2E.error":     `session` + hex,
		"w.=G0.error":       `session` + hex,
		"=.s.error":         `workspace` + hex,
		"w.*.error":         `session` + canonical + `"=2A"`,
		"*.s.error":         `workspace` + canonical + `"=2A"`,
		"w.>.error":         `session` + canonical + `"=3E"`,
		"w.a:b.error":       `session` + canonical + `"a=3Ab"`,
		"w.é.error":         `session` + canonical + `"=C3=A9"`,
		"w.=0D=0A.error":    "session: must not contain control characters, found U+000D",
		"w.a=00.error":      "session: must not contain control characters, found U+0000",
		"=C2=85.s.error":    "workspace: must not contain control characters, found U+0085",
		"w.=FF.error":       "session: must be valid UTF-8",
		"w.=ED=A0=80.error": "session: must be valid UTF-8",
		"=.=.error":         "subject: must be skald.in.=.=.control where it names no session",
		"w." + strings.Repeat("x", 257) + ".error":   "session: is 257 bytes long, at most 256 are allowed",
		"w." + strings.Repeat("=2E", 257) + ".error": "session: is 257 bytes long, at most 256 are allowed",
		strings.Repeat("=C3=A9", 129) + ".s.error":   "workspace: is 258 bytes long, at most 256 are allowed",
		"w." + strings.Repeat("x", 2_000) + ".error": "session: is 2000 bytes long, at most 256 are allowed",
	}
	seqs := map[string]uint64{}
	good := 0
	for subject := range stored {
		seqs[subject] = w.put("skald.in."+subject, nil, goodBody)
		w.put(ingestSubject("w", "good", "error"), nil, failed("after "+subject))
		good++
	}
	// What no stream takes is answered at once, by the broker.
	for _, subject := range []string{"w.s", "w.s.error.more", "w..error", ".s.error", "w.s.", "w.a.b.error", "W"} {
		start := time.Now()
		_, err := w.send("skald.in."+subject, nil, goodBody)
		require.ErrorIs(t, err, nats.ErrNoResponders, subject)
		require.Less(t, time.Since(start), patience/2)
		w.put(ingestSubject("w", "good", "error"), nil, failed("after "+subject))
		good++
	}
	// Messages of the operator that name no session.
	for _, c := range []struct{ body, detail string }{
		{`{"op":"forget"}`, `op: must be "prune" or "discard"`},
		{`{"op":"prune"}`, "before_seq: must be an integer from 1 to 2^63-1"},
		{`{"op":"prune","before_seq":0}`, "before_seq: must be an integer from 1 to 2^63-1"},
		{`{"op":"prune","before_seq":"1"}`, "before_seq: must be an integer from 1 to 2^63-1"},
		{`{`, "body: is cut off after 1 bytes"},
	} {
		seq := w.put("skald.in.=.=.control", nil, c.body)
		s.settle(t)
		e := s.rejects(t)[seq]
		require.Equal(t, "bad_body", e.Reason)
		require.Equal(t, c.detail, e.Detail)
		require.Nil(t, e.Session)
	}
	st := s.settle(t)
	require.Equal(t, len(stored)+5, st.Rejects)
	require.Equal(t, 1, st.Sessions, "a rejected message makes none")
	entries := s.rejects(t)
	for subject, detail := range stored {
		e := entries[seqs[subject]]
		require.Equal(t, "bad_subject", e.Reason, subject)
		require.Equal(t, detail, e.Detail, subject)
		require.Equal(t, "skald.in."+subject, e.Subject)
		require.Nil(t, e.Session)
	}
	require.Len(t, s.same(t, "w"), good)
}

// The deepest body that is accepted can be read wherever it stands: after a restart,
// which compares the end of EVENTS with the table, and by a new store, which takes
// its rows from EVENTS.
func TestBadInput_DeepestSurvives(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL())
	body := `{"activity":{"v":` + strings.Repeat("[", 510) + strings.Repeat("]", 510) + `}}`
	s.worker(t).put(ingestSubject("deep", "s", "activity"), nil, body)
	line := `{"workspace_id":"deep","session_id":"command","class":"activity","body":` + body + `}`
	require.Len(t, skald(t, line, "publish", "--server", s.nats).ok(t), 1)
	rows := s.same(t, "deep")
	require.Len(t, rows, 2)
	s.stop(t)
	s = serve(t, data, "--server", broker.ClientURL())
	require.Equal(t, rows, s.same(t, "deep"))
	s.stop(t)
	s = serve(t, t.TempDir(), "--server", broker.ClientURL())
	require.Equal(t, rows, s.same(t, "deep"))
}
