package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// A thousand sessions publish side by side over one connection.
func TestLoad_ThousandSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	const sessions, each = 1000, 5
	ctx := within(t, 2*skaldtest.Timeout)
	g, gctx := errgroup.WithContext(ctx)
	for i := range sessions {
		g.Go(func() error {
			s, err := p.Session(gctx, key(fmt.Sprint("s", i)))
			if err != nil {
				return err
			}
			var last *publisher.Receipt
			for j := range each {
				if last, err = s.Observe(gctx, ended(fmt.Sprint(j)), publisher.ObserveOptions{}); err != nil {
					return err
				}
			}
			_, err = last.Materialized(gctx)
			return err
		})
	}
	require.NoError(t, g.Wait())
	for i := range sessions {
		require.Equal(t, names("", each), w.ids(key(fmt.Sprint("s", i))))
	}
	require.Zero(t, w.settle().Rejects)
	p.shut()
}

// At the bounds calls block instead of taking memory, end with their context, and go
// on when there is room.
func TestLoad_Backpressure(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]publisher.Options{
		"messages": {MaxPendingMessages: 10},
		"bytes":    {MaxPendingBytes: 10 * 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.publisher(o)
			s := p.open(key("s"))
			w.stopServer()
			says := 0
			var err error
			for end := time.Now().Add(skaldtest.Timeout); !errors.Is(err, publisher.ErrDisconnected) && time.Now().Before(end); {
				if _, err = s.Observe(within(t, 300*time.Millisecond), ended(fmt.Sprint(says)), publisher.ObserveOptions{}); err == nil {
					says++
					require.LessOrEqual(t, says, 20, "it takes more than its bounds")
					continue
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.ErrorIs(t, err, publisher.ErrDisconnected)
			require.GreaterOrEqual(t, says, 5)
			require.EqualValues(t, says, s.Position().Ordinal, "what was refused has no place")
			done := make(chan error, 1)
			ctx := within(t, skaldtest.Timeout)
			go func() {
				_, err := s.Observe(ctx, ended(fmt.Sprint(says)), publisher.ObserveOptions{})
				done <- err
			}()
			w.startServer()
			require.NoError(t, <-done)
			require.NoError(t, s.Flush(ctx))
			p.shut()
			w.settle()
			require.Equal(t, names("", says+1), w.ids(key("s")))
		})
	}
}

// A message larger than the whole budget is taken when nothing else waits.
func TestLoad_LargerThanBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.publisher(publisher.Options{MaxPendingBytes: 10, MaxPendingMessages: 1}).open(key("s"))
	for i := range 5 {
		observe(t, s, fmt.Sprint(i))
	}
	require.NoError(t, s.Flush(within(t, skaldtest.Timeout)))
	w.settle()
	require.Equal(t, names("", 5), w.ids(key("s")))
}

// load publishes on n sessions as fast as it can until the publisher takes no more.
// It returns how many messages each session had accepted, once all have stopped.
func load(t *testing.T, p *pub, n int) (started <-chan struct{}, accepted func() []int64) {
	counts := make([]atomic.Int64, n)
	var wg sync.WaitGroup
	begun := make(chan struct{})
	var once sync.Once
	sessions := make([]*publisher.Session, n)
	for i := range sessions {
		// Before the load: opening waits for what INGEST has already.
		sessions[i] = p.open(key(fmt.Sprint("s", i)))
	}
	for i, s := range sessions {
		wg.Go(func() {
			for {
				_, err := s.Observe(context.Background(), ended(fmt.Sprint(counts[i].Load())), publisher.ObserveOptions{})
				if errors.Is(err, publisher.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if counts[i].Add(1) == 200 {
					once.Do(func() { close(begun) })
				}
			}
		})
	}
	return begun, func() []int64 {
		wg.Wait()
		out := make([]int64, n)
		for i := range out {
			out[i] = counts[i].Load()
		}
		return out
	}
}

// Close under load, and the end of Run's context, get stored all that was accepted.
func TestLoad_Close(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*pub) error{
		"Close":  func(p *pub) error { return p.Close(within(p.t, skaldtest.Timeout)) },
		"cancel": func(p *pub) error { p.cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.publisher(publisher.Options{MaxPendingMessages: 2000})
			started, accepted := load(t, p, 8)
			<-started
			require.NoError(t, stop(p))
			require.NoError(t, <-p.done)
			p.holdsNothing()
			w.settle()
			for i, n := range accepted() {
				require.Equal(t, names("", int(n)), w.ids(key(fmt.Sprint("s", i))))
			}
		})
	}
}

