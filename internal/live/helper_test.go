package live_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

func TestMain(m *testing.M) { skaldtest.VerifyLeaks(m) }

// world is a store that a test fills as a materializer would, and a hub that is told.
type world struct {
	t     *testing.T
	path  string
	store *store.Store
	hub   *live.Hub

	mu  sync.Mutex
	pos store.Position
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skald.db")
	s, err := store.Open(path, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Adopt(context.Background(), store.Bus{Epoch: "e1", IngestID: "i1"}))
	w := &world{t: t, path: path, store: s}
	w.hub, err = live.New(context.Background(), live.Options{Reader: s.Reader()})
	require.NoError(t, err)
	return w
}

// run runs the hub until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.hub.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
}

// put commits one fact of each key, and tells the hub.
func (w *world) put(keys ...bus.Key) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := store.Commit{}
	for _, k := range keys {
		w.pos.EventsSeq++
		w.pos.IngestSeq++
		seq := w.pos.EventsSeq
		c.Rows = append(c.Rows, store.Row{
			Seq: seq, Key: k, Type: []string{bus.TypeError, bus.TypeTurnEnded}[seq%2], RecordedAt: int64(seq),
			Origin: bus.Origin{Seq: seq, Time: int64(seq) * 1e6}, Data: fmt.Appendf(nil, `{"n":%d}`, seq),
		})
	}
	c.Position = w.pos
	err := w.store.Commit(context.Background(), &c)
	w.hub.Committed(w.pos)
	return err
}

// prune lets go of the rows below a number.
func (w *world) prune(before uint64) {
	w.t.Helper()
	require.NoError(w.t, w.store.Commit(context.Background(), &store.Commit{Position: w.pos, PruneBefore: before}))
}

func key(workspace, session string) bus.Key { return bus.Key{Workspace: workspace, Session: session} }

// follow begins a stream at a cursor, or at the end.
func (w *world) follow(q store.PageQuery) *live.Stream {
	w.t.Helper()
	head, err := w.store.Reader().Follows(context.Background(), q.After)
	require.NoError(w.t, err)
	return w.hub.Follow(q, head)
}

// table returns all facts by paging.
func (w *world) table() (all []bus.Event) {
	w.t.Helper()
	q := store.PageQuery{After: &bus.Cursor{}, Limit: store.MaxLimit}
	for {
		p, err := w.store.Reader().Page(context.Background(), q)
		require.NoError(w.t, err)
		if all = append(all, p.Events...); len(p.Events) == 0 && p.NextAfter == p.Latest {
			return all
		}
		q.After = &bus.Cursor{Seq: p.NextAfter}
	}
}

// next returns the numbers of the stream's next n events, and what came with them.
func next(t *testing.T, s *live.Stream, n int) []uint64 {
	t.Helper()
	var seqs []uint64
	for len(seqs) < n {
		events, err := s.Next(t.Context(), nil)
		require.NoError(t, err)
		for _, e := range events {
			seqs = append(seqs, e.Seq)
		}
	}
	return seqs
}

// join lets a stream that has nothing to come get on the hub.
func join(t *testing.T, s *live.Stream) {
	t.Helper()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		tick := make(chan time.Time, 1)
		tick <- time.Now()
		events, err := s.Next(t.Context(), tick)
		return err == nil && len(events) == 0 && s.OnHub(t)
	})
}

func (w *world) latest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pos.EventsSeq
}
