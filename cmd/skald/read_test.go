//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/target"
)

// The three ways to the table give the same lines, the wire's bytes, and on standard
// error where to go on.
func TestRead_ThreeWays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("w", "s", 5)
	p.publish("v", "s", 1)
	p.publish("v", "other", 1)
	p.settle()
	ways := map[string][]string{"file": {"--data", dir}, "http": {"--url", p.http}, "nats": {"--server", p.nats}}
	for name, way := range ways {
		get := func(args ...string) result { return cli(append(args, way...)...) }
		all := get("events", "--after-seq", "0", "--json")
		require.Equal(t, cli("events", "--after-seq", "0", "--url", p.http).ok(t), all.ok(t), name)
		require.Len(t, split(all.stdout), 7)
		require.Equal(t, "7 events, at the newest: --after-seq 7 goes on from here\n", all.stderr)
		require.Contains(t, p.get("/api/v1/events?after_seq=0"), split(all.stdout)[0], "the wire's bytes")

		r := get("events", "--after-seq", "0", "--limit", "2", "--session", "s", "--workspace", "w", "--type", "error")
		require.Len(t, split(r.ok(t)), 2)
		require.Equal(t, "2 events, newest is 7: --after-seq 2 goes on from here\n", r.stderr)
		r = get("events")
		require.Empty(t, r.ok(t))
		require.Equal(t, "at the newest event, 7: --after-seq 7 goes on from here, --after-seq 0 reads from the beginning\n", r.stderr)
		require.Equal(t, r, get("events", "--after-seq", ""), "empty is as if absent")
		require.Len(t, split(get("events", "--after-seq", "0", "--limit", "1001").ok(t)), 7)

		require.Len(t, split(get("sessions").ok(t)), 3)
		r = get("sessions", "--limit", "2")
		require.Len(t, split(r.ok(t)), 2)
		require.Contains(t, r.stderr, "2 sessions, there are more: --after ")
		require.Contains(t, get("sessions", "--workspace", "v", "--session", "other").ok(t), `"session_id":"other"`)
		require.Contains(t, get("session", "other").ok(t), `"workspace_id":"v"`)
		require.Contains(t, get("session", "s", "--workspace", "w").ok(t), `"count":5`)
		require.Contains(t, get("status").ok(t), `"latest_seq":7`)

		get("session", "nobody").fails(t, exitNotFound, "not found")
		get("session", "s", "--workspace", "nowhere").fails(t, exitNotFound, "not found")
		get("session", "s").fails(t, exitFailed, `choose one with --workspace: "v", "w"`)
		get("session").fails(t, exitUsage, "arg")
		get("events", "--after-seq", "8").fails(t, exitFailed, "ahead of the newest", "another bus, or was its data removed?")
		require.Equal(t, "1 session, no more\n", get("sessions", "--workspace", "w").stderr)
		get("events", "--after-seq", "other:1").fails(t, exitFailed, "another epoch")
		for _, v := range []string{"bad", "-1", "1.5", "0x10", "1e3", " 5", "5,6", "9223372036854775808", strings.Repeat("9", 10_000)} {
			get("events", "--after-seq="+v).fails(t, exitUsage, "after_seq: ")
		}
		for _, v := range []string{"-1", "0", "ten", "1.5"} {
			get("events", "--after-seq", "0", "--limit="+v).fails(t, exitUsage, "limit: ")
			get("sessions", "--limit="+v).fails(t, exitUsage, "limit: ")
		}
		get("events", "--after-seq", "1", "--after-seq", "2").fails(t, exitUsage, "--after-seq", "twice")
		get("events", "--session", "").fails(t, exitUsage, "session_id: must not be empty")
		get("events", "--workspace", "").fails(t, exitUsage, "workspace_id: must not be empty")
		get("events", "--type", "").fails(t, exitUsage, "type: ")
		for _, v := range []string{"*", ">", "w.>", "%", "_", "../v"} {
			require.Empty(t, get("events", "--after-seq", "0", "--workspace", v).ok(t), v)
		}
	}
	p.stop()
	require.Len(t, split(cli("events", "--after-seq", "0", "--data", dir).ok(t)), 7, "without a serve, too")
	cli("events", "--url", p.http).fails(t, exitFailed, "is skald serve running there")
	cli("events", "--server", p.nats).fails(t, exitFailed, "check that the server runs")
	cli("events", "--data", filepath.Join(dir, "none")).fails(t, exitFailed, "no store here")
}

