package store_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// reject returns an entry of the message with this sequence.
func reject(seq uint64, key *bus.Key, payload []byte, id bus.Identity) store.RejectWrite {
	return store.RejectWrite{Key: key, Subject: fmt.Sprint("skald.in.", seq), Reject: projection.Reject{
		Seq: seq, Time: int64(seq) * 1e9, Class: bus.ClassError, Reason: bus.ReasonBody, Detail: "body: is not JSON",
		Payload: payload, Size: len(payload), Identity: id,
	}}
}

func leave(t *testing.T, s *store.Store, rejects ...store.RejectWrite) {
	t.Helper()
	commit(t, s, &store.Commit{Position: position(t, s), Rejects: rejects})
}

func list(t *testing.T, s *store.Store, q store.RejectsQuery) []store.Reject {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	got, err := s.Reader().Rejects(t.Context(), q)
	require.NoError(t, err)
	return got
}

// refOf names the entry of this id as every store knows it.
func refOf(t *testing.T, s *store.Store, id int64) bus.EntryRef {
	t.Helper()
	e, err := s.Reader().Reject(t.Context(), id)
	require.NoError(t, err)
	return bus.EntryRef{Seq: e.Seq, Time: e.Time, Reason: e.Reason}
}

// discard commits that the operator has dealt with the entry.
func discard(t *testing.T, s *store.Store, id int64) {
	t.Helper()
	commit(t, s, &store.Commit{Position: position(t, s), Discards: []bus.EntryRef{refOf(t, s, id)}})
}

// An entry comes back whole; lists leave the payload out; an empty payload is told from
// none.
func TestRejects_ReadBack(t *testing.T) {
	s := open(t)
	payload := []byte{0, 0xFF, '{'}
	full := reject(1, &alpha, payload, bus.Identity{Publisher: "p", Count: 7, EventID: "e"})
	subject := reject(2, nil, []byte{}, bus.Identity{})
	ahead := reject(3, &beta, nil, bus.Identity{})
	ahead.Size = 99
	leave(t, s, full, subject, ahead)
	require.EqualValues(t, 3, status(t, s.Reader()).Rejects)
	require.EqualValues(t, 3, status(t, s.Reader()).RejectBytes)
	for _, c := range []struct {
		id   int64
		want store.RejectWrite
		kept bool
	}{{1, full, true}, {2, subject, true}, {3, ahead, false}} {
		got, err := s.Reader().Reject(t.Context(), c.id)
		require.NoError(t, err)
		want := store.Reject{ID: c.id, Key: c.want.Key, Subject: c.want.Subject, Reject: c.want.Reject, Kept: c.kept}
		if c.kept {
			want.Hash = sha256.Sum256(c.want.Payload)
		}
		if len(want.Payload) == 0 {
			require.Empty(t, got.Payload)
			got.Payload, want.Payload = nil, nil
		}
		require.Equal(t, &want, got)
		want.Payload = nil
		require.Equal(t, []store.Reject{want}, list(t, s, store.RejectsQuery{After: c.id - 1, Limit: 1}))
	}
	_, err := s.Reader().Reject(t.Context(), 4)
	require.ErrorIs(t, err, bus.ErrNotFound)
	_, err = s.Reader().Session(t.Context(), "alpha", "acme")
	require.ErrorIs(t, err, bus.ErrNotFound, "a rejected message makes no session")
}

