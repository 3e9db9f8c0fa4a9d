//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A store file that can not be used is named with what is wrong with it, by serve and
// by every command that reads it, and is left as it is to the byte.
func TestBadInput_StoreFile(t *testing.T) {
	t.Parallel()
	made := t.TempDir()
	s := serve(t, made)
	s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("x"))
	s.settle(t)
	s.stop(t)
	ours, err := os.ReadFile(filepath.Join(made, "skald.db"))
	require.NoError(t, err)
	statement := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.Exec(text)
			require.NoError(t, err)
		}
	}
	content := func(b []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, b, 0o600)) }
	}
	newer := func(t *testing.T, path string) {
		content(ours)(t, path)
		statement("PRAGMA user_version = 999")(t, path)
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		says   string
	}{
		{"text", content(bytes.Repeat([]byte("no database "), 1000)), "not a store of this program"},
		{"one byte", content([]byte("x")), "not a store of this program: it is only 1 bytes long"},
		{"zeros", content(make([]byte, 8192)), "not a store of this program"},
		{"another program's", statement("CREATE TABLE theirs (x)"), "not a store of this program: application id 0x0, want 0x736b6c64"},
		{"a directory", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, "not a store of this program: not a regular file"},
		{"a pipe", func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "not a store of this program: not a regular file"},
		{"newer", newer, "store is newer than this program: its schema is 999, this program knows "},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "skald.db")
		c.change(t, path)
		before := contents(path)
		for _, args := range []string{"serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --ingest-max-bytes 100000000", "events --after-seq 0", "status", "rejects"} {
			skald(t, "", append(strings.Fields(args), "--data", dir)...).fails(t, 1, c.says, path)
			require.Equal(t, before, contents(path), c.name)
		}
	}
	skald(t, "", "events", "--data", t.TempDir()).fails(t, 1, "no store here")
	skald(t, "", "events", "--data", filepath.Join(t.TempDir(), "nowhere")).fails(t, 1, "no store here")
}

func contents(path string) string {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, _ := os.ReadFile(path)
	return string(b)
}

// A store that this user may not write is refused by serve and read by the rest.
func TestBadInput_ReadOnlyStore(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	// Root may write everything, so that the program runs as somebody else then,
	// who must reach program and data.
	var as *syscall.Credential
	bin := filepath.Join(base, "skald")
	program, err := os.ReadFile(skaldtest.Binary(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bin, program, 0o755))
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	data := filepath.Join(base, "data")
	s := serve(t, data)
	s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("x"))
	s.settle(t)
	s.stop(t)
	if os.Geteuid() == 0 {
		as = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	require.NoError(t, filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o444)
		switch {
		case info.IsDir():
			mode = 0o777 // JetStream's part may be written
		case filepath.Base(path) != "skald.db":
			mode = 0o666
		}
		return os.Chmod(path, mode)
	}))
	run := func(args ...string) result {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Dir = base
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		return runCommand(t, cmd, "")
	}
	serveArgs := []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000"}
	run(serveArgs...).fails(t, 1, "store can not be written", filepath.Join(data, "skald.db"))
	require.Len(t, run("events", "--data", data, "--after-seq", "0").ok(t), 1)

	// The directory too, as on a file system that is mounted for reading.
	require.NoError(t, os.Chmod(data, 0o555))
	require.Len(t, run("events", "--data", data, "--after-seq", "0").ok(t), 1)
	require.Len(t, run("status", "--data", data).ok(t), 1)
	require.NoError(t, os.Chmod(data, 0o755))
}

