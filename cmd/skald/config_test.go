//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/config"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// shown returns what config show says, by name.
func shown(t *testing.T, args ...string) map[string]setting {
	t.Helper()
	out := map[string]setting{}
	for _, line := range split(cli(append([]string{"config", "show"}, args...)...).ok(t)) {
		var s setting
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		out[s.Name] = s
	}
	return out
}

// write makes a file of the test's.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Each flag of serve is a variable and a key of the file, too, in that order; a value
// that is wrong is refused from each of them. A flag that is new has to be added here.
func TestConfig_EachFlag(t *testing.T) {
	conf := write(t, "nats.conf", "authorization { users: [ { user: a, password: b } ] }")
	tested := map[string]bool{}
	const outside = "server=nats://127.0.0.1:1"
	for _, c := range []struct {
		name    string
		values  [3]string // for the file, the variable, and the flag
		wrong   string    // "": every text is right
		with    []string  // flags that it needs
		showsAs string    // "": as given
	}{
		{name: "data", values: [3]string{"/f", "/v", "/a b"}},
		{name: "listen", values: [3]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, wrong: "7525"},
		{name: "http", values: [3]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, wrong: "0.0.0.0:1"},
		{name: "tokens", values: [3]string{"f", "v", "a"}},
		{name: "nats-config", values: [3]string{conf, conf, conf}, wrong: "/nonexistent.conf"},
		{name: "sync-interval", values: [3]string{"1s", "2s", "3s"}, wrong: "soon"},
		{name: "id-horizon", values: [3]string{"1h0m0s", "2h0m0s", "3h0m0s"}, wrong: "1ms"},
		{name: "ingest-max-bytes", values: [3]string{"1000", "2000", "3000"}, wrong: "-1"},
		{name: "ingest-keep", values: [3]string{"1h0m0s", "2h0m0s", "3h0m0s"}, wrong: "10000h"},
		{name: "replicas", values: [3]string{"2", "3", "4"}, wrong: "6", with: []string{outside}},
		{name: "max-lag", values: [3]string{"1s", "2s", "0s"}, wrong: "-1s"},
		{name: "log-format", values: [3]string{"text", "json", "auto"}, wrong: "xml"},
		{name: "log-level", values: [3]string{"debug", "warn", "error"}, wrong: "loud"},
		{name: "server", values: [3]string{"nats://f:1", "nats://u:secret@v:1", "nats://a:1,nats://b:2"}},
		{name: "context", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "creds", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "nkey", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "user", values: [3]string{"f", "v", "a"}, with: []string{outside, "password=p"}},
		{name: "password", values: [3]string{"f", "v", "a"}, with: []string{outside, "user=u"}, showsAs: hiddenValue},
		{name: "tlscert", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "tlskey", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "tlsca", values: [3]string{"f", "v", "a"}, with: []string{outside}},
		{name: "prefix", values: [3]string{"f", "v", "a"}, wrong: "a.b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := func(i int) string {
				switch {
				case c.showsAs != "":
					return c.showsAs
				case c.name == "server":
					return strings.Replace(c.values[i], "u:secret@", "", 1)
				}
				return c.values[i]
			}
			var with []string
			for _, w := range c.with {
				with = append(with, "--"+w)
			}
			path := write(t, "skald.yaml", fmt.Sprintf("# of the test\n%s: %q\n", c.name, c.values[0]))
			inFile := append(with, "--config", path)
			require.Equal(t, setting{c.name, want(0), path + ":2"}, shown(t, inFile...)[c.name])
			t.Setenv(config.Variable(c.name), c.values[1])
			require.Equal(t, setting{c.name, want(1), config.Variable(c.name)}, shown(t, inFile...)[c.name])
			require.Equal(t, setting{c.name, want(2), "flag"}, shown(t, append(inFile, "--"+c.name+"="+c.values[2])...)[c.name])
			if c.wrong == "" {
				return
			}
			t.Setenv(config.Variable(c.name), c.wrong)
			for _, command := range [][]string{{"config", "show"}, {"serve"}} {
				r := cli(append(command, with...)...)
				require.NotEqual(t, exitOK, r.code)
				require.Empty(t, r.stdout)
				t.Log(r.stderr)
				if c.name != "nats-config" { // a file that is not there is no wrong usage
					require.Equal(t, exitUsage, r.code, r.stderr)
				}
			}
		})
		tested[c.name] = true
	}
	var missing []string
	new(serveOptions).flags().VisitAll(func(f *pflag.Flag) {
		if !tested[f.Name] && f.Name != config.FileFlag {
			missing = append(missing, f.Name)
		}
	})
	require.Empty(t, missing, "flags without a line in this test")
}