// Filters, ascending ids, and the newest entry of an identity.
func TestRejects_Find(t *testing.T) {
	s := open(t)
	keys := []*bus.Key{&alpha, &beta, &gamma, nil}
	for seq := uint64(1); seq <= 40; seq++ {
		leave(t, s, reject(seq, keys[seq%4], []byte("x"), bus.Identity{Publisher: "p", Count: seq/4%3 + 1, EventID: fmt.Sprint("e", seq/4%2)}))
	}
	ids := func(q store.RejectsQuery) (out []int64) {
		for _, limit := range []int{1, 3, 1000} {
			out, q.After = nil, 0
			for {
				q.Limit = limit
				got := list(t, s, q)
				for _, e := range got {
					out = append(out, e.ID)
					q.After = e.ID
				}
				if len(got) < limit {
					break
				}
			}
		}
		return out
	}
	every := func(of ...uint64) (out []int64) {
		for id := int64(1); id <= 40; id++ {
			for _, rest := range of {
				if uint64(id)%4 == rest {
					out = append(out, id)
				}
			}
		}
		return out
	}
	require.Equal(t, every(0, 1, 2, 3), ids(store.RejectsQuery{}))
	require.Equal(t, every(0, 1), ids(store.RejectsQuery{Workspace: "acme"}))
	require.Equal(t, every(0, 2), ids(store.RejectsQuery{Session: "alpha"}))
	require.Equal(t, every(2), ids(store.RejectsQuery{Session: "alpha", Workspace: "other"}))
	require.Empty(t, ids(store.RejectsQuery{Workspace: "%"}))

	find := func(key bus.Key, id bus.Identity) (int64, error) {
		e, err := s.Reader().RejectOf(t.Context(), key, id)
		if err != nil {
			return 0, err
		}
		require.Equal(t, []byte("x"), e.Payload)
		return e.ID, nil
	}
	id, err := find(beta, bus.Identity{Publisher: "p", Count: 1})
	require.NoError(t, err)
	require.EqualValues(t, 37, id) // 37/4%3 == 0
	id, err = find(beta, bus.Identity{Publisher: "p", Count: 2, EventID: "e1"})
	require.NoError(t, err)
	require.EqualValues(t, 29, id, "the count decides")
	id, err = find(beta, bus.Identity{EventID: "e0"})
	require.NoError(t, err)
	require.EqualValues(t, 33, id)
	for _, none := range []bus.Identity{{Publisher: "q", Count: 1}, {Publisher: "p", Count: 9}, {EventID: "e9"}, {}} {
		_, err = find(beta, none)
		require.ErrorIs(t, err, bus.ErrNotFound)
	}
	_, err = find(bus.Key{Workspace: "none", Session: "beta"}, bus.Identity{EventID: "e0"})
	require.ErrorIs(t, err, bus.ErrNotFound)
}

// All payloads together are bounded: the oldest shrink to hash and size.
func TestRejects_Bound(t *testing.T) {
	s := open(t)
	s.SetRejectBytes(1000)
	for seq := uint64(1); seq <= 30; seq++ {
		leave(t, s, reject(seq, &alpha, make([]byte, 99+seq), bus.Identity{}))
		require.LessOrEqual(t, status(t, s.Reader()).RejectBytes, int64(1000))
	}
	all := list(t, s, store.RejectsQuery{})
	require.Len(t, all, 30, "entries stay")
	var kept int64
	for i, e := range all {
		require.Equal(t, i >= 30-7, e.Kept, "entry %d", e.ID) // the last seven have 882 bytes, eight would have 1,004
		require.Equal(t, 100+i, e.Size)
		require.Equal(t, sha256.Sum256(make([]byte, e.Size)), e.Hash)
		if e.Kept {
			kept += int64(e.Size)
		}
	}
	require.Equal(t, kept, status(t, s.Reader()).RejectBytes)
	// One that is beyond the bound by itself keeps nothing, and nothing breaks.
	leave(t, s, reject(31, &alpha, make([]byte, 5000), bus.Identity{}))
	require.Zero(t, status(t, s.Reader()).RejectBytes)
	leave(t, s, reject(32, &alpha, make([]byte, 500), bus.Identity{}))
	require.EqualValues(t, 500, status(t, s.Reader()).RejectBytes)
}

