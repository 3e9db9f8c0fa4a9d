//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// Ids of sessions and workspaces that brokers, shells and databases do not like.
var oddIDs = []string{
	"a b", "a.b", "a..b", ".a", "a.", "*", ">", "a/b", "a%2Fb", "é", "日本", "a:b", "Foo", "foo", "a_b", "a*b", "=", "$SYS",
	"NUL", "-x", strings.Repeat("x", 200), strings.Repeat("x", 256), strings.Repeat("é", 128),
}

// badIDs are no ids, with the rule that each breaks.
var badIDs = map[string]string{
	"":                        "must not be empty",
	"a\r\nPUB x 0":            "control characters",
	"a\x00b":                  "control characters",
	"\t":                      "control characters",
	"\xff":                    "UTF-8",
	strings.Repeat("x", 257):  "257 bytes",
	strings.Repeat("x", 5000): "5000 bytes",
}

// Every id that is one is taken, given back as it was, and kept apart from every
// other, as session and as workspace; every other is refused at once with the rule.
func TestPublish_OddIDs(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	for i, id := range oddIDs {
		body := fmt.Sprintf(`{"message":"m%d"}`, i)
		cli("publish", "--server", p.nats, "--session="+id, "--class", "error", "--body", body).ok(t)
		cli("publish", "--server", p.nats, "--session", "s", "--workspace="+id, "--class", "error", "--body", body).ok(t)
	}
	for id, rule := range badIDs {
		cli("publish", "--server", p.nats, "--session="+id, "--class", "error", "--body", "{}").fails(t, exitUsage, "session", rule)
		cli("publish", "--server", p.nats, "--session", "s", "--workspace="+id, "--class", "error", "--body", "{}").fails(t, exitUsage, "workspace", rule)
		cli("events", "--url", p.http, "--session="+id).fails(t, exitUsage, "session_id", rule)
		cli("events", "--server", p.nats, "--workspace="+id).fails(t, exitUsage, "workspace_id", rule)
		cli("session", "--url", p.http, "--", id).fails(t, exitUsage, "session_id", rule)
		cli("forget", "--server", p.nats, "--workspace=w", "--", id).fails(t, exitUsage, rule)
	}
	p.settle()
	for i, id := range oddIDs {
		for _, at := range [][]string{{"--url", p.http}, {"--server", p.nats}} {
			want := fmt.Sprintf(`"message":"m%d"`, i)
			out := split(cli(append(at, "events", "--after-seq", "0", "--session="+id, "--workspace", "default")...).ok(t))
			require.Len(t, out, 1, "%q", id)
			require.Contains(t, out[0], want)
			out = split(cli(append(at, "events", "--after-seq", "0", "--workspace="+id)...).ok(t))
			require.Len(t, out, 1, "%q", id)
			require.Contains(t, out[0], want)
			var s struct {
				ID string `json:"session_id"`
			}
			require.NoError(t, json.Unmarshal([]byte(cli(append(at, "session", "--workspace", "default", "--", id)...).ok(t)), &s))
			require.Equal(t, id, s.ID)
		}
	}
}

// An acknowledgement is a line, for people or for programs.
func TestPublish_Prints(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	publish := func(args ...string) string {
		return cliIn(`{"activity":{"state":"from stdin"}}`, append([]string{"publish", "--server", p.nats, "--session", "s1"}, args...)...).ok(t)
	}
	require.Equal(t, "stored ingest 1 default/s1 error\n", publish("--class", "error", "--body", `{"message":"x"}`))
	require.Equal(t, `{"ingest_seq":2,"workspace_id":"w\u0022","session_id":"s1","class":"activity","event_id":"i-1"}`+"\n",
		strings.ReplaceAll(publish("--workspace", `w"`, "--id", "i-1", "--body", "-", "--json"), `\"`, `\u0022`))
	require.Equal(t, `{"ingest_seq":3,"workspace_id":"default","session_id":"s1","class":"session"}`+"\n",
		publish("--class", "session", "--body", ` { "op" : "save" } `, "--json"))
	p.settle()
	require.Contains(t, cli("events", "--url", p.http, "--after-seq", "0").ok(t), `{"activity":{"state":"from stdin"}}`)

	// It sends what it was given, less white space, and no id that JetStream reads.
	m, err := p.jetStream().Stream(short(t), "SKALD_INGEST")
	require.NoError(t, err)
	raw, err := m.GetMsg(short(t), 3)
	require.NoError(t, err)
	require.Equal(t, `{"op":"save"}`, string(raw.Data))
	require.Empty(t, raw.Header.Get(jetstream.MsgIDHeader))
}

