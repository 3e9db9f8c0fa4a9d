//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users of the nats tool reach the bus as they are used to: by user and password or
// token, by the variables, and by contexts; what a flag says comes first.
func TestNATSFlags(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(conf, []byte(`authorization { users: [ { user: me, password: pa55 } ] }`), 0o600))
	p := startServe(t, t.TempDir(), "--nats-config", conf, "--user", "me", "--password", "pa55")
	withToken := startServe(t, t.TempDir())
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	contexts := filepath.Join(home, "nats", "context")
	require.NoError(t, os.MkdirAll(contexts, 0o700))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(contexts, name+".json"), []byte(text), 0o600))
	}
	write("good", fmt.Sprintf(`{"url":%q,"user":"me","password":"pa55"}`, p.nats))
	write("wrong", fmt.Sprintf(`{"url":%q,"user":"me","password":"other"}`, p.nats))
	write("secret", fmt.Sprintf(`{"url":%q,"user":"me","password":"env://SKALD_TEST_PASSWORD"}`, p.nats))
	write("domain", fmt.Sprintf(`{"url":%q,"jetstream_domain":"hub"}`, p.nats))
	write("open", fmt.Sprintf(`{"url":%q}`, withToken.nats))
	t.Setenv("SKALD_TEST_PASSWORD", "pa55")
	t.Chdir(t.TempDir())

	status := func(args ...string) result { return cli(append([]string{"status"}, args...)...) }
	for _, args := range [][]string{
		{"--server", p.nats, "--user", "me", "--password", "pa55"}, {"--context", "good"}, {"--context", "secret"},
		{"--context", "wrong", "--user", "me", "--password", "pa55"}, {"--context", "open", "--server", p.nats, "--user", "me", "--password", "pa55"},
	} {
		require.Contains(t, status(args...).ok(t), `"lag":0`, args)
		require.Empty(t, status(args...).stderr, args)
	}
	require.Equal(t, "stored ingest 1 default/s error\n",
		cli("publish", "--context", "good", "--session", "s", "--class", "error", "--body", `{"message":"x"}`).ok(t))
	require.Len(t, split(cli("tail", "--context", "good", "--after-seq", "0", "--count", "1").ok(t)), 1)
	require.Len(t, split(cli("events", "--follow", "--context", "good", "--after-seq", "0", "--count", "1").ok(t)), 1)
	for _, args := range [][]string{
		{"--server", p.nats}, {"--server", p.nats, "--user", "me", "--password", "x"}, {"--server", p.nats, "--user", "pa55"}, {"--context", "wrong"},
	} {
		r := status(args...)
		r.fails(t, exitFailed, "check user, password, token")
		require.NotContains(t, r.stderr, "pa55")
	}
	status("--context", "none").fails(t, exitUsage, `there is no NATS context "none"`)
	status("--context", "domain").fails(t, exitUsage, "JetStream domain")
	status("--context", "").fails(t, exitUsage, "--context")

	p.settle() // what was published before
	t.Setenv("NATS_CONTEXT", "good")
	r := status()
	require.Contains(t, r.ok(t), `"lag":0`)
	require.Contains(t, r.stderr, "(NATS, from NATS_CONTEXT)")
	require.Contains(t, status("--server", withToken.nats, "--user", "anybody").ok(t), `"lag":0`)
	require.Contains(t, status("--url", p.http).ok(t), `"lag":0`, "a flag of another way")
	t.Setenv("NATS_CONTEXT", "")
	t.Setenv("NATS_URL", p.nats)
	t.Setenv("NATS_USER", "me")
	t.Setenv("NATS_PASSWORD", "pa55")
	require.Contains(t, status().ok(t), `"lag":0`)
	require.Contains(t, status("--server", p.nats, "--user", "me").ok(t), `"lag":0`, "the password stays out of the list of processes")
	t.Setenv("NATS_PASSWORD", "x")
	status().fails(t, exitFailed, "check user")
	require.Contains(t, status("--server", p.nats, "--user", "me", "--password", "pa55").ok(t), `"lag":0`)
	// serve's own server is none that the variables mean.
	dir := t.TempDir()
	startServe(t, dir).stop()
}

// The shell completes workspaces and sessions from the place that is meant, also
// odd ones, and says nothing where nobody answers.
func TestComplete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("acme", "build 7", 1)
	p.publish("acme", "build.8", 1)
	p.publish("other", "build 7", 1)
	p.publish("other", "日本", 1)
	p.settle()
	complete := func(args ...string) []string {
		out := split(cli(append([]string{"__complete"}, args...)...).ok(t))
		require.Equal(t, ":4", out[len(out)-1], "no files are offered")
		return out[:len(out)-1]
	}
	for _, way := range [][]string{{"--data", dir}, {"--url", p.http}, {"--server", p.nats}} {
		with := func(command string, rest ...string) []string {
			return append(append([]string{command}, way...), rest...)
		}
		require.Equal(t, []string{"acme", "other"}, complete(with("events", "--workspace", "")...))
		require.Equal(t, []string{"other"}, complete(with("sessions", "--workspace", "o")...))
		require.Equal(t, []string{"build 7", "build.8", "日本"}, complete(with("events", "--session", "")...))
		require.Equal(t, []string{"build 7", "日本"}, complete(with("events", "--workspace", "other", "--session", "")...))
		require.Equal(t, []string{"build 7", "build.8"}, complete(with("session", "b")...))
	}
	for _, command := range []string{"tail", "publish"} {
		require.Equal(t, []string{"acme", "other"}, complete(command, "--server", p.nats, "--workspace", ""))
	}
	require.Equal(t, []string{"日本"}, complete("forget", "--server", p.nats, "--workspace", "other", "日"))
	require.Empty(t, complete("events", "--server", "nats://127.0.0.1:1", "--workspace", ""))
	require.Empty(t, complete("events", "--url", "http://127.0.0.1:1", "--session", ""))
	require.True(t, strings.Contains(cli("completion", "bash").ok(t), "skald"))
}
