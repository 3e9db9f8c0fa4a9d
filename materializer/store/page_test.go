package store_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// No cursor asks for the newest one; a page moves to its last row; an empty page at the
// latest number is the end.
func TestPage_Cursor(t *testing.T) {
	s := open(t)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i"}))
	r := s.Reader()
	require.Equal(t, store.Page{Oldest: 1, Epoch: "e1"}, page(t, r, store.PageQuery{Limit: 1}))
	require.Equal(t, store.Page{Oldest: 1, Epoch: "e1"}, page(t, r, store.PageQuery{After: after(0), Limit: 1}))

	put(t, s, row(2, alpha, "error"), row(5, beta, "error"))
	commit(t, s, &store.Commit{Position: at(9, 8)}) // 6 to 8 hold nothing of ours
	require.Equal(t, store.Page{NextAfter: 8, Latest: 8, Oldest: 1, Epoch: "e1"}, page(t, r, store.PageQuery{Limit: 1}))
	p := page(t, r, store.PageQuery{After: after(0), Limit: 1})
	require.Equal(t, []uint64{2}, seqs(p.Events))
	require.EqualValues(t, 2, p.NextAfter)
	p = page(t, r, store.PageQuery{After: after(2), Limit: 10})
	require.Equal(t, []uint64{5}, seqs(p.Events))
	require.EqualValues(t, 5, p.NextAfter, "a page with rows moves to its last row, whatever ended it")
	p = page(t, r, store.PageQuery{After: after(5), Limit: 10})
	require.Empty(t, p.Events)
	require.EqualValues(t, 8, p.NextAfter)
	require.Equal(t, p, page(t, r, store.PageQuery{After: &bus.Cursor{Seq: 8, Epoch: "e1"}, Limit: 10}))

	for cursor, want := range map[bus.Cursor]error{
		{Seq: 9}:                          store.ErrBeyond,
		{Seq: math.MaxUint64}:             store.ErrBeyond,
		{Seq: 2, Epoch: "e0"}:             bus.ErrOtherEpoch,
		{Seq: math.MaxInt64, Epoch: "e0"}: bus.ErrOtherEpoch,
	} {
		_, err := r.Page(t.Context(), store.PageQuery{After: &cursor, Limit: 1})
		var ce *store.CursorError
		require.ErrorAs(t, err, &ce)
		require.ErrorIs(t, err, want)
		require.Equal(t, store.CursorError{Err: want, Cursor: cursor, Epoch: "e1", Latest: 8, Oldest: 1}, *ce)
	}
}

