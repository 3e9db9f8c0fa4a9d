//go:build unix

package e2e_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// B43: what workers send is stored as sent, alike in all places that hold it and in no
// log; the product's own credentials are nowhere, error texts included.
func TestB43_Secrets(t *testing.T) {
	t.Parallel()
	const own = "pa55-of-the-broker"
	secrets := []string{
		"Authorization: Bearer sk-test-000", "https://api.example/bot123:TEST/send", "postgres://u:p4ss@h/db", "AKIAABCDEFGHIJKLMNOP",
		"sk-test-rotated-001",
	}
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, []byte(`authorization { user: user, password: "`+own+`" }`), 0o600))
	broker := outsideNATS(t, natsd.Options{ConfigFile: config, Listen: "127.0.0.1:0"})
	at, err := url.Parse(broker.ClientURL())
	require.NoError(t, err)
	at.User = url.UserPassword("user", own)
	data := t.TempDir()
	s := serve(t, data, "--server", at.String())
	nc, err := nats.Connect(at.String())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	w := &plainWorker{t, nc}
	for _, secret := range secrets {
		w.put(ingestSubject("w", "s", "error"), nil, failed(secret))
		w.put(ingestSubject("w", "s", "activity"), nil, `{"activity":{"note":`+quoted(secret)+`}}`)
	}
	w.put(ingestSubject("w", "s", "error"), nil, `{"message":"\u0073k-escaped-\u0030"}`)
	w.put(ingestSubject("w", "s", "error"), nil, `{"message":7,"note":`+quoted(secrets[0])+`}`) // rejected
	w.put(ingestSubject("w", "s", "error"), withID("e"), failed(secrets[1]))
	w.put(ingestSubject("w", "s", "error"), withID("e"), failed(secrets[2])) // a conflict
	s.settle(t)

	rows := s.rowsAt(t, at.String())
	text := strings.Join(rows, "\n")
	stream := strings.Join(s.follow(t, url.Values{}, "0").need(t, len(rows)), "\n")
	table, err := os.ReadFile(filepath.Join(data, "skald.db"))
	require.NoError(t, err)
	log, err := os.ReadFile(filepath.Join(data, "skald.db-wal"))
	require.NoError(t, err)
	shown := skald(t, "", "rejects", "show", "1", "--data", data).ok(t)
	for _, secret := range secrets {
		for place, held := range map[string]string{"the table's file": string(table) + string(log), "a command": text, "a stream": stream} {
			require.Contains(t, held, secret, "%s holds what was sent", place)
		}
	}
	require.Contains(t, text, `\u0073k-escaped-\u0030`, "as sent, not decoded")
	require.Contains(t, shown[0], secrets[0])
	list := strings.Join(skald(t, "", "rejects", "--data", data).ok(t), "\n")

	// What leaves the machine: a backup is the table and a manifest.
	backup := filepath.Join(t.TempDir(), "backup")
	skald(t, "", "backup", backup, "--data", data).ok(t)
	exported := ""
	files, err := filepath.Glob(filepath.Join(backup, "*"))
	require.NoError(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		exported += string(b)
	}
	for _, secret := range secrets {
		require.Contains(t, exported, secret, "a backup holds what was sent")
	}

	// Errors of every kind: of the connection, of a wrong password, of commands.
	wrong := *at
	wrong.User = url.UserPassword("user", own+"-wrong")
	refused := skald(t, "", "status", "--server", wrong.String())
	require.NotZero(t, refused.code)
	misread := skald(t, "", "events", "--server", at.String(), "--after-seq", "x")
	require.NotZero(t, misread.code)
	_, _, status := s.fetch(t, "/api/v1/status")
	broker.Shutdown()
	skaldtest.Eventually(t, patience, func() bool { return s.readiness(t)["nats"] != "" })
	down := skald(t, "", "status", "--server", at.String())
	require.NotZero(t, down.code)
	_, _, ready := s.fetch(t, "/readyz")
	_, _, metrics := s.fetch(t, "/metrics")
	for place, said := range map[string]string{
		"the log": s.text(), "refused": refused.stdout + refused.stderr, "misread": misread.stdout + misread.stderr, "down": down.stdout + down.stderr,
		"ready": string(ready), "metrics": string(metrics), "status": string(status), "rejects": list,
		"the table": string(table) + string(log), "a command": text, "a backup": exported,
	} {
		require.NotContains(t, said, own, place)
	}
	for _, secret := range secrets {
		for place, said := range map[string]string{"the log": s.text(), "ready": string(ready), "metrics": string(metrics), "the list of rejects": list} {
			require.NotContains(t, said, secret, place)
		}
	}
	s.signal(t, os.Interrupt)
	<-s.exited
	require.NotContains(t, s.text(), own)
}

// rowsAt are all events as the command line reads them from a server.
func (s *server) rowsAt(t *testing.T, server string) []string {
	t.Helper()
	return skald(t, "", "events", "--json", "--after-seq", "0", "--limit", "1000", "--server", server).ok(t)
}
