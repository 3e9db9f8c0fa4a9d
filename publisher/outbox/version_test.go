package outbox_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher/outbox"
)

// say has the first frame of each segment say that another version wrote it.
func say(t *testing.T, dir string, version byte) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, segments)
	for _, path := range segments {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		const length, sum, payload = 4, 8, 12
		require.Equal(t, []byte{1, 2}, b[payload:payload+2], "the record of the head, and the version")
		b[payload+1] = version
		end := payload + int(binary.LittleEndian.Uint32(b[length:]))
		binary.LittleEndian.PutUint32(b[sum:], crc32.Checksum(b[payload:end], crc32.MakeTable(crc32.Castagnoli)))
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
}

// What the version before has written, which knew no traces, is read, and what is added
// to it has them; what a later version has written is not guessed at.
func TestBox_Versions(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{})
	add(t, b, 1, 1, "old")
	require.NoError(t, b.Close())
	say(t, dir, 1)
	b = open(t, dir, outbox.Options{})
	entries := []outbox.Entry{counted(2, "new")}
	entries[0].Traceparent = "00-trace-span-01"
	batch, err := b.Add(nil, outbox.State{Key: key(1), Publisher: "p", Count: 2, UsedAt: 1}, entries)
	require.NoError(t, err)
	require.NoError(t, batch.Wait())
	require.NoError(t, b.Close())

	b = open(t, dir, outbox.Options{})
	found := b.Sessions()
	require.Len(t, found, 1)
	require.Equal(t, bus.Key{Workspace: "w", Session: "s1"}, found[0].Key)
	require.Len(t, found[0].Entries, 2)
	require.Empty(t, found[0].Entries[0].Traceparent)
	require.Equal(t, "00-trace-span-01", found[0].Entries[1].Traceparent)
	require.NoError(t, b.Close())

	other := fastDir(t)
	b = open(t, other, outbox.Options{})
	add(t, b, 1, 1, "later")
	require.NoError(t, b.Close())
	say(t, other, 3)
	_, err = outbox.Open(other, outbox.Options{})
	require.ErrorIs(t, err, outbox.ErrCorrupt)
	require.ErrorContains(t, err, "later version")
}
