package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/publisher/outbox"
)

// On a full disk an entry is refused, nothing that was kept is lost, and with room the
// box goes on, also after a crash in between.
func TestBox_FullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		if os.Getenv("SKALD_TEST_NO_SKIP") != "" {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Skipf("a small disk can not be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
	dir := filepath.Join(disk, "box")
	b := open(t, dir, outbox.Options{SegmentBytes: 32 << 10})
	body := strings.Repeat("x", 5000)
	var kept []uint64
	try := func() error {
		count := uint64(len(kept) + 1)
		entries := []outbox.Entry{counted(count, fmt.Sprint(count, body))}
		batch, err := b.Add(nil, outbox.State{Key: key(1), Publisher: "p", Count: count, UsedAt: 1}, entries)
		require.NoError(t, err)
		if err = batch.Wait(); err == nil {
			kept = append(kept, entries[0].Number)
		}
		return err
	}
	fill := func() {
		t.Helper()
		var err error
		for range 100 {
			if err = try(); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		for range 3 {
			require.ErrorIs(t, try(), syscall.ENOSPC)
		}
	}
	fill()
	require.Greater(t, len(kept), 20)
	// What the disk of a machine that crashes now would hold.
	crashed := open(t, copied(t, dir), outbox.Options{})
	require.Len(t, bodies(crashed)["s1"], len(kept))
	b.Release(kept[:len(kept)/2]...)
	_ = b.Tend() // there may be no room to write it, but there is for giving segments up
	require.NoError(t, b.Tend())
	before := len(kept)
	fill()
	require.Greater(t, len(kept), before)
	b.Release(kept[before/2:]...)
	_ = b.Tend()
	require.NoError(t, b.Tend())
	require.NoError(t, try())
	require.NoError(t, b.Close())
	b = open(t, dir, outbox.Options{})
	require.Equal(t, []string{fmt.Sprint(len(kept), body)}, bodies(b)["s1"])
}