// Where nothing is named: NATS_URL, else the data directory at hand, else the local
// gateway.
func TestRead_DefaultTarget(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	p := startServe(t, "skald-data")
	p.publish("default", "s", 1)
	p.settle()
	const fromFile = "skald: reading ./skald-data (file); "
	const noLag = "skald: lag is not known from a file"
	status := cli("status")
	require.Contains(t, status.ok(t), `"lag":null`, "the file")
	require.Contains(t, status.stderr, fromFile+"--url or --server asks a running bus\n"+noLag)
	for _, args := range []string{"events --after-seq 0", "sessions", "session s", "rejects"} {
		r := cli(strings.Fields(args)...)
		require.Equal(t, cli(append(strings.Fields(args), "--data", "skald-data")...).ok(t), r.ok(t), args)
		require.Contains(t, r.stderr, fromFile, args)
		require.NotContains(t, r.stderr, noLag, args)
	}
	require.Contains(t, cli("rejects", "show", "1").stderr, fromFile)
	named := cli("status", "--data", "skald-data")
	require.Contains(t, named.stderr, noLag)
	require.NotContains(t, named.stderr, "reading")
	require.Empty(t, cli("status", "--url", p.http).stderr)
	withPassword := strings.Replace(p.nats, "://", "://me:pa55word@", 1)
	t.Setenv("NATS_URL", withPassword)
	status = cli("status")
	require.Contains(t, status.ok(t), `"lag":0`, "NATS")
	require.Contains(t, status.stderr, "skald: asking "+natsconn.Redact(withPassword)+" (NATS, from NATS_URL); ")
	require.NotContains(t, status.stderr, "pa55word")
	t.Setenv("NATS_URL", p.nats)
	require.Contains(t, cli("status", "--data", "skald-data").ok(t), `"lag":null`)
	require.Contains(t, cli("status", "--data", "skald-data", "--url", "http://127.0.0.1:1").ok(t), `"lag":null`)
	cli("status", "--url", "http://127.0.0.1:1").fails(t, exitFailed, "127.0.0.1:1")
	require.Equal(t, "stored ingest 2 default/s error\n", cli("publish", "--session", "s", "--class", "error", "--body", `{"message":"x"}`).ok(t))
	cli("status", "--data", "").fails(t, exitUsage, "--data")
	cli("status", "--server", "").fails(t, exitUsage, "--server")
	t.Chdir(t.TempDir())
	require.Equal(t, "asking http://127.0.0.1:7525 (HTTP); --data reads a file, --server asks over NATS", unnamed(target.Options{}.Resolve(""), ""))
}

// An address of another protocol is said to be one, soon, and with the flag that it
// would go with.
func TestRead_AnotherProtocol(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	address := strings.TrimPrefix(p.http, "http://")
	cli("status", "--server", address).fails(t, exitFailed, "nothing greets there as a NATS server does", address, "(HTTP) goes with --url")
	cli("status", "--server", p.http).fails(t, exitUsage, "scheme", "(HTTP) goes with --url")
	cli("publish", "--server", address, "--session", "s", "--class", "error", "--body", `{"message":"x"}`).
		fails(t, exitFailed, "nothing greets there as a NATS server does", address)
	r := cli("status", "--url", strings.Replace(p.nats, "nats://", "http://", 1))
	r.fails(t, exitFailed, "a NATS server listens there", "--server")
	require.NotContains(t, r.stderr, "server_id")
}