// A page's wire form is that of the contract, data byte for byte as stored.
func TestPage_AppendJSON(t *testing.T) {
	s := open(t)
	require.NoError(t, s.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i"}))
	a, b := row(1, bus.Key{Workspace: `w"`, Session: "<s>"}, "error"), row(2, alpha, "turn_ended")
	a.Data = []byte(`{"n":1e2,"s":"\u00fc\u2028<"}`)
	put(t, s, a, b)
	p := page(t, s.Reader(), store.PageQuery{After: after(0), Limit: 5})
	require.Equal(t, `{"events":[`+
		`{"seq":1,"session_id":"<s>","workspace_id":"w\"","recorded_at_ms":10,"stored_at_ms":1000,"type":"error","data":{"n":1e2,"s":"\u00fc\u2028<"}},`+
		`{"seq":2,"session_id":"alpha","workspace_id":"acme","recorded_at_ms":20,"stored_at_ms":2000,"type":"turn_ended","data":{"n":2}}`+
		`],"next_after_seq":2,"latest_seq":2,"oldest_seq":1,"epoch":"e1"}`, string(p.AppendJSON(nil)))
	p = page(t, s.Reader(), store.PageQuery{Limit: 5})
	require.Equal(t, `{"events":[],"next_after_seq":2,"latest_seq":2,"oldest_seq":1,"epoch":"e1"}`, string(p.AppendJSON(nil)))
}

// Filters are exact and apply together. To SQL or NATS special characters mean nothing.
func TestPage_Filters(t *testing.T) {
	s := open(t)
	put(t, s, row(1, alpha, "error"), row(2, beta, "turn_started"), row(3, gamma, "error"), row(4, alpha, "turn_started"), row(5, gamma, "turn_ended"))
	for _, c := range []struct {
		q    store.PageQuery
		want []uint64
	}{
		{store.PageQuery{}, []uint64{1, 2, 3, 4, 5}},
		{store.PageQuery{Type: "error"}, []uint64{1, 3}},
		{store.PageQuery{Workspace: "acme"}, []uint64{1, 2, 4}},
		{store.PageQuery{Workspace: "acme", Type: "turn_started"}, []uint64{2, 4}},
		{store.PageQuery{Session: "alpha"}, []uint64{1, 3, 4, 5}},
		{store.PageQuery{Session: "alpha", Type: "error"}, []uint64{1, 3}},
		{store.PageQuery{Session: "alpha", Workspace: "acme"}, []uint64{1, 4}},
		{store.PageQuery{Session: "alpha", Workspace: "other", Type: "turn_ended"}, []uint64{5}},
		{store.PageQuery{Session: "beta", Workspace: "other"}, []uint64{}},
	} {
		for _, limit := range []int{1, 2, 1000} {
			c.q.Limit = limit
			require.Equal(t, c.want, seqs(walk(t, s.Reader(), c.q)), "%+v", c.q)
		}
	}
	for _, odd := range []string{"*", ">", "%", "_", "acme.>", "ACME", "acme ", "' OR 1=1 --", "alph_", "NULL"} {
		for _, q := range []store.PageQuery{{Workspace: odd}, {Session: odd}, {Type: odd}, {Session: odd, Workspace: odd}, {Session: "alpha", Workspace: odd}} {
			q.After, q.Limit = after(0), 10
			require.Equal(t, store.Page{NextAfter: 5, Latest: 5, Oldest: 1}, page(t, s.Reader(), q))
		}
	}
}

// To SQLite a negative limit is none at all: one request returned everything. Where rows
// were bounded, large ones still made huge pages; where bytes were, one larger row made
// its page fail on every try.
func TestPage_Bounds(t *testing.T) {
	s := open(t)
	const rows = 60
	largest := strings.Repeat("x", 5<<20)
	for seq := uint64(1); seq <= rows; seq++ {
		e := row(seq, alpha, "error")
		body := largest[:900_000]
		if seq == rows/2 {
			body = largest
		}
		e.Data = []byte(`{"x":"` + body + `"}`)
		put(t, s, e)
	}
	for _, limit := range []int{0, -1, math.MinInt} {
		_, err := s.Reader().Page(t.Context(), store.PageQuery{After: after(0), Limit: limit})
		var invalid *bus.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "limit", invalid.Field)
		_, err = s.Reader().Sessions(t.Context(), store.SessionsQuery{Limit: limit})
		require.ErrorAs(t, err, &invalid)
		_, err = s.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: limit})
		require.ErrorAs(t, err, &invalid)
	}
	var readers sync.WaitGroup
	for i := range 20 {
		readers.Go(func() {
			maxBytes := []int{0, 1 << 20, 1, math.MaxInt}[i%4]
			bound := maxBytes
			if bound == 0 || bound > store.MaxPageBytes {
				bound = store.MaxPageBytes
			}
			q := store.PageQuery{After: after(0), Limit: math.MaxInt, MaxBytes: maxBytes}
			got := 0
			for {
				p, err := s.Reader().Page(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				if size := len(p.AppendJSON(nil)); size > bound && len(p.Events) > 1 {
					t.Errorf("%d bytes in %d rows, bound %d", size, len(p.Events), bound)
				}
				if len(p.Events) == 0 {
					break
				}
				got += len(p.Events)
				q.After = after(p.NextAfter)
			}
			if got != rows {
				t.Errorf("%d rows of %d with %d bytes a page", got, rows, maxBytes)
			}
		})
	}
	readers.Wait()
	// Four rows of 900 KB fit 4 MiB, and all are used.
	require.Len(t, page(t, s.Reader(), store.PageQuery{After: after(0), Limit: 100}).Events, 4)
}

// A large limit is cut, a page in between is full.
func TestPage_LimitIsCut(t *testing.T) {
	s := open(t)
	var rows []store.Row
	for seq := uint64(1); seq <= store.MaxLimit+200; seq++ {
		rows = append(rows, row(seq, alpha, "error"))
	}
	put(t, s, rows...)
	for _, q := range []store.PageQuery{{}, {Session: "alpha"}, {Workspace: "acme"}, {Session: "alpha", Workspace: "acme"}, {Type: "error"}} {
		q.After, q.Limit = after(0), 1e9
		require.Len(t, page(t, s.Reader(), q).Events, store.MaxLimit)
		q.After = after(store.MaxLimit)
		require.Len(t, page(t, s.Reader(), q).Events, 200)
	}
}

