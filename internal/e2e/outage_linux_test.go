package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// B02: the store's disk is full to the last byte. Nothing is given up, and it goes on when
// there is space again.
func TestB02_DiskFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m")
	skaldtest.Need(t, err == nil, "the right to mount a small file system")
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	data := filepath.Join(disk, "data")
	broker := outsideNATS(t, natsd.Options{})
	s := serve(t, data, "--server", broker.ClientURL())
	s.worker(t).put(ingestSubject("w", "before", "error"), nil, failed("before"))
	before := s.same(t, "w")
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	began, lines := time.Now(), strings.Count(s.text(), "\n")
	// The log has room for small rows that it has been given before.
	w := s.worker(t)
	big := failed(strings.Repeat("x", 1<<20))
	for range 8 {
		w.put(ingestSubject("big", "s", "error"), nil, big)
	}
	s.outage(t, before)
	skaldtest.Eventually(t, patience, func() bool { return time.Since(began) > 5*time.Second })
	s.quiet(t, lines, time.Since(began))
	require.NoError(t, os.Remove(ballast))
	skaldtest.Eventually(t, patience, s.ready, "it goes on by itself")
	after := s.same(t, "w")
	require.Equal(t, before, after[:1])
	s.came(t, after[1:])
	require.Len(t, s.rowsOf(t, "big", "s"), 8)
	s.stop(t)
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			require.True(t, errors.Is(err, syscall.ENOSPC), err)
			size /= 2
		}
	}
}