// Input of lines: each is published or refused by itself, with its number, in the
// order they came.
func TestPublish_Lines(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	in := strings.Join([]string{
		`{"session_id":"s1","body":{"message":"one"}}`,
		``,
		`{"session_id":"s2","workspace_id":"w","class":"activity","event_id":"e1","body":{ "activity" : {"n": 1e400} }}`,
		`{"session_id":"a\nb","body":{"message":"x"}}`,
		`{"session_id":"s1"}`,
		`not json`,
		`{"session_id":"s1","body":{"message":5}}`,
		`{"session_id":"s1","class":"loud","body":{}}`,
		`{"session_id":"s1","event_id":"a b","body":{"message":"x"}}`,
		`{"session_id":"s1","event_id":"","body":{"message":"x"}}`,
		`{"session_id":"s1","session":"s2","body":{"message":"x"}}`,
		`{"session_id":"s1","session_id":"s2","body":{"message":"x"}}`,
		`{"session_id":5,"body":{"message":"x"}}`,
		`[]`,
		"\xff",
		`{"session_id":"s1","class":"projection","body":{"events":[]}}`,
		`{"session_id":"` + strings.Repeat("x", 9<<20) + `"}`,
		`{"session_id":"s1","body":{"message":"` + strings.Repeat("x", 8<<20-16<<10) + `"}}`,
		`{"session_id":"s1","class":"activity","body":{"activity":` + strings.Repeat(`{"a":`, 510) + `{}` + strings.Repeat(`}`, 511) + `}`,
		`{"session_id":"s1","class":"activity","body":{"activity":` + strings.Repeat(`{"a":`, 511) + `{}` + strings.Repeat(`}`, 512) + `}`,
		`{"session_id":"s1","body":{"message":"last"}}`,
	}, "\n") // no line feed at the end
	r := cliIn(in, "publish", "--server", p.nats, "--class", "error", "--json")
	require.Equal(t, exitFailed, r.code, r.stderr)
	// Sessions do not wait for each other, so the numbers are in order within one.
	number := regexp.MustCompile(`"ingest_seq":([1-4]),`)
	require.Equal(t, []string{
		`{"workspace_id":"default","session_id":"s1","class":"error"}`,
		`{"workspace_id":"w","session_id":"s2","class":"activity","event_id":"e1"}`,
		`{"workspace_id":"default","session_id":"s1","class":"activity"}`,
		`{"workspace_id":"default","session_id":"s1","class":"error"}`,
	}, split(number.ReplaceAllString(r.stdout, "")))
	seqs := number.FindAllStringSubmatch(r.stdout, -1)
	require.Len(t, seqs, 4)
	require.True(t, seqs[0][1] < seqs[2][1] && seqs[2][1] < seqs[3][1], r.stdout)
	for line, says := range map[int]string{
		4: "session: must not contain control characters", 5: "body: is missing", 6: "is not JSON", 7: "message: must be a string",
		8: `class: must be session`, 9: "Skald-Event-Id: must be printable", 10: "event_id: must not be empty", 11: "session: is not known",
		12: "session_id: must not occur twice", 13: "session_id: must be a string", 14: "must be a JSON object", 15: "UTF-8",
		16: "must hold 1 to 128 events", 17: "line is too long", 18: "this server takes at most",
		20: "nests deeper than 512 levels",
	} {
		require.Regexp(t, fmt.Sprintf(`(?m)^skald: line %d: .*%s`, line, says), r.stderr)
	}
	require.Contains(t, r.stderr, "skald: 4 stored, 0 not acknowledged, 16 wrong")
	require.Less(t, len(r.stderr), 10_000)
	p.settle()
	require.Contains(t, cli("events", "--url", p.http, "--after-seq", "0", "--session", "s2").ok(t), `{"activity":{"n":1e400}}`)
	require.Contains(t, p.get("/api/v1/status"), `"rejects":0`, "what is wrong for certain is not sent")
}

// The check of a line left less room for the headers than the publisher does, which takes
// all lines that were read together or none: one that was too large by less than that was
// passed on, and five good ones behind it were said to be too large, too.
func TestPublish_LineAtTheLimit(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	for short, wrong := range map[int]int{256: 1, 512: 1, 767: 1, 768: 0} { // of what INGEST takes
		large := fmt.Sprintf(`{"message":%q}`, strings.Repeat("x", 8<<20-16<<10-short-len(`{"message":""}`)))
		in := fmt.Sprintf(`{"body":%s}`, large) + strings.Repeat("\n"+`{"body":{"message":"small"}}`, 5)
		r := cliIn(in, "publish", "--server", p.nats, "--session", "s", "--class", "error")
		require.Len(t, split(r.stdout), 6-wrong, r.stderr)
		if wrong > 0 {
			require.Contains(t, r.stderr, fmt.Sprintf("skald: line 1: body: is %d bytes long, this server takes at most %d\n", len(large), 8<<20-16<<10-768))
			require.Contains(t, r.stderr, "skald: 5 stored, 0 not acknowledged, 1 wrong")
		}
	}
}