// Commands, flags and arguments that there are not are wrong usage.
func TestRun_Usage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"bogus"}, {"--bogus"}, {"events", "--bogus"}, {"events", "extra"}, {"session"}, {"session", "a", "b"}, {"forget"},
		{"resync", "s"}, {"rejects", "extra"}, {"rejects", "show"}, {"rejects", "show", "x"}, {"version", "x"}, {"status", "--after-seq", "1"},
	} {
		cli(args...).fails(t, exitUsage, "skald: ", "--help")
	}
	for _, args := range [][]string{{}, {"--help"}, {"events", "--help"}, {"help", "publish"}} {
		require.Contains(t, cli(args...).ok(t), "Usage:")
	}
}

// The version names all that a report of a problem needs.
func TestVersion(t *testing.T) {
	t.Parallel()
	out := cli("version").ok(t)
	for _, name := range []string{"skald", "commit", "contract     1", "go           go1.", "nats-server  2.15.", "2.14.0", "sqlite       3."} {
		require.Contains(t, out, name)
	}
	require.Contains(t, cli("version", "--json").ok(t), `"contract":1,`)
}

// Operators' messages to a session, and what became of them.
func TestControl(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("w", "s", 2)
	digest := strings.Repeat("ab", 32)
	control := func(args ...string) result { return cli(append(args, "--server", p.nats)...) }

	require.Equal(t, "resynced w/s to 7 "+digest+"\n", control("resync", "s", "--workspace", "w", "--ordinal", "7", "--digest", digest).ok(t))
	require.Contains(t, p.get("/api/v1/sessions/s"), `"frontier":{"ordinal":7,"digest":"`+digest+`"}`)
	control("resync", "s", "--workspace", "w", "--ordinal", "7", "--digest", digest).fails(t, exitFailed, "rejected", "not ahead of the position 7")
	control("resync", "s", "--workspace", "w", "--ordinal", "0", "--digest", digest).fails(t, exitUsage, "ordinal")
	control("resync", "s", "--workspace", "w", "--ordinal", "8", "--digest", "AB").fails(t, exitUsage, "digest")
	control("resync", "s", "--workspace", "w", "--digest", digest).fails(t, exitUsage, "ordinal")
	control("resync", "s", "--ordinal", "8", "--digest", digest).fails(t, exitUsage, "--workspace")

	// The note of the first, and the second, are listed.
	list := cli("rejects", "--data", dir)
	require.Len(t, split(list.ok(t)), 2)
	require.Contains(t, list.stderr, "2 entries, no more")
	require.Contains(t, list.stdout, `"workspace_id":"w","session_id":"s"`)
	require.Contains(t, list.stdout, `"reason":"resync"`)
	require.NotContains(t, list.stdout, `"payload":`)
	one := cli("rejects", "--data", dir, "--limit", "1")
	require.Len(t, split(one.ok(t)), 1)
	require.Contains(t, one.stderr, "--after 1 goes on")
	require.Len(t, split(cli("rejects", "--data", dir, "--after", "1").ok(t)), 1)
	require.Empty(t, cli("rejects", "--data", dir, "--workspace", "v").ok(t))
	require.Len(t, split(cli("rejects", "--data", dir, "--workspace", "w", "--session", "s").ok(t)), 2)
	require.Contains(t, cli("rejects", "show", "2", "--data", dir).ok(t), `"payload":"{\"op\":\"resync\"`)
	cli("rejects", "show", "99", "--data", dir).fails(t, exitNotFound, "99")
	cli("rejects", "show", "0", "--data", dir).fails(t, exitUsage, "number from 1")
	cli("rejects", "--data", dir, "--limit", "0").fails(t, exitUsage, "--limit")
	cli("rejects", "--data", dir, "--session", "").fails(t, exitUsage, "--session")
	cli("rejects", "--data", t.TempDir()).fails(t, exitFailed, "no store")

	control("forget", "s").fails(t, exitUsage, "--workspace")
	for _, args := range [][]string{{"S", "--workspace", "w"}, {"s", "--workspace", "W"}} {
		control(append([]string{"forget"}, args...)...).fails(t, exitNotFound, "skald: no such session; nothing was forgotten (--unseen leaves a tombstone all the same)\n")
	}
	p.publish("w", "S", 1) // which none of these has hurt
	p.settle()
	require.Contains(t, p.get("/api/v1/status"), `"sessions":2`)
	forgotten := control("forget", "s", "--workspace", "w")
	require.Equal(t, "forgotten w/s\n", forgotten.ok(t))
	require.Contains(t, forgotten.stderr, "can not be used again")
	require.Contains(t, forgotten.stderr, "copies in INGEST leave when it is trimmed")
	require.Equal(t, "forgotten w/none\n", control("forget", "none", "--workspace", "w", "--unseen").ok(t))
	p.publish("w", "none", 1)
	p.settle()
	control("forget", "none", "--workspace", "w").fails(t, exitNotFound, "no such session")
	cli("session", "s", "--url", p.http).fails(t, exitNotFound)
	require.Empty(t, cli("events", "--after-seq", "0", "--session", "s", "--url", p.http).ok(t))
	require.Equal(t, "forgotten w/s\n", control("forget", "s", "--workspace", "w", "--yes", "--unseen").ok(t), "twice is once")
	control("forget", "s", "--workspace", "w", "--yes").fails(t, exitNotFound, "no such session")
	require.Empty(t, cli("rejects", "--data", dir).ok(t), "its rejects went with it")
	control("resync", "s", "--workspace", "w", "--ordinal", "9", "--digest", digest).fails(t, exitFailed, "dropped")
}