// What a variable of the nats tool says counts where nothing of ours does, and is said
// to come from there; a token that stands for a user is a secret.
func TestConfig_NATSVariables(t *testing.T) {
	t.Setenv("NATS_URL", "nats://me:pa55word@host:1")
	t.Setenv("NATS_USER", "t0ken")
	got := shown(t)
	require.Equal(t, setting{"server", "nats://host:1", "NATS_URL"}, got["server"])
	require.Equal(t, setting{"user", hiddenValue, "NATS_USER"}, got["user"])
	got = shown(t, "--config", write(t, "c.yaml", "server: nats://other:1\n"))
	require.Equal(t, "nats://other:1", got["server"].Value)
	require.Contains(t, got["server"].From, "c.yaml:1")
	// A flag of the embedded server means that one: the variables count for nothing.
	got = shown(t, "--listen", "127.0.0.1:1")
	require.Equal(t, setting{"server", "", "default"}, got["server"])
	require.Equal(t, setting{"user", "", "default"}, got["user"])
	require.Equal(t, setting{"log-level", "info", "default"}, got["log-level"])
	r := cli("config", "show", "--listen", "x")
	r.fails(t, exitUsage, "--listen")
}

// Keys and flags that there are not are refused by name, by serve too, before anything
// is made.
func TestConfig_Unknown(t *testing.T) {
	t.Parallel()
	path := write(t, "c.yaml", "lissten: 127.0.0.1:1\n")
	dir := filepath.Join(t.TempDir(), "data")
	for _, command := range [][]string{{"config", "show"}, {"serve", "--data", dir}} {
		cli(append(command, "--config", path)...).fails(t, exitUsage, path+`:1: there is no key "lissten"`)
	}
	cli("config", "show", "--lissten", "x").fails(t, exitUsage, "--lissten")
	cli("config").fails(t, exitUsage, "show")
	require.NoDirExists(t, dir)
}

// A real serve runs with what the file and variables say.
func TestConfig_Serve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, "c.yaml", fmt.Sprintf("data: %s\nlisten: 127.0.0.1:0\nhttp: 0.0.0.0:1\nprefix: other\ningest-max-bytes: 100000000\nsync-interval: 1m\n", filepath.Join(dir, "data")))
	p := command(t, "serve", "--prefix", "third")
	p.cmd.Env = append(p.cmd.Env, "SKALD_CONFIG="+path, "SKALD_HTTP=127.0.0.1:0")
	p.start()
	p.ready()
	require.FileExists(t, filepath.Join(dir, "data", "skald.db"))
	_, err := p.jetStream().Stream(short(t), "THIRD_INGEST")
	require.NoError(t, err)
	require.Contains(t, p.text(), "syncs every 1m0s")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return p.metrics()["skald_ingest_limit_bytes"] == 1e8 },
		"it has not looked at INGEST, or that has another bound")
	p.stop()
}

// docs/configuration.md lists the flags as they are. SKALD_TEST_UPDATE=1 writes them anew.
func TestConfig_Documented(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../docs/configuration.md", "<!-- settings -->\n", "<!-- /settings -->\n"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	var b strings.Builder
	b.WriteString("| flag | variable | default | meaning |\n|---|---|---|---|\n")
	new(serveOptions).flags().VisitAll(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f)
		def := ""
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", f.Name, config.Variable(f.Name), def, strings.ReplaceAll(usage, "|", `\|`))
	})
	want := head + begin + b.String() + end + tail
	if os.Getenv("SKALD_TEST_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text))
}
