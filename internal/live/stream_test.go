package live_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// History and what is committed later come as one list, from any cursor; without one,
// it begins behind what was committed before.
func TestStream_HistoryThenLive(t *testing.T) {
	w := newWorld(t)
	w.run()
	require.NoError(t, w.put(key("w", "a"), key("w", "b"), key("v", "a")))
	all := w.follow(store.PageQuery{After: &bus.Cursor{}})
	defer all.Close()
	now := w.follow(store.PageQuery{})
	defer now.Close()
	of := w.follow(store.PageQuery{After: &bus.Cursor{Seq: 1}, Workspace: "w"})
	defer of.Close()
	require.Equal(t, []uint64{1, 2, 3}, next(t, all, 3))
	require.Equal(t, []uint64{2}, next(t, of, 1))
	require.NoError(t, w.put(key("v", "a"), key("w", "b")))
	require.Equal(t, []uint64{4, 5}, next(t, all, 2))
	require.Equal(t, []uint64{4, 5}, next(t, now, 2))
	require.Equal(t, []uint64{5}, next(t, of, 1))
}

// A tick ends the waiting without ending the stream; the context's cause ends it.
func TestStream_TickAndContext(t *testing.T) {
	w := newWorld(t)
	w.run()
	s := w.follow(store.PageQuery{})
	defer s.Close()
	tick := make(chan time.Time, 1)
	tick <- time.Time{}
	events, err := s.Next(t.Context(), tick)
	require.NoError(t, err)
	require.Empty(t, events)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err = s.Next(ctx, nil)
	require.Equal(t, why, err)
}

// Readers that wait for something else cost nothing: the table is read once for a
// commit, however many readers there are, and not at all when there are none.
func TestHub_ReadsOncePerCommit(t *testing.T) {
	w := newWorld(t)
	w.run()
	for range 5 {
		require.NoError(t, w.put(key("w", "a")))
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.At() == 5 })
	require.Zero(t, w.hub.Stats().Reads)
	var idle sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 1000 {
		s := w.follow(store.PageQuery{Workspace: fmt.Sprint("idle", i%100)})
		idle.Go(func() {
			defer s.Close()
			if events, err := s.Next(ctx, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("an idle reader got %d events, %v", len(events), err)
			}
		})
	}
	s := w.follow(store.PageQuery{})
	defer s.Close()
	join(t, s)
	// All are on the hub, which was at the end, without having read the table.
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.Stats().Readers == 1001 })
	require.Zero(t, w.hub.Stats().Pages)
	for i := range 20 {
		require.NoError(t, w.put(key("w", "a")))
		require.Equal(t, []uint64{uint64(6 + i)}, next(t, s, 1))
	}
	require.LessOrEqual(t, w.hub.Stats().Reads, int64(20))
	require.Zero(t, w.hub.Stats().Pages)
	cancel()
	idle.Wait()
}

// A reader that does not read is taken off the hub when its queue is full, loses its
// queue and nothing else, and joins again when it has caught up.
func TestStream_Behind(t *testing.T) {
	w := newWorld(t)
	w.hub.SetQueue(10)
	w.run()
	slow, quick := w.follow(store.PageQuery{}), w.follow(store.PageQuery{})
	defer slow.Close()
	defer quick.Close()
	// On the hub before anything comes; a reader that comes later pages first.
	join(t, slow)
	join(t, quick)
	require.NoError(t, w.put(key("w", "a")))
	got := next(t, slow, 1)
	require.Equal(t, []uint64{1}, next(t, quick, 1))
	for i := range 40 {
		require.NoError(t, w.put(key("w", "a")))
		require.Equal(t, []uint64{uint64(i + 2)}, next(t, quick, 1), "others are not held up")
	}
	require.EqualValues(t, 1, w.hub.Stats().Behind)
	require.Equal(t, 1, w.hub.Stats().Readers)
	for len(got) < 41 {
		got = append(got, next(t, slow, 1)...)
	}
	require.NoError(t, w.put(key("w", "a")))
	got = append(got, next(t, slow, 1)...)
	join(t, slow) // again
	require.Len(t, w.table(), len(got))
	for i, e := range w.table() {
		require.Equal(t, e.Seq, got[i])
	}
}

// Rows that are pruned before a reader got them end its stream, with where to go on: one
// that pages, and one that was on the hub before that had read any row.
func TestStream_Pruned(t *testing.T) {
	for _, onHub := range []bool{false, true} {
		w := newWorld(t)
		require.NoError(t, w.put(key("w", "a"), key("w", "a"), key("w", "a"), key("w", "a")))
		if !onHub {
			w.run()
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.At() == 4 })
		}
		s := w.follow(store.PageQuery{After: &bus.Cursor{Seq: 1}})
		defer s.Close()
		all := w.follow(store.PageQuery{After: &bus.Cursor{}})
		defer all.Close()
		if onHub {
			join(t, s)
			join(t, all)
		}
		w.prune(4)
		if onHub {
			w.run()
		}
		_, err := s.Next(t.Context(), nil)
		var gone *store.CursorError
		require.ErrorAs(t, err, &gone)
		require.ErrorIs(t, err, bus.ErrCursorGone)
		require.EqualValues(t, 4, gone.Oldest)
		require.Equal(t, []uint64{4}, next(t, all, 1), "from the beginning is never gone")
	}
}