// What can not be got stored before the time is over is counted and named, by Close
// and by Run, and the receipts say so.
func TestLoad_CloseUnconfirmed(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*pub) error{
		"Close":  func(p *pub) error { return p.Close(within(p.t, 200*time.Millisecond)) },
		"cancel": func(p *pub) error { p.cancel(); return <-p.done },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.publisher(publisher.Options{StopTimeout: 200 * time.Millisecond})
			s, fine := p.open(key("s")), p.open(key("fine"))
			materialized(t, observe(t, fine, "a"))
			materialized(t, observe(t, s, "a"))
			w.stopServer()
			says(t, sayAnd(t, s), publisher.ErrDisconnected)
			var receipts []*publisher.Receipt
			for range 5 {
				receipts = append(receipts, observe(t, s, "b"))
			}
			err := stop(p)
			var u *publisher.UnconfirmedError
			require.ErrorAs(t, err, &u)
			require.ErrorIs(t, err, publisher.ErrDisconnected)
			require.Contains(t, err.Error(), `6 messages are not confirmed; "w"/"s": 6`)
			require.Len(t, u.Sessions, 1)
			require.Equal(t, key("s"), u.Sessions[0].Key)
			require.EqualValues(t, 2, u.Sessions[0].FirstOrdinal)
			require.EqualValues(t, 6, u.Sessions[0].LastOrdinal)
			for _, r := range receipts {
				_, err := r.Stored(within(t, skaldtest.Timeout))
				require.ErrorIs(t, err, publisher.ErrClosed)
			}
			p.holdsNothing()
			w.startServer()
		})
	}
}

// sayAnd reports an error in the session, so that it has something to send.
func sayAnd(t *testing.T, s *publisher.Session) *publisher.Session {
	t.Helper()
	_, err := s.Error(within(t, skaldtest.Timeout), "e", "")
	require.NoError(t, err)
	return s
}

// Random sessions and messages under cuts, server restarts and worker restarts: each
// session's facts are what was accepted, once and in order.
func TestLoad_Random(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	px := skaldtest.NewProxy(t, w.server.Addr().String())
	o := publisher.Options{AckTimeout: 2 * time.Second, MaxPendingMessages: 100}
	p := w.publisherAt(px.URL(), o)
	want := map[bus.Key][]string{}
	open := map[bus.Key]*publisher.Session{}
	ctx := within(t, 4*skaldtest.Timeout) // questions that a restart swallows take their time
	restarts := 0
	for i := range 1500 {
		switch n := rng.IntN(300); {
		case n < 2:
			px.Cut()
		case n == 2 && restarts < 2: // a materializer takes seconds to come back
			restarts++
			w.stopServer()
			w.startServer()
		case n == 3:
			p.shut()
			clear(open)
			p = w.publisherAt(px.URL(), o)
		case n == 4:
			w.stopNode()
			w.startNode()
		}
		k := key(fmt.Sprint("s", rng.IntN(5)))
		if open[k] == nil {
			open[k] = p.open(k)
		}
		id := fmt.Sprint(i)
		var err error
		if rng.IntN(4) == 0 {
			_, err = open[k].Error(ctx, id, "")
		} else {
			_, err = open[k].Observe(ctx, ended(id), publisher.ObserveOptions{})
		}
		require.NoError(t, err)
		want[k] = append(want[k], id)
	}
	p.shut()
	require.Zero(t, w.settle().Rejects)
	for k, ids := range want {
		require.Equal(t, ids, w.ids(k), "%v", k)
	}
}
