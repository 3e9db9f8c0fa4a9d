package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// irregular is an entry that tells of INGEST.
func irregular(reason bus.Reason, detail string) store.RejectWrite {
	return store.RejectWrite{Reject: projection.Reject{Seq: 1, Reason: reason, Detail: detail}}
}

// Going back moves the position, takes on the INGEST that is there, remembers what was
// read, drops the marks that do not hold any more, and tells the operator: all or nothing,
// and it survives a restart.
func TestGoBack(t *testing.T) {
	const minute = int64(60e9)
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "one"}))
	move := func(seq uint64, time, since int64) {
		t.Helper()
		p := position(t, s)
		p.IngestSeq, p.IngestTime, p.Since, p.IngestHash = seq, time, since, projection.Hash{byte(seq)}
		p.HighestTime = max(p.HighestTime, time)
		commit(t, s, &store.Commit{Position: p})
	}
	stretches := func() []store.Stretch {
		t.Helper()
		all, err := s.Reader().Stretches(t.Context())
		require.NoError(t, err)
		return all
	}
	put(t, s, row(1, alpha, "error"))
	for i := int64(1); i <= 9; i++ {
		move(uint64(10*i), i*minute, 1)
	}
	marks, err := s.Reader().Marks(t.Context(), 45, 1)
	require.NoError(t, err)
	require.EqualValues(t, 40, marks[0].Seq)
	require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "one", To: marks[0], Entry: irregular(bus.ReasonIngestRolledBack, "back to 40")}))
	require.NoError(t, s.Close())
	s = openAt(t, path)
	require.Equal(t, store.Position{IngestSeq: 40, IngestTime: 4 * minute, IngestHash: projection.Hash{40}, EventsSeq: 1, HighestTime: 9 * minute}, position(t, s))
	require.Equal(t, []store.Stretch{{FromTime: 1, LastSeq: 90, LastTime: 9 * minute}}, stretches())
	marks, err = s.Reader().Marks(t.Context(), bus.MaxSeq, 1)
	require.NoError(t, err)
	require.EqualValues(t, 40, marks[0].Seq)

	// Nothing was new since: nothing more is known as read.
	require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "one", To: marks[0], Entry: irregular(bus.ReasonIngestRolledBack, "again")}))
	require.Len(t, stretches(), 1)

	// Another stream, from its beginning, of which nothing is known.
	move(60, 20*minute, 19*minute)
	require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "two", To: store.Mark{Seq: 55}, Holes: 5, Entry: irregular(bus.ReasonIngestRecreated, "made anew")}))
	b, err := s.Bus(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Bus{Epoch: "e", IngestID: "two"}, b)
	require.Equal(t, store.Position{IngestSeq: 55, EventsSeq: 1, HighestTime: 20 * minute}, position(t, s))
	require.Equal(t, store.Stretch{FromTime: 19 * minute, LastSeq: 60, LastTime: 20 * minute}, stretches()[1])
	marks, err = s.Reader().Marks(t.Context(), bus.MaxSeq, 100)
	require.NoError(t, err)
	require.Empty(t, marks, "those of another stream say nothing")
	commit(t, s, &store.Commit{Position: position(t, s)})
	marks, err = s.Reader().Marks(t.Context(), bus.MaxSeq, 100)
	require.NoError(t, err)
	require.Empty(t, marks, "a place without a message is no mark")

	// Only the id changes: what is read goes on.
	move(70, 30*minute, 30*minute)
	to := store.Mark{Seq: 70, Time: 30 * minute, Hash: projection.Hash{70}}
	require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "three", To: to, Entry: irregular(bus.ReasonIngestRecreated, "another id")}))
	require.Len(t, stretches(), 2)
	require.EqualValues(t, 30*minute, position(t, s).Since)

	st := status(t, s.Reader())
	require.EqualValues(t, 4, st.Rejects)
	require.EqualValues(t, 5, st.Holes)
	i, err := s.Reader().Irregular(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Irregular{Entries: 4, Newest: 4, Detail: "another id"}, i)
	for i.Newest > 0 { // entries of one message and reason go together
		discard(t, s, i.Newest)
		i, err = s.Reader().Irregular(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, i)

	for n := uint64(0); n < 100; n++ {
		move(100+n, 100*minute+int64(n), 100*minute)
		require.NoError(t, s.GoBack(t.Context(), &store.Move{IngestID: "three", Entry: irregular(bus.ReasonIngestRolledBack, "")}))
	}
	all := stretches()
	require.Len(t, all, 64, "what is known as read is bounded")
	require.EqualValues(t, 199, all[63].LastSeq)
}

// Every irregularity has to be acknowledged, and no other entry.
func TestIrregular_Reasons(t *testing.T) {
	s := open(t)
	for n, reason := range []bus.Reason{bus.ReasonIngestHole, bus.ReasonIngestTrimmed, bus.ReasonIngestRolledBack, bus.ReasonIngestRecreated} {
		leave(t, s, irregular(reason, string(reason)), reject(1, &alpha, nil, bus.Identity{}))
		i, err := s.Reader().Irregular(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, n+1, i.Entries)
		require.Equal(t, string(reason), i.Detail)
	}
}

// A stretch holds what lies in it by sequence and by time.
func TestStretch(t *testing.T) {
	s := store.Stretch{FromTime: 10, LastSeq: 5, LastTime: 20}
	require.True(t, s.Holds(5, 20))
	require.True(t, s.Holds(1, 10))
	require.False(t, s.Holds(6, 20))
	require.False(t, s.Holds(5, 21), "a sequence that was issued again")
	require.False(t, s.Holds(5, 9), "what was stored when another stream was read")
}

// Which messages were rejected is told by sequence and stored time, also of discarded
// entries.
func TestRejectedMessages(t *testing.T) {
	s := open(t)
	nobodys := reject(4, nil, []byte("x"), bus.Identity{})
	nobodys.Class = ""
	leave(t, s, reject(1, &alpha, nil, bus.Identity{}), reject(2, &alpha, nil, bus.Identity{}), reject(3, &beta, nil, bus.Identity{}),
		nobodys, irregular(bus.ReasonIngestHole, "a hole"))
	discard(t, s, 2)
	got, err := s.Reader().RejectedMessages(t.Context(), 2, 9)
	require.NoError(t, err)
	require.Equal(t, map[store.Message]bool{{Seq: 2, Time: 2e9}: true, {Seq: 3, Time: 3e9}: true}, got)
}
