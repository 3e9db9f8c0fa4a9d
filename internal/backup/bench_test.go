package backup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/backup"
	"github.com/skaldbus/skald/materializer/store"
)

// BenchmarkBackup shows how long a backup and its restore take: of 20,000 events of about
// 300 bytes, with SKALD_TEST_LONG=1 of 1,000,000.
func BenchmarkBackup(b *testing.B) {
	n := uint64(20_000)
	if os.Getenv("SKALD_TEST_LONG") != "" {
		n = 1_000_000
	}
	path := filepath.Join(b.TempDir(), backup.StoreFile)
	s, err := store.Open(path, store.Options{})
	require.NoError(b, err)
	require.NoError(b, s.Adopt(b.Context(), store.Bus{Epoch: "epoch", IngestID: "ingest"}))
	data := []byte(`{"message":"` + strings.Repeat("x", 280) + `","command_id":null}`)
	for seq := uint64(0); seq < n; {
		c := store.Commit{}
		for range 1000 {
			seq++
			c.Rows = append(c.Rows, store.Row{
				Seq: seq, Key: bus.Key{Workspace: "w", Session: fmt.Sprint("s", seq%1000)}, Type: "error",
				Origin: bus.Origin{Seq: seq, Time: int64(seq)}, Data: data,
			})
		}
		c.Position = store.Position{IngestSeq: seq, IngestTime: int64(seq), EventsSeq: seq, HighestTime: int64(seq)}
		require.NoError(b, s.Commit(b.Context(), &c))
	}
	require.NoError(b, s.Close())
	to := filepath.Join(b.TempDir(), "b")
	b.Run(fmt.Sprintf("take/events=%d", n), func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, os.RemoveAll(to))
			m, err := backup.Take(b.Context(), path, to, backup.TakeOptions{})
			require.NoError(b, err)
			b.ReportMetric(float64(m.Size)/1e6, "MB")
		}
	})
	b.Run(fmt.Sprintf("restore/events=%d", n), func(b *testing.B) {
		for b.Loop() {
			data := b.TempDir()
			m, err := backup.Restore(b.Context(), to, data, backup.RestoreOptions{})
			require.NoError(b, err)
			require.Equal(b, n, m.LatestSeq)
			require.NoError(b, os.RemoveAll(data))
		}
	})
}