// Many lines keep their order, each acknowledged once.
func TestPublish_KeepsOrder(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	const n = 3000
	p.publish("default", "s", n)
	p.settle()
	i := 0
	for after := 0; i < n; {
		out := split(cli("events", "--url", p.http, "--after-seq", fmt.Sprint(after), "--limit", "1000").ok(t))
		require.NotEmpty(t, out)
		for _, line := range out {
			i++
			require.Contains(t, line, fmt.Sprintf(`{"message":"m%d",`, i))
		}
		after = i
	}
}

// What can not be meant is refused before anything is sent.
func TestPublish_RefusesFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says string
		args []string
	}{
		{"--session", []string{"--body", "{}"}},
		{"--id", []string{"--id", "x"}},
		{"--id", []string{"--id", "", "--session", "s", "--body", "{}"}},
		{"unknown flag", []string{"--follow"}},
		{"extra", []string{"extra"}},
	} {
		cli(append([]string{"publish"}, c.args...)...).fails(t, exitUsage, c.says)
	}
}

// What the body lacks is named, and the message is not sent.
func TestPublish_RefusesBodies(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	for _, c := range []struct{ class, body, says string }{
		{"error", "", "body: must not be empty"},
		{"error", "{", "cut off"},
		{"error", "{} {}", "more after the value"},
		{"error", "{}", "message: is missing"},
		{"activity", `{"activity":null}`, "activity: must be an object"},
		{"session", `{"op":"drop"}`, `op: must be "save"`},
		{"control", `{"op":"prune","before_seq":1}`, "op: must be"},
		{"projection", `{"events":{}}`, "events: must be an array"},
		{"Error", `{"message":"x"}`, "class: must be"},
		{"", `{"message":"x"}`, "class: must be"},
		{"error", `{"message":"` + strings.Repeat("x", 8<<20) + `"}`, "takes at most"},
	} {
		cli("publish", "--server", p.nats, "--session", "s", "--class="+c.class, "--body="+c.body).fails(t, exitUsage, c.says)
	}
	const hint = "the class is activity unless --class says another"
	cli("publish", "--server", p.nats, "--session", "s", "--body", `{"message":"x"}`).fails(t, exitUsage, "body of class activity", hint)
	for _, args := range [][]string{{"--session=", "--body", `{"activity":{}}`}, {"--session", "s", "--class", "activity", "--body", "{}"}} {
		r := cli(append([]string{"publish", "--server", p.nats}, args...)...)
		r.fails(t, exitUsage)
		require.NotContains(t, r.stderr, hint, "%q", args)
	}
	p.settle()
	require.Contains(t, p.get("/api/v1/status"), `"last_seq":0`)
}

// Input without a message is no silence.
func TestPublish_EmptyInput(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	for _, in := range []string{"", "\n \n"} {
		r := cliIn(in, "publish", "--server", p.nats)
		require.Empty(t, r.ok(t))
		require.Contains(t, r.stderr, "skald: 0 stored")
	}
	require.Empty(t, cliIn(`{"session_id":"s","body":{"activity":{}}}`, "publish", "--server", p.nats).stderr)
}

// Without a bus, the error says what to look for.
func TestPublish_NoBus(t *testing.T) {
	t.Parallel()
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	args := []string{"publish", "--session", "s", "--class", "error", "--body", `{"message":"x"}`, "--server"}
	cli(append(args, url)...).fails(t, exitFailed, "not acknowledged", "no stream takes it", url)
	r := cli(append(args, "nats://me:pa55word@127.0.0.1:1")...)
	r.fails(t, exitFailed, "nats://127.0.0.1:1", "check that the server runs")
	require.NotContains(t, r.stderr, "pa55word")
	cliIn(strings.Repeat(`{"session_id":"s","body":{"message":"x"}}`+"\n", 3), "publish", "--class", "error", "--server", url).
		fails(t, exitFailed, "no stream takes it", "3 not acknowledged")
}