// When the hub stops, streams end; so do those that begin later.
func TestHub_Stops(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.hub.Run(ctx) }()
	s := w.follow(store.PageQuery{})
	defer s.Close()
	waits := make(chan error, 1)
	go func() {
		_, err := s.Next(context.Background(), nil)
		waits <- err
	}()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.Stats().Readers == 1 })
	cancel()
	require.NoError(t, <-ended)
	require.ErrorIs(t, <-waits, live.ErrStopped)
	late := w.follow(store.PageQuery{})
	defer late.Close()
	_, err := late.Next(t.Context(), nil)
	require.ErrorIs(t, err, live.ErrStopped)
}

// A table that can not be read ends the streams that wait for it, instead of leaving
// them to wait, and the hub ends when it is told to.
func TestHub_TableGone(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.put(key("w", "a")))
	r, err := store.OpenReader(w.path)
	require.NoError(t, err)
	hub, err := live.New(t.Context(), live.Options{Reader: r})
	require.NoError(t, err)
	s := hub.Follow(store.PageQuery{}, store.Head{Latest: 1})
	defer s.Close()
	waits := make(chan error, 1)
	go func() {
		_, err := s.Next(context.Background(), nil)
		waits <- err
	}()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return hub.Stats().Readers == 1 })
	require.NoError(t, r.Close())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	hub.Committed(store.Position{EventsSeq: 2})
	require.Error(t, <-waits)
	cancel()
	require.NoError(t, <-ended)
}

// Whatever its filter, cursor and speed, and whenever it comes and goes, a reader gets
// the table's list.
func TestStream_EqualsTable(t *testing.T) {
	r := skaldtest.Rand(t)
	w := newWorld(t)
	w.hub.SetQueue(8)
	w.run()
	keys := make([]bus.Key, 30)
	for i := range keys {
		keys[i] = key(fmt.Sprint("w", i%5), fmt.Sprint("s", i%7))
	}
	some := func(r *rand.Rand) []bus.Key {
		out := make([]bus.Key, 1+r.IntN(6))
		for i := range out {
			out[i] = keys[r.IntN(len(keys))]
		}
		return out
	}
	for range 100 {
		require.NoError(t, w.put(some(r)...))
	}
	var writer, readers sync.WaitGroup
	done := make(chan struct{})
	seed := r.Uint64()
	// One is on the hub and takes nothing while the others are at it.
	from := w.latest()
	slowest := w.follow(store.PageQuery{After: &bus.Cursor{Seq: from}})
	defer slowest.Close()
	join(t, slowest)
	writer.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1))
		for range 400 {
			if err := w.put(some(r)...); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond) // commits come at their own pace
		}
	})
	go func() { writer.Wait(); close(done) }()
	type run struct {
		q   store.PageQuery
		got []uint64
		to  uint64
	}
	runs := make([][]run, 24)
	for i := range runs {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)+2))
			for {
				select {
				case <-done:
					return
				default:
				}
				one, err := read(w, r)
				if err != nil {
					t.Error(err)
					return
				}
				runs[i] = append(runs[i], run(one))
			}
		})
	}
	readers.Wait()
	n, table := 0, w.table()
	for _, list := range runs {
		for _, one := range list {
			want := []uint64{}
			for _, e := range table {
				q := &one.q
				if e.Seq > q.After.Seq && e.Seq <= one.to && (q.Workspace == "" || q.Workspace == e.Workspace) &&
					(q.Session == "" || q.Session == e.Session) && (q.Type == "" || q.Type == e.Type) &&
					(q.Within == nil || slices.Contains(q.Within, e.Workspace)) {
					want = append(want, e.Seq)
				}
			}
			require.Equal(t, want, append([]uint64{}, one.got...), "%+v from %d", one.q, one.q.After.Seq)
			n++
		}
	}
	t.Logf("%d streams, %+v", n, w.hub.Stats())
	require.NotZero(t, w.hub.Stats().Behind, "one at least was slow")
	for i, seq := range next(t, slowest, len(table)-int(from)) {
		require.Equal(t, from+uint64(i)+1, seq)
	}
}

// read follows a random query for a random number of turns; to is the last number that
// it got.
func read(w *world, r *rand.Rand) (one struct {
	q   store.PageQuery
	got []uint64
	to  uint64
}, err error) {
	latest := w.latest()
	one.q = store.PageQuery{After: &bus.Cursor{Seq: latest - min(latest, r.Uint64N(60))}}
	switch r.IntN(5) {
	case 0:
		one.q.Workspace = fmt.Sprint("w", r.IntN(5))
	case 1:
		one.q.Session = fmt.Sprint("s", r.IntN(7))
	case 2:
		one.q.Within = []string{"w1", "w3"}
	case 3:
		one.q.Workspace, one.q.Session = fmt.Sprint("w", r.IntN(5)), fmt.Sprint("s", r.IntN(7))
	}
	if r.IntN(3) == 0 {
		one.q.Type = bus.TypeError
	}
	head, err := w.store.Reader().Follows(context.Background(), one.q.After)
	if err != nil {
		return one, err
	}
	s := w.hub.Follow(one.q, head)
	defer s.Close()
	one.to = one.q.After.Seq
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(40))*time.Millisecond)
	defer cancel()
	lazy := r.IntN(3) == 0
	for {
		events, err := s.Next(ctx, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			return one, nil
		}
		if err != nil {
			return one, err
		}
		for _, e := range events {
			one.got = append(one.got, e.Seq)
			one.to = e.Seq
		}
		if lazy {
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond) // a slow reader
		}
	}
}
