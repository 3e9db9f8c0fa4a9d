package materializer_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// answered is a stream whose answer about itself is on its way for as long as a
// function takes.
type answered struct {
	jetstream.Stream
	calls atomic.Int64
	late  func(call int64)
}

func (s *answered) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Stream.Info(ctx, o...)
	s.late(s.calls.Add(1))
	return info, err
}

// The watcher asked where INGEST ends, and while the answer was on its way a message
// was stored and committed: INGEST seemed to end below the store's position, and the
// materializer stopped for good.
func TestRun_CommitWhileTheWatcherAsks(t *testing.T) {
	w := newWorld(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Adopt(t.Context(), store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID}))
	ingest := &answered{Stream: w.streams.Ingest}
	streams := w.streams
	streams.Ingest = ingest
	m, err := materializer.New(materializer.Options{Conn: w.nc, JS: w.js, Store: st, Streams: streams, Subjects: w.subj})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.SetKeepEvery(time.Hour)
	n := &node{m: m}
	const late = 2 // answers: one may be the keeper's, the rest are the watcher's
	var answers atomic.Int64
	ingest.late = func(int64) {
		// Before it reads on, the reader itself asks.
		if n.check("ingest").OK && answers.Add(1) <= late {
			seq := w.fail(bus.Key{Workspace: "w", Session: "s"}, "meanwhile")
			_ = m.WaitCommitted(ctx, seq) // it ends with the test
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(ended) > 0 || answers.Load() > late }, "the watcher goes on")
	require.Empty(t, ended, "it runs")
	cancel()
	require.NoError(t, <-ended)
}