// A NATS server that can not carry the bus is named with what is wrong with it and
// without the password of its URL; nothing is made on it.
func TestBadInput_NATSServer(t *testing.T) {
	t.Parallel()
	plain, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	plain.Start()
	t.Cleanup(plain.Shutdown)
	require.True(t, plain.ReadyForConnections(patience))
	locked, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, Username: "u", Password: "p", NoSigs: true, NoLog: true})
	require.NoError(t, err)
	locked.Start()
	t.Cleanup(locked.Shutdown)
	require.True(t, locked.ReadyForConnections(patience))

	// A bus that is another store's: the same names, another epoch.
	theirs := outsideNATS(t, natsd.Options{})
	serve(t, t.TempDir(), "--server", theirs.ClientURL()).stop(t)
	mine := t.TempDir()
	own := outsideNATS(t, natsd.Options{})
	serve(t, mine, "--server", own.ClientURL()).stop(t)

	secret := func(url string) string { return strings.Replace(url, "://", "://me:pa55word@", 1) }
	for _, c := range []struct {
		name, data, url string
		code            int
		says            []string
	}{
		{"too old", t.TempDir(), secret(greeting(t, "2.10.0")), 1, []string{"NATS server is too old", "runs 2.10.0, at least 2.14.0 is needed"}},
		{"a version of letters", t.TempDir(), secret(greeting(t, "newest")), 1, []string{"NATS server is too old", "runs newest, at least 2.14.0 is needed"}},
		{"without JetStream", t.TempDir(), secret(plain.ClientURL()), 1, []string{"JetStream is not enabled", "start it with -js"}},
		{"locked", t.TempDir(), secret(locked.ClientURL()), 1, []string{"server refuses the credentials", "check user, password"}},
		{"of another bus", mine, secret(theirs.ClientURL()), 1, []string{"store and streams belong to different buses", "SKALD_EVENTS"}},
		{"no URL", t.TempDir(), "nats://me:pa55word@ho st:1", 2, []string{"server URL can not be read"}},
		{"another scheme", t.TempDir(), "http://me:pa55word@127.0.0.1:1", 2, []string{"the scheme must be nats, tls, ws or wss"}},
	} {
		r := skald(t, "", "serve", "--data", c.data, "--server", c.url, "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000")
		r.fails(t, c.code, c.says...)
		require.NotContains(t, r.stderr, "pa55word", c.name)
	}
	// Back on its own, the store goes on.
	s := serve(t, mine, "--server", own.ClientURL())
	s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("x"))
	require.Len(t, s.same(t, "w"), 1)

	// Where nothing answers, serve says so and waits, and can be stopped; commands end.
	free := skaldtest.FreeAddress(t)
	nowhere := "nats://me:pa55word@" + free
	cmd := exec.Command(skaldtest.Binary(t), "serve", "--data", t.TempDir(), "--server", nowhere, "--http", "127.0.0.1:0")
	cmd.Env = environment()
	p, err := spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { p.terminate() })
	skaldtest.Eventually(t, patience, func() bool { return strings.Contains(p.text(), "NATS is not ready yet") }, "it says so")
	require.Contains(t, p.text(), "check that the server runs, the host and the port")
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.text(), "pa55word")
	for _, args := range []string{"status", "events", "publish --session s --body {\"activity\":{}}", "forget --workspace w s"} {
		r := skald(t, "", append(strings.Fields(args), "--server", nowhere)...)
		r.fails(t, 1, "not available at the moment", free, "check that the server runs, the host and the port")
		require.NotContains(t, r.stderr, "pa55word")
	}
	for _, args := range []string{"status", "events"} { // a server on which no bus is
		r := skald(t, "", append(strings.Fields(args), "--server", plain.ClientURL())...)
		r.fails(t, 1, "is skald serve running on this server, with this prefix?")
	}
	skald(t, "", "publish", "--session", "s", "--body", `{"activity":{}}`, "--server", plain.ClientURL()).
		fails(t, 1, "no stream takes it, has skald serve run on this server, with this prefix?")
	skald(t, "", "status", "--url", "http://"+free).fails(t, 1, "not available at the moment", "is skald serve running there")
}

// greeting is the address of something that greets as a NATS server of the version
// would, and answers pings.
func greeting(t *testing.T, version string) string {
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
				fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":%q,\"proto\":1,\"headers\":true,\"jetstream\":true,\"max_payload\":1048576}\r\n", version)
				buf := make([]byte, 4096)
				for {
					c.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // the read says it
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					for range strings.Count(string(buf[:n]), "PING\r\n") {
						io.WriteString(c, "PONG\r\n") //nolint:errcheck // the client has left then
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}
