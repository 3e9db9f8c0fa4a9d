//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// natsTool runs NATS' own command line tool, with no contexts of whoever runs the tests,
// and returns what it has printed.
func natsTool(t *testing.T, s *server, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("nats")
	skaldtest.Need(t, err == nil, "nats in PATH (go build -C internal/tools -o DIR github.com/nats-io/natscli/nats)")
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--server", s.nats}, args...)...)
	home := t.TempDir()
	cmd.Env = append(environment(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "nats %s\n%s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// The tool that NATS users have finds the service and its counters, and asks for a page, the
// sessions and one session as it asks any service.
func TestNATSTool(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for n := range 5 {
		w.put(ingestSubject("my team", fmt.Sprint("s.", n%2), "error"), nil, failed(fmt.Sprint(n)))
	}
	w.put(ingestSubject("other", "s.0", "error"), nil, failed("not asked for"))
	s.settle(t)

	require.Regexp(t, `skald\b.*pages, sessions and status of a Skald bus`, natsTool(t, s, "micro", "ls"))
	about := natsTool(t, s, "micro", "info", "skald")
	for _, subject := range []string{
		"skald.api.*.events", "skald.api.*.sessions", "skald.api.*.session.*", "skald.api.*.position.*", "skald.api.*.outcome.*",
		"skald.op.events", "skald.op.sessions", "skald.op.status",
	} {
		require.Contains(t, about, "Subject: "+subject+"\n")
	}

	var lines []string
	pages := 0
	for cursor := "0"; ; {
		pages++
		var p eventPage
		out := natsTool(t, s, "req", "--raw", "skald.api.my=20team.events", `{"after_seq":"`+cursor+`","limit":"2"}`)
		require.NoError(t, json.Unmarshal([]byte(out), &p), out)
		if lines = append(lines, p.lines()...); p.Next >= p.Latest {
			break
		}
		cursor = fmt.Sprintf("%s:%d", p.Epoch, p.Next)
	}
	require.Len(t, lines, 5)
	require.Equal(t, s.same(t, "my team"), lines)

	type session struct {
		Session   string `json:"session_id"`
		Workspace string `json:"workspace_id"`
		Events    struct{ Count int }
	}
	var list struct{ Sessions []session }
	require.NoError(t, json.Unmarshal([]byte(natsTool(t, s, "req", "--raw", "skald.api.my=20team.sessions", "")), &list))
	require.Len(t, list.Sessions, 2)
	var one session
	require.NoError(t, json.Unmarshal([]byte(natsTool(t, s, "req", "--raw", "skald.api.my=20team.session.s=2E1", "")), &one))
	require.Equal(t, session{"s.1", "my team", struct{ Count int }{2}}, one)
	// Refusals are a body and headers, which the tool shows.
	refused := natsTool(t, s, "req", "skald.api.my=20team.session.nobody", "")
	require.Contains(t, refused, "Nats-Service-Error-Code: 404")
	require.Contains(t, refused, `"code":"not_found"`)

	require.Equal(t, 4, pages, "the last is empty: the newest event is another workspace's")

	// It counts what was asked, the session that was refused too.
	require.Regexp(t, `session +│ 2 +│ q `, natsTool(t, s, "micro", "stats", "skald"))
	var stats []micro.Stats
	out := natsTool(t, s, "micro", "stats", "skald", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &stats), out)
	requests := map[string]int{}
	for _, e := range stats[0].Endpoints {
		requests[e.Name] = e.NumRequests
	}
	require.Equal(t, pages, requests["events"])
	require.Equal(t, 1, requests["sessions"])
	require.Equal(t, 2, requests["session"])
}

// A JavaScript client pages the service to its end while serve is killed and started
// again, goes on later where it was, and is told what it can not be given.
func TestJavaScript_Pages(t *testing.T) {
	t.Parallel()
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	s := serveAt(t, dir, at, web)
	s.load(t, "js ws", 800, 0, 10)
	s.settle(t)
	pages := func(args ...string) *process {
		return background(t, node(t, append([]string{"pages.js", "--server", at, "--workspace", "js ws"}, args...)...))
	}
	p := pages("--limit", "1")
	awaitFacts(t, p, 20)
	kill(s.process)
	s = serveAt(t, dir, at, web)
	<-p.exited
	require.Equal(t, 0, p.code, p.text())
	all := s.same(t, "js ws")
	require.Equal(t, all, p.facts())
	_, rest, ok := strings.Cut(p.lastLine(t), "--after ")
	require.True(t, ok, p.lastLine(t))
	cursor, _, _ := strings.Cut(rest, " ")

	s.worker(t).put(ingestSubject("js ws", "late", "error"), nil, failed("late"))
	s.settle(t)
	p = pages("--after", cursor, "--session", "late")
	<-p.exited
	require.Equal(t, 0, p.code, p.text())
	require.Equal(t, s.same(t, "js ws")[len(all):], p.facts())

	p = pages("--after", "other:1")
	<-p.exited
	require.Equal(t, 1, p.code)
	require.Contains(t, p.text(), "pages: other_epoch: ")
}
