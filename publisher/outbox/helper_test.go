package outbox_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher/outbox"
)

func TestMain(m *testing.M) { skaldtest.VerifyLeaks(m) }

// open opens the box in dir, for the time of the test.
func open(t testing.TB, dir string, o outbox.Options) *outbox.Box {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := outbox.Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// fastDir is a new directory in memory where there is one: a case that syncs a thousand
// times is not about the disk.
func fastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skald-outbox")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func key(n int) bus.Key { return bus.Key{Workspace: "w", Session: fmt.Sprint("s", n)} }

// counted is the entry with a count.
func counted(count uint64, body string) outbox.Entry {
	return outbox.Entry{Kind: outbox.Counted, Class: bus.ClassError, AcceptedAt: 1, Count: count, Body: []byte(body)}
}

// add keeps one counted entry of the session and returns its number.
func add(t testing.TB, b *outbox.Box, session int, count uint64, body string) uint64 {
	t.Helper()
	entries := []outbox.Entry{counted(count, body)}
	batch, err := b.Add(nil, outbox.State{Key: key(session), Publisher: "p", Count: count, UsedAt: 1}, entries)
	require.NoError(t, err)
	require.NoError(t, batch.Wait())
	return entries[0].Number
}

// bodies are what the box has found, by session.
func bodies(b *outbox.Box) map[string][]string {
	out := map[string][]string{}
	for _, s := range b.Sessions() {
		for _, e := range s.Entries {
			out[s.Key.Session] = append(out[s.Key.Session], string(e.Body))
		}
	}
	return out
}

// segments are the paths of the journal's files, oldest first.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	slices.Sort(out)
	return out
}

// copied is a new directory with the journal's files.
func copied(t testing.TB, dir string) string {
	t.Helper()
	to := fastDir(t)
	for _, path := range segments(t, dir) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o600))
	}
	return to
}
