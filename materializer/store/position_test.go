package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// A store belongs to one bus for good. Adopting takes no other INGEST.
func TestAdopt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	got := func() store.Bus {
		t.Helper()
		b, err := s.Bus(t.Context())
		require.NoError(t, err)
		return b
	}
	require.Zero(t, got())
	var invalid *bus.InvalidError
	require.ErrorAs(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1"}), &invalid)
	require.ErrorAs(t, s.Adopt(t.Context(), store.Bus{IngestID: "i1"}), &invalid)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i1"}))
	put(t, s, row(1, alpha, "error"))
	require.NoError(t, s.Close())
	s = openAt(t, path)
	require.Equal(t, store.Bus{Epoch: "e1", IngestID: "i1"}, got())
	require.ErrorIs(t, s.Adopt(t.Context(), store.Bus{Epoch: "e2", IngestID: "i1"}), bus.ErrOtherBus)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i1"}))
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i2"}))
	require.Equal(t, store.Bus{Epoch: "e1", IngestID: "i1"}, got(), "another INGEST has other positions")
	require.Equal(t, at(1, 1), position(t, s))
}

// One commit's message a minute of INGEST's time is remembered; going back forgets what
// lies beyond; old ones leave.
func TestMarks(t *testing.T) {
	const second, day = int64(1e9), int64(24 * 3600e9)
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	marks := func() (out []uint64) {
		t.Helper()
		ms, err := s.Reader().Marks(t.Context(), bus.MaxSeq, 1000)
		require.NoError(t, err)
		for _, m := range ms {
			require.Equal(t, projection.Hash{byte(m.Seq)}, m.Hash)
			out = append(out, m.Seq)
		}
		return out
	}
	move := func(seq uint64, time int64) {
		t.Helper()
		commit(t, s, &store.Commit{Position: store.Position{IngestSeq: seq, IngestTime: time, IngestHash: projection.Hash{byte(seq)}}})
	}
	commit(t, s, &store.Commit{})
	require.Empty(t, marks(), "the beginning is no message")
	move(10, 100*second)
	move(11, 159*second)
	move(12, 160*second)
	move(13, 161*second)
	move(14, 220*second)
	require.Equal(t, []uint64{14, 12, 10}, marks())
	require.NoError(t, s.Close())
	s = openAt(t, path)
	move(15, 270*second)
	move(16, 280*second)
	require.Equal(t, []uint64{16, 14, 12, 10}, marks(), "a restart knows the newest mark")
	below, err := s.Reader().Marks(t.Context(), 14, 1)
	require.NoError(t, err)
	require.Equal(t, []store.Mark{{Seq: 12, Time: 160 * second, Hash: projection.Hash{12}}}, below)

	move(13, 161*second)
	require.Equal(t, []uint64{12, 10}, marks(), "what lies beyond is gone")
	require.EqualValues(t, 13, position(t, s).IngestSeq)
	move(14, 1000*second) // another message under a sequence that was seen before
	require.Equal(t, []uint64{14, 12, 10}, marks())
	move(0, 0)
	require.Empty(t, marks())

	for i := range int64(40) {
		move(uint64(i+1), i*day)
	}
	require.Len(t, marks(), 31, "30 days and the newest")
}
