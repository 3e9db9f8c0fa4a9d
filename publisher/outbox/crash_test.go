package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/publisher/outbox"
)

// cut keeps some entries, each in a frame of its own, and returns the directory, with
// the size of its only file after each of them.
func cut(t *testing.T) (dir string, ends []int64) {
	t.Helper()
	dir = fastDir(t)
	b := open(t, dir, outbox.Options{})
	for i := range 6 {
		add(t, b, i%2, uint64(i/2+1), fmt.Sprint("body ", i))
		info, err := os.Stat(segments(t, dir)[0])
		require.NoError(t, err)
		ends = append(ends, info.Size())
	}
	require.NoError(t, b.Close())
	return dir, ends
}

// Cut off at any byte, the journal holds what was whole before it, and goes on.
func TestCrash_TornAnywhere(t *testing.T) {
	t.Parallel()
	dir, ends := cut(t)
	for size := range ends[len(ends)-1] {
		torn := copied(t, dir)
		path := segments(t, torn)[0]
		require.NoError(t, os.Truncate(path, size))
		want := 0
		for _, end := range ends {
			if end <= size {
				want++
			}
		}
		b := open(t, torn, outbox.Options{})
		require.Len(t, flat(bodies(b)), want, "cut at %d", size)
		add(t, b, 5, 1, "later")
		require.NoError(t, b.Close())
		b = open(t, torn, outbox.Options{})
		require.Len(t, flat(bodies(b)), want+1, "cut at %d", size)
		require.NoError(t, b.Close())
	}
}

// A bit that flips is noticed, wherever: in the last frame it is like one that was cut
// off, elsewhere kept entries are missing, and nothing is done.
func TestCrash_BitFlips(t *testing.T) {
	t.Parallel()
	dir, ends := cut(t)
	for at := range ends[len(ends)-1] {
		flipped := copied(t, dir)
		path := segments(t, flipped)[0]
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[at] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		b, err := outbox.Open(flipped, outbox.Options{})
		if at < ends[len(ends)-2] {
			var corrupt *outbox.CorruptError
			require.ErrorAs(t, err, &corrupt, "flipped at %d", at)
			require.Equal(t, path, corrupt.File)
			require.LessOrEqual(t, corrupt.Offset, at)
			continue
		}
		require.NoError(t, err, "flipped at %d", at)
		require.Len(t, flat(bodies(b)), len(ends)-1)
		require.NoError(t, b.Close())
	}
}

// A segment that is missing between others, or has become shorter, is a loss.
func TestCrash_SegmentMissing(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{SegmentBytes: 1})
	for i := range 4 {
		add(t, b, 1, uint64(i+1), "x")
	}
	require.NoError(t, b.Close())
	require.Len(t, segments(t, dir), 4)
	for i, harm := range []func(path string) error{os.Remove, func(path string) error { return os.Truncate(path, 30) }} {
		harmed := copied(t, dir)
		path := filepath.Join(harmed, filepath.Base(segments(t, dir)[1]))
		require.NoError(t, harm(path))
		_, err := outbox.Open(harmed, outbox.Options{})
		require.ErrorIs(t, err, outbox.ErrCorrupt, "%d", i)
		require.ErrorContains(t, err, path)
	}
	// A segment that was begun and not finished is none.
	begun := copied(t, dir)
	path := filepath.Join(begun, "000000000005.seg")
	require.NoError(t, os.WriteFile(path, []byte("skob"), 0o600))
	b = open(t, begun, outbox.Options{})
	require.Len(t, flat(bodies(b)), 4)
	require.NoFileExists(t, path)
}

func flat(m map[string][]string) (out []string) {
	for _, s := range m {
		out = append(out, s...)
	}
	return out
}
