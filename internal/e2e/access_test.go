//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// As the README tells it: tokens are made, serve lets them in as far as they reach,
// commands use them, and one that is taken out is out. No token is in what anything has
// said, in the data directory or in the file of tokens.
func TestAccess_Tokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	acme := skald(t, "", "token", "new", "--name", "ci", "--workspace", "acme", "--file", file).ok(t)[0]
	all := skald(t, "", "token", "new", "--name", "ops", "--all", "--file", file).ok(t)[0]
	printed := skald(t, "", "token", "new", "--name", "x", "--workspace", "a", "--workspace", "b").ok(t)
	require.Len(t, printed, 2)
	require.Contains(t, printed[1], `{"name":"x","sha256":"`)
	skald(t, "", "token", "new", "--name", "ci", "--all", "--file", file).fails(t, 1, "a second time")
	skald(t, "", "token", "new", "--name", "y").fails(t, 2, "--all or --workspace")
	skald(t, "", "token", "new", "--name", "y", "--all", "--workspace", "w").fails(t, 2, "--all or --workspace")
	skald(t, "", "token", "new", "--all").fails(t, 2, "name: must be")
	skald(t, "", "serve", "--data", filepath.Join(dir, "d"), "--http", "0.0.0.0:0", "--listen", "127.0.0.1:0").fails(t, 2, "loopback", "--tokens")
	skald(t, "", "serve", "--data", filepath.Join(dir, "d"), "--tokens", filepath.Join(dir, "none")).fails(t, 1, "file of tokens")

	data := filepath.Join(dir, "data")
	s := serve(t, data, "--tokens", file, "--http", "0.0.0.0:0")
	s.http = strings.ReplaceAll(s.http, "[::]", "127.0.0.1")
	w := s.worker(t)
	w.put(ingestSubject("acme", "s", "error"), nil, failed("1"))
	w.put(ingestSubject("other", "s", "error"), nil, failed("2"))
	key := filepath.Join(dir, "key")
	events := func(token string) result {
		require.NoError(t, os.WriteFile(key, []byte(token+"\n"), 0o600))
		return skald(t, "", "events", "--url", s.http, "--token-file", key, "--after-seq", "0", "--json")
	}
	skaldtest.Eventually(t, patience, func() bool { return len(events(all).ok(t)) == 2 })
	require.Len(t, events(acme).ok(t), 1)
	events(acme+"x").fails(t, 1, "a known token is needed")
	skald(t, "", "events", "--url", s.http).fails(t, 1, "a known token is needed")
	skald(t, "", "status", "--url", s.http, "--token-file", key).fails(t, 1, "a known token is needed")

	one, err := follow(s.http, nil, "0", "Authorization", "Bearer "+acme)
	require.NoError(t, err)
	defer one.close()
	one.need(t, 1)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	skaldtest.ReplaceFile(t, file, []byte(lines[1]))
	s.signal(t, syscall.SIGHUP)
	require.ErrorContains(t, one.read(2, time.Minute), "unauthorized", "its stream ends")
	events(acme).fails(t, 1, "a known token is needed")
	require.Len(t, events(all).ok(t), 2)
	s.stop(t)

	said := s.text() + string(text)
	err = filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		said += string(b)
		return err
	})
	require.NoError(t, err)
	for _, secret := range []string{acme, all} {
		require.NotContains(t, said, strings.TrimPrefix(secret, "skald_"))
	}
}
