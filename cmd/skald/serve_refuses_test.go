//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What can not be meant, or would do nothing, is refused before anything starts.
func TestServe_RefusesFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args string
		says string
	}{
		{"--http 0.0.0.0:0", "loopback"},
		{"--http :7525", "loopback"},
		{"--http 7525", "--http"},
		{"--server nats://127.0.0.1:1 --listen 127.0.0.1:0", "--listen"},
		{"--server nats://127.0.0.1:1 --sync-interval 1s", "--sync-interval"},
		{"--server nats://127.0.0.1:1 --nats-config x", "--nats-config"},
		{"--server nats://127.0.0.1:1 --listen 127.0.0.1:0 --tlsca x", "--listen"},
		{"--server=", "--server"},
		{"--tlsca x", "--tlsca"},
		{"--listen 127.0.0.1:0 --tlscert x", "--tlscert"},
		{"--creds x", "--nats-config"},
		{"--listen 127.0.0.1:0 --nkey x", "--nats-config"},
		{"--data=", "--data"},
		{"--sync-interval -1s", "--sync-interval"},
		{"--sync-interval 1ns", "--sync-interval"},
		{"--sync-interval soon", "--sync-interval"},
		{"--id-horizon 1ms", "--id-horizon"},
		{"--ingest-max-bytes -1", "--ingest-max-bytes"},
		{"--ingest-max-bytes lots", "--ingest-max-bytes"},
		{"--replicas 0", "--replicas"},
		{"--listen 127.0.0.1:0 --replicas 3", "--replicas"}, // one server has no other to keep a copy
		{"--listen 0.0.0.0:0", "--listen: address can be reached"},
		{"--listen 0.0.0.0:0", "NATS configuration"},
		{"--listen here", "host:port"},
		{"--listen 4223", "--listen: "},
		{"--listen 127.0.0.1:99999", "--listen: "},
		{"--log-level loud", "--log-level"},
		{"--prefix A.b", "prefix"},
		{"--follow", "--follow"},
		{"extra", "extra"},
	} {
		cli(append([]string{"serve", "--data", dir}, strings.Fields(c.args)...)...).fails(t, exitUsage, c.says, "--help")
	}
	require.NoDirExists(t, dir)
	// Here the server says it; it does not get better by waiting.
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	cli("serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--server", url, "--replicas", "3").fails(t, exitFailed, "replicas")
}

// An address that is in use is told once, with its flag, before anything is made.
func TestServe_AddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := l.Addr().String()
	base := t.TempDir()
	missing, there := filepath.Join(base, "missing"), filepath.Join(base, "there")
	require.NoError(t, os.Mkdir(there, 0o700))
	for _, dir := range []string{missing, there} {
		for flag, args := range map[string][]string{
			"--listen": {"--listen", addr, "--http", "127.0.0.1:0"}, "--http": {"--listen", "127.0.0.1:0", "--http", addr},
		} {
			r := cli(append([]string{"serve", "--data", dir, "--ingest-max-bytes", "100000000"}, args...)...)
			r.fails(t, exitFailed, "skald: "+flag+": can not listen", addr)
			require.Equal(t, 1, strings.Count(r.stderr, "address already in use"), r.stderr)
		}
	}
	require.NoDirExists(t, missing)
	require.NoFileExists(t, filepath.Join(there, "skald.db"))
	require.NoDirExists(t, filepath.Join(there, "jetstream"))
}

// A start that fails by what it is told, or by the server outside, leaves no data
// directory behind.
func TestServe_RefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	plain, _ := natsServer(t)
	base := t.TempDir()
	dir, conf := filepath.Join(base, "data"), filepath.Join(base, "nats.conf")
	require.NoError(t, os.WriteFile(conf, []byte("authorization {"), 0o600))
	cli("serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--nats-config", conf).fails(t, exitFailed, conf)
	cli("serve", "--data", dir, "--http", "127.0.0.1:0", "--server", plain).fails(t, exitFailed, "JetStream is not enabled")
	cli("serve", "--data", dir, "--http", "127.0.0.1:0", "--server", plain, "--nkey", conf).fails(t, exitUsage, conf)
	require.NoDirExists(t, dir)
}

