package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/backup"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/materializer/store"
)

var key = bus.Key{Workspace: "w", Session: "s"}

// newStore makes a store with rows in a new data directory.
func newStore(t *testing.T, rows int) (data string, s *store.Store) {
	t.Helper()
	data = t.TempDir()
	s, err := store.Open(filepath.Join(data, backup.StoreFile), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "epoch", IngestID: "ingest"}))
	for seq := 1; seq <= rows; seq++ {
		write(t, s, uint64(seq))
	}
	return data, s
}

// write commits the row of this number, which came with the message of the same.
func write(t *testing.T, s *store.Store, seq uint64) {
	t.Helper()
	require.NoError(t, s.Commit(context.WithoutCancel(t.Context()), &store.Commit{
		Position: store.Position{IngestSeq: seq, IngestTime: int64(seq) * 1e9, EventsSeq: seq, HighestTime: int64(seq) * 1e9},
		Rows: []store.Row{{Seq: seq, Key: key, Type: "error", Origin: bus.Origin{Seq: seq, Time: int64(seq) * 1e9},
			Data: fmt.Appendf(nil, `{"n":%d}`, seq)}},
		Sessions: []store.SessionWrite{{Key: key, Exists: true}},
	}))
}

func rows(t *testing.T, path string) []store.Row {
	t.Helper()
	r, err := store.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	all, err := r.Rows(t.Context(), 0, 1<<20, 1<<30)
	require.NoError(t, err)
	return all
}

// entries are the names in a directory.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A backup that is taken while the store is written holds what was there at one commit,
// says which, and comes back row by row; the store that it becomes can be written.
func TestTakeAndRestore_WhileWritten(t *testing.T) {
	data, s := newStore(t, 500)
	stop, first := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := uint64(501); ; seq++ {
			select {
			case <-stop:
				return
			default:
			}
			write(t, s, seq)
			if seq == 510 {
				close(first)
			}
		}
	})
	<-first
	to := filepath.Join(t.TempDir(), "b")
	m, err := backup.Take(t.Context(), filepath.Join(data, backup.StoreFile), to, backup.TakeOptions{Contract: 1, Version: "v"})
	close(stop)
	wg.Wait()
	require.NoError(t, err)
	require.Equal(t, []string{backup.ManifestFile, backup.StoreFile}, entries(t, to))
	require.Equal(t, []string{"b"}, entries(t, filepath.Dir(to)))
	read, err := backup.ReadManifest(to)
	require.NoError(t, err)
	require.Equal(t, m, read)
	require.GreaterOrEqual(t, m.LatestSeq, uint64(510))
	require.Equal(t, []any{"epoch", "ingest", m.LatestSeq, uint64(1), int64(1), int64(m.IngestSeq) * 1e9},
		[]any{m.Epoch, m.IngestID, m.IngestSeq, m.OldestSeq, m.Sessions, m.IngestTimeNS})

	all := rows(t, filepath.Join(data, backup.StoreFile))
	require.GreaterOrEqual(t, len(all), int(m.LatestSeq))
	for _, replica := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "new", "data")
		got, err := backup.Restore(t.Context(), to, dir, backup.RestoreOptions{Replica: replica})
		require.NoError(t, err)
		require.Equal(t, m, got)
		require.Equal(t, []string{backup.StoreFile, dirlock.File}, entries(t, dir))
		path := filepath.Join(dir, backup.StoreFile)
		require.Equal(t, all[:m.LatestSeq], rows(t, path))
		again, err := store.Open(path, store.Options{})
		require.NoError(t, err)
		write(t, again, m.LatestSeq+1)
		restored, err := again.Reader().Restored(t.Context())
		require.NoError(t, err)
		require.True(t, restored, "a repair has to know")
		id, err := again.Reader().ID(t.Context())
		require.NoError(t, err)
		require.Equal(t, replica, id != m.StoreID)
		require.NoError(t, again.Close())
	}
}