// A discarded entry is not listed, keeps no payload and is not counted; its id does not
// come again. What became of its message is still told.
func TestDiscardReject(t *testing.T) {
	s := open(t)
	leave(t, s, reject(1, &alpha, []byte("abc"), bus.Identity{}), reject(2, &alpha, []byte("de"), bus.Identity{Publisher: "p", Count: 4, EventID: "e"}))
	ref := refOf(t, s, 2)
	other, later, unknown := ref, ref, ref
	other.Reason, later.Time, unknown.Seq = bus.ReasonChain, ref.Time+1, 9
	commit(t, s, &store.Commit{Position: position(t, s), Discards: []bus.EntryRef{other, later, unknown}})
	require.EqualValues(t, 2, status(t, s.Reader()).Rejects, "what this store does not have is passed")
	for range 2 { // the second time there is nothing left to do
		commit(t, s, &store.Commit{Position: position(t, s), Discards: []bus.EntryRef{ref, ref}})
	}
	st := status(t, s.Reader())
	require.EqualValues(t, 1, st.Rejects)
	require.EqualValues(t, 3, st.RejectBytes)
	leave(t, s, reject(3, &alpha, nil, bus.Identity{}))
	for _, q := range []store.RejectsQuery{{}, {Workspace: alpha.Workspace}, {Session: alpha.Session}, {Workspace: alpha.Workspace, Session: alpha.Session}} {
		q.After = 1
		got := list(t, s, q)
		require.Len(t, got, 1)
		require.EqualValues(t, 3, got[0].ID)
	}
	_, err := s.Reader().Reject(t.Context(), 2)
	require.ErrorIs(t, err, bus.ErrNotFound)
	for _, id := range []bus.Identity{{Publisher: "p", Count: 4}, {EventID: "e"}} {
		e, err := s.Reader().RejectOf(t.Context(), alpha, id)
		require.NoError(t, err)
		require.Equal(t, bus.ReasonBody, e.Reason)
		require.False(t, e.Kept)
		require.Empty(t, e.Payload)
		require.Equal(t, sha256.Sum256([]byte("de")), e.Hash)
	}
	discard(t, s, 3)
	discard(t, s, 1)
	st = status(t, s.Reader())
	require.Zero(t, st.Rejects)
	require.Zero(t, st.RejectBytes)

	// A forgotten session takes only what still counts out of the numbers.
	leave(t, s, reject(4, &alpha, []byte("x"), bus.Identity{}), reject(5, &beta, []byte("xy"), bus.Identity{}))
	forget(t, s, alpha)
	st = status(t, s.Reader())
	require.EqualValues(t, 1, st.Rejects)
	require.EqualValues(t, 2, st.RejectBytes)
}

// The entry of the message that used a count is found among those of other copies.
func TestFinalRejectOf(t *testing.T) {
	s := open(t)
	id := bus.Identity{Publisher: "p", Count: 1}
	_, err := s.Reader().FinalRejectOf(t.Context(), alpha, "p", 1)
	require.ErrorIs(t, err, bus.ErrNotFound)
	ahead, conflict := reject(1, &alpha, nil, id), reject(3, &alpha, []byte("y"), id)
	ahead.Reason, conflict.Reason = bus.ReasonAhead, bus.ReasonConflict
	leave(t, s, ahead, conflict)
	_, err = s.Reader().FinalRejectOf(t.Context(), alpha, "p", 1)
	require.ErrorIs(t, err, bus.ErrNotFound)
	leave(t, s, reject(2, &alpha, []byte("x"), id), conflict)
	e, err := s.Reader().FinalRejectOf(t.Context(), alpha, "p", 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, e.Seq)
}

// An entry that may have been left before is left once, also after it was discarded.
func TestRejects_Once(t *testing.T) {
	s := open(t)
	again := reject(1, &alpha, []byte("abc"), bus.Identity{})
	again.Once = true
	leave(t, s, again)
	leave(t, s, again)
	require.Len(t, list(t, s, store.RejectsQuery{}), 1)
	discard(t, s, 1)
	leave(t, s, again)
	require.Empty(t, list(t, s, store.RejectsQuery{}))
	again.Time++ // another message under the same sequence
	leave(t, s, again)
	again.Reason = bus.ReasonChain
	leave(t, s, again)
	require.Len(t, list(t, s, store.RejectsQuery{}), 2)
	require.EqualValues(t, 2, status(t, s.Reader()).Rejects)
}