// A store file that is none of ours, or of a newer program, is refused with what it
// is, by serve and by readers, and left as it is.
func TestStoreFile_Refused(t *testing.T) {
	t.Parallel()
	noDatabase := func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("text "), 5000), 0o600) }
	newer := func(path string) error {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.Exec("PRAGMA user_version = 999")
		return err
	}
	foreign := func(path string) error {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.Exec("CREATE TABLE theirs (x)")
		return err
	}
	for _, c := range []struct {
		name, says string
		ours       bool // change a store of ours
		change     func(path string) error
	}{
		{"no database", "not a store", false, noDatabase},
		{"a directory", "not a store", false, func(path string) error { return os.Mkdir(path, 0o700) }},
		{"another program's", "not a store", false, foreign},
		{"newer", "newer", true, newer},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "skald.db")
		if c.ours {
			startServe(t, dir).stop()
		}
		require.NoError(t, c.change(path), c.name)
		before, _ := os.ReadFile(path)
		serve := cli("serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
		serve.fails(t, exitFailed, c.says, path)
		for _, args := range []string{"events", "sessions", "status", "session s", "rejects"} {
			cli(append(strings.Fields(args), "--data", dir)...).fails(t, exitFailed, c.says, path)
		}
		after, _ := os.ReadFile(path)
		require.Equal(t, before, after, c.name)
	}
}

// Streams that are gone, or of another bus, are never made anew or mixed up.
func TestServe_OtherStreams(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	p.publish("default", "s", 3)
	p.stop()

	// The streams of this data directory are gone.
	jetstreamDir := filepath.Join(dir, "jetstream")
	require.NoError(t, os.Rename(jetstreamDir, jetstreamDir+".away"))
	cli("serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0").fails(t, exitFailed, "stream is missing", "SKALD_EVENTS", "backup")

	// An outside server that has no streams, then one with those of another bus.
	url, _ := natsServer(t, "-js", "-sd", t.TempDir())
	cli("serve", "--data", dir, "--server", url, "--http", "127.0.0.1:0").fails(t, exitFailed, "stream is missing")
	other := startServe(t, t.TempDir(), "--server", url)
	other.stop()
	cli("serve", "--data", dir, "--server", url, "--http", "127.0.0.1:0").fails(t, exitFailed, "different buses", "check --data")

	// Back in place, all is well.
	require.NoError(t, os.RemoveAll(jetstreamDir))
	require.NoError(t, os.Rename(jetstreamDir+".away", jetstreamDir))
	p = startServe(t, dir)
	p.settle()
	require.Equal(t, 3, strings.Count(p.get("/api/v1/events?after_seq=0"), `"seq":`))
}

// Servers that can not carry a bus are named with what is wrong with them, and
// never with the password of their URL.
func TestServe_UnfitServers(t *testing.T) {
	t.Parallel()
	withSecret := func(url string) string { return strings.Replace(url, "://", "://me:pa55word@", 1) }
	plain, _ := natsServer(t)
	old := fakeServer(t, "2.13.9")
	for _, c := range []struct{ url, says string }{
		{plain, "JetStream is not enabled"},
		{old, "too old"},
		{old, "2.14.0"},
		{old, "2.13.9"},
	} {
		r := cli("serve", "--data", t.TempDir(), "--server", withSecret(c.url), "--http", "127.0.0.1:0")
		r.fails(t, exitFailed, c.says, strings.TrimPrefix(c.url, "nats://"))
		require.NotContains(t, r.stderr, "pa55word")
	}
	cli("serve", "--data", t.TempDir(), "--server", "nats://me:pa55/word@host:1", "--http", "127.0.0.1:0").fails(t, exitUsage, "URL")
}

// fakeServer greets as a NATS server of the version would, and answers pings.
func fakeServer(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":%q,\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n", version)
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					for range strings.Count(string(buf[:n]), "PING\r\n") {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}