// With the connection lost, reading stops, and what was not acknowledged is counted.
func TestPublish_ConnectionLost(t *testing.T) {
	t.Parallel()
	url, server := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	r, w := io.Pipe()
	acknowledged := make(chan struct{})
	var once bool
	stdout := writerFunc(func(b []byte) (int, error) {
		if !once {
			once = true
			close(acknowledged)
		}
		return len(b), nil
	})
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"publish", "--server", url, "--session", "s", "--class", "error"}, r, stdout, &stderr)
	}()
	line := []byte(`{"body":{"message":"x"}}` + "\n")
	_, err := w.Write(line)
	require.NoError(t, err)
	<-acknowledged
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { server.Process.Signal(syscall.SIGCONT) })
	_, err = w.Write(line)
	require.NoError(t, err)
	require.NoError(t, server.Process.Kill())
	go func() {
		for err == nil {
			_, err = w.Write(line)
		}
	}()
	require.Equal(t, exitFailed, <-code)
	require.NoError(t, r.Close())
	require.Contains(t, stderr.String(), "not acknowledged")
	require.Contains(t, stderr.String(), "1 stored, ")
	_ = p
}

// B06, its long form: Ctrl-C while the server does not answer yet ended the command with
// a word on the connection and none on the lines.
func TestPublish_InterruptedEarly(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	p := command(t, "publish", "--server", "nats://"+silent.Addr().String())
	p.start()
	c, err := silent.Accept()
	require.NoError(t, err)
	defer c.Close()
	p.signal(os.Interrupt)
	require.Equal(t, exitFailed, p.ends())
	require.Contains(t, p.text(), "skald: 0 stored, 0 not acknowledged, 0 wrong")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Control messages go the same way, a server's refusal is told.
func TestPublish_ServerRefuses(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	js := p.jetStream()
	st, err := js.Stream(short(t), "SKALD_INGEST")
	require.NoError(t, err)
	cfg := st.CachedInfo().Config
	cfg.MaxMsgSize = 1000
	_, err = js.UpdateStream(short(t), cfg)
	require.NoError(t, err)
	big := `{"session_id":"s","body":{"message":"` + strings.Repeat("x", 2000) + `"}}`
	small := `{"session_id":"s","body":{"message":"x"}}`
	r := cliIn(small+"\n"+big+"\n"+small+"\n", "publish", "--server", p.nats, "--class", "error")
	require.Equal(t, exitFailed, r.code, r.stderr)
	require.Len(t, split(r.stdout), 2, r.stderr)
	require.Contains(t, r.stderr, "line 2: not acknowledged")
	require.Contains(t, r.stderr, "message size exceeds maximum allowed")
	require.Contains(t, r.stderr, "2 stored, 1 not acknowledged, 0 wrong")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(p.get("/api/v1/status"), `"latest_seq":2`)
	})
}

// With an outbox, all lines that were not acknowledged were said to be in it and to be sent
// by the next run, also one that INGEST does not take for its size, which is released.
func TestPublish_OutboxSaysWhatItKeeps(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	js := s.jetStream()
	st, err := js.Stream(short(t), "SKALD_INGEST")
	require.NoError(t, err)
	cfg := st.CachedInfo().Config
	cfg.MaxMsgSize, cfg.MaxBytes = 1000, 1 // full for what is not too large
	_, err = js.UpdateStream(short(t), cfg)
	require.NoError(t, err)
	outbox := t.TempDir()
	p := command(t, "publish", "--server", s.nats, "--class", "error", "--outbox", outbox)
	p.cmd.Stdin = strings.NewReader(`{"session_id":"a","event_id":"e","body":{"message":"` + strings.Repeat("x", 2000) + `"}}` + "\n" +
		`{"session_id":"b","body":{"message":"x"}}` + "\n" + `{"session_id":"b","body":{"message":"y"}}`)
	p.start()
	p.says("skald: line 1: not acknowledged: ")
	p.signal(os.Interrupt)
	require.Equal(t, exitFailed, p.ends())
	require.Contains(t, p.text(), "skald: 0 stored, 3 not acknowledged, 0 wrong")
	require.Contains(t, p.text(), "skald: not acknowledged: 2 in the outbox "+outbox+", sent by the next run with it; 1 not kept")

	cfg.MaxBytes = 100_000_000
	_, err = js.UpdateStream(short(t), cfg)
	require.NoError(t, err)
	require.Empty(t, cli("publish", "--server", s.nats, "--outbox", outbox).ok(t))
	s.settle()
	require.Len(t, split(cli("events", "--url", s.http, "--after-seq", "0").ok(t)), 2)
}