// A message that nobody applies in time is said to be stored all the same.
func TestControl_NobodyApplies(t *testing.T) {
	t.Parallel()
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	p := startServe(t, t.TempDir(), "--server", url)
	cli("forget", "s", "--workspace", "w", "--server", url, "--wait=-1s").fails(t, exitUsage, "--wait")
	p.stop()
	cli("forget", "s", "--workspace", "w", "--server", url, "--wait", "300ms").fails(t, exitFailed, "look for the session", "is skald serve running")
	cli("forget", "s", "--workspace", "w", "--server", url, "--wait", "300ms", "--unseen").
		fails(t, exitFailed, "stored as message 1 of INGEST", "within 300ms", "is skald serve running")
}

// A reject whose payload is no text is shown as base64.
func TestRejects_Binary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	js := p.jetStream()
	for _, subject := range []string{"skald.in.default.s.error", "skald.in.bad=token.s.error"} {
		_, err := js.Publish(short(t), subject, []byte("\xff\x00"))
		require.NoError(t, err)
	}
	p.settle()
	require.Contains(t, cli("rejects", "show", "1", "--data", dir).ok(t), `"payload_base64":"/wA="`)
	require.Contains(t, cli("rejects", "show", "2", "--data", dir).ok(t), `"workspace_id":null,"session_id":null`)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return strings.Contains(p.get("/api/v1/status"), `"rejects":2`) })
}

// Requests for pages of rows as large as they come stay small in bytes, and a walk
// gets past the largest.
func TestRead_LargeRows(t *testing.T) {
	t.Parallel()
	p := startServe(t, t.TempDir())
	largest := fmt.Sprintf(`{"session_id":"s","body":{"message":"%s"}}`, strings.Repeat("x", 8<<20-17<<10))
	big := fmt.Sprintf(`{"session_id":"s","body":{"message":"%s"}}`, strings.Repeat("x", 900<<10))
	in := strings.Join([]string{big, big, big, largest, big, big, big}, "\n")
	cliIn(in, "publish", "--server", p.nats, "--class", "error").ok(t)
	p.settle()
	for _, way := range [][]string{{"--url", p.http}, {"--server", p.nats}} {
		rows, after := 0, 0
		for after < 7 {
			r := cli(append(way, "events", "--limit", "1000", "--after-seq", fmt.Sprint(after))...)
			out := split(r.ok(t))
			require.NotEmpty(t, out)
			if len(out) > 1 {
				require.LessOrEqual(t, len(r.stdout), 4<<20)
			}
			rows, after = rows+len(out), after+len(out)
		}
		require.Equal(t, 7, rows)
	}
}