// A page's bytes are counted as they are written, escapes included, to the last byte.
func TestPage_BytesAreExact(t *testing.T) {
	s := open(t)
	key := bus.Key{Workspace: strings.Repeat(`"`, 256), Session: strings.Repeat(`\`, 256)}
	var rows []store.Row
	for seq := uint64(1); seq <= 100; seq++ {
		rows = append(rows, row(seq, key, "error"))
	}
	put(t, s, rows...)
	for maxBytes := 2000; maxBytes < 20_000; maxBytes += 501 {
		p := page(t, s.Reader(), store.PageQuery{After: after(0), Limit: 1000, MaxBytes: maxBytes})
		size := len(p.AppendJSON(nil))
		require.LessOrEqual(t, size, maxBytes)
		one := len(p.Events[0].AppendJSON(nil)) + 1
		require.Greater(t, size+one+256, maxBytes, "one more would have fitted")
		require.True(t, json.Valid(p.AppendJSON(nil)))
	}
}

// A rare type is looked for a bounded number of rows at a time; each empty page says how
// far it looked.
func TestPage_RareType(t *testing.T) {
	s := open(t)
	const rows = 11_000
	var all []store.Row
	for seq := uint64(1); seq <= rows; seq++ {
		all = append(all, row(seq*2, []bus.Key{alpha, beta, gamma}[seq%3], "common"))
	}
	all[rows-1].Type = "rare"
	last := all[rows-1].Seq
	put(t, s, all...)
	commit(t, s, &store.Commit{Position: at(last, last+7)})
	pages := func(q store.PageQuery) (cursors []uint64, found []uint64) {
		q.Type, q.Limit, q.After = "rare", 10, after(0)
		for {
			p := page(t, s.Reader(), q)
			cursors = append(cursors, p.NextAfter)
			found = append(found, seqs(p.Events)...)
			if len(p.Events) == 0 && p.NextAfter == p.Latest {
				return cursors, found
			}
			q.After = after(p.NextAfter)
		}
	}
	cursors, found := pages(store.PageQuery{})
	require.Equal(t, []uint64{10_000, 20_000, last, last + 7}, cursors)
	require.Equal(t, []uint64{last}, found)
	require.Equal(t, gamma, all[rows-1].Key)
	for _, q := range []store.PageQuery{{Workspace: "other"}, {Session: "alpha"}, {Session: "alpha", Workspace: "other"}} {
		_, found = pages(q)
		require.Equal(t, []uint64{last}, found, "%+v", q)
	}
	cursors, found = pages(store.PageQuery{Workspace: "acme"})
	require.Empty(t, found)
	// Two of three rows are the workspace's, and sorting examines 1,000 of them.
	require.Equal(t, []uint64{3000, 6000, 9000, 12_000, 15_000, 18_000, 21_000, last + 7}, cursors)
}

// Pages go on while rows are added: what a reader sees is one snapshot, in order, and
// nothing appears behind its cursor.
func TestPage_FollowsWriter(t *testing.T) {
	s := open(t)
	const rows = 1000
	var readers sync.WaitGroup
	for i := range 6 {
		readers.Go(func() {
			q := []store.PageQuery{{}, {Workspace: "acme"}, {Session: "alpha"}, {Session: "alpha", Workspace: "acme"}, {Type: "error"}, {Workspace: "other"}}[i]
			q.After, q.Limit = after(0), 7+i*50
			var got []uint64
			for {
				p, err := s.Reader().Page(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range p.Events {
					if e.Seq <= q.After.Seq || e.Seq > p.Latest {
						t.Errorf("row %d after %d, latest %d", e.Seq, q.After.Seq, p.Latest)
					}
					got = append(got, e.Seq)
				}
				q.After = after(p.NextAfter)
				if p.NextAfter == rows {
					break
				}
			}
			q.After = nil
			if want := seqs(walk(t, s.Reader(), q)); fmt.Sprint(want) != fmt.Sprint(got) {
				t.Errorf("reader %d: followed %d rows, table has %d", i, len(got), len(want))
			}
		})
	}
	keys := []bus.Key{alpha, beta, gamma}
	for seq := uint64(1); seq <= rows; {
		var batch []store.Row
		for n := seq%17 + 1; n > 0 && seq <= rows; n-- {
			batch = append(batch, row(seq, keys[seq%3], []string{"error", "turn_ended"}[seq%2]))
			seq++
		}
		put(t, s, batch...)
	}
	readers.Wait()
}