// What is there is never overwritten, on both ways, and nothing half stays behind.
func TestExists(t *testing.T) {
	data, s := newStore(t, 3)
	path := filepath.Join(data, backup.StoreFile)
	to := filepath.Join(t.TempDir(), "b")
	require.NoError(t, os.Mkdir(to, 0o700))
	_, err := backup.Take(t.Context(), path, to, backup.TakeOptions{})
	require.ErrorIs(t, err, backup.ErrExists)
	require.Empty(t, entries(t, to))
	require.NoError(t, os.Remove(to))
	_, err = backup.Take(t.Context(), path, to, backup.TakeOptions{})
	require.NoError(t, err)

	before := entries(t, data)
	_, err = backup.Restore(t.Context(), to, data, backup.RestoreOptions{})
	require.ErrorIs(t, err, backup.ErrExists)
	require.ElementsMatch(t, append(before, dirlock.File), entries(t, data))
	require.NoError(t, s.Close())

	// A log without its file may hold the only copy of somebody's rows.
	lone := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(lone, backup.StoreFile+"-wal"), []byte("x"), 0o600))
	_, err = backup.Restore(t.Context(), to, lone, backup.RestoreOptions{})
	require.ErrorIs(t, err, backup.ErrExists)

	lock, err := dirlock.Acquire(lone)
	require.NoError(t, err)
	_, err = backup.Restore(t.Context(), to, lone, backup.RestoreOptions{})
	require.ErrorIs(t, err, dirlock.ErrHeld)
	require.NoError(t, lock.Release())
}

// A backup that is not whole, or not one, is refused, and leaves no store.
func TestRestore_Refuses(t *testing.T) {
	data, _ := newStore(t, 50)
	good := filepath.Join(t.TempDir(), "b")
	_, err := backup.Take(t.Context(), filepath.Join(data, backup.StoreFile), good, backup.TakeOptions{})
	require.NoError(t, err)
	file, manifest := filepath.Join(good, backup.StoreFile), filepath.Join(good, backup.ManifestFile)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	edit := func(member string, v any) []byte {
		var m map[string]any
		require.NoError(t, json.Unmarshal(text, &m))
		m[member] = v
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return b
	}
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		file, manifest []byte
		err            error
	}{
		"a flipped bit":  {flipped, text, backup.ErrDamaged},
		"cut short":      {whole[:len(whole)-4096], text, backup.ErrDamaged},
		"longer":         {append(append([]byte(nil), whole...), 0), text, backup.ErrDamaged},
		"another hash":   {whole, edit("sha256", strings.Repeat("0", 64)), backup.ErrDamaged},
		"a newer format": {whole, edit("format", 2), backup.ErrNewer},
		"no format":      {whole, edit("format", 0), backup.ErrNoBackup},
		"no JSON":        {whole, []byte("{"), backup.ErrNoBackup},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, c.file, 0o600))
			require.NoError(t, os.WriteFile(manifest, c.manifest, 0o600))
			dir := t.TempDir()
			_, err := backup.Restore(t.Context(), good, dir, backup.RestoreOptions{})
			require.ErrorIs(t, err, c.err)
			require.NotContains(t, entries(t, dir), backup.StoreFile)
		})
	}
	_, err = backup.Restore(t.Context(), t.TempDir(), t.TempDir(), backup.RestoreOptions{})
	require.ErrorIs(t, err, backup.ErrNoBackup)
	_, err = backup.Take(t.Context(), filepath.Join(t.TempDir(), "none.db"), filepath.Join(t.TempDir(), "b"), backup.TakeOptions{})
	require.ErrorIs(t, err, store.ErrNoStore)
}

// A backup that is stopped leaves nothing.
func TestTake_Stopped(t *testing.T) {
	data, _ := newStore(t, 50)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	parent := t.TempDir()
	_, err := backup.Take(ctx, filepath.Join(data, backup.StoreFile), filepath.Join(parent, "b"), backup.TakeOptions{Progress: func(string, uint64, uint64) {}})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, entries(t, parent))
}
