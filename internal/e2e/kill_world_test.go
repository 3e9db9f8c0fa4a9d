//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// world is a bus in a directory at fixed addresses, with those who publish and
// read all the while that its processes come and go.
type world struct {
	t         *testing.T
	rng       *rand.Rand // of the test's own goroutine
	dir       string
	nats      string // host:port
	http      string // host:port
	subjects  bus.Subjects
	sessions  []*session
	ledger    *ledger
	walks     []*walk
	began     time.Time
	acked     atomic.Int64
	enough    int64 // so many acknowledgements close reached
	reached   chan struct{}
	processes []*process

	forgotten bus.Key // the session that was forgotten, if one was
	copies    map[*message][]uint64
	log       []string // what was done to the processes

	ctx    context.Context // ends with the test, or when a publisher or reader fails
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// seed returns the seed of a test and prints it.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if v := os.Getenv("SKALD_TEST_SEED"); v != "" {
		var err error
		n, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err, "SKALD_TEST_SEED")
	}
	t.Logf("SKALD_TEST_SEED=%d repeats the messages and the times of this run", n)
	return n
}

// newWorld prepares a world; no process runs yet. enough acknowledgements close
// reached; limit is how long the test may take.
func newWorld(t *testing.T, seed uint64, enough int64, limit time.Duration) *world {
	t.Helper()
	skaldtest.Binary(t) // built before the clock runs
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1000)), nats: skaldtest.FreeAddress(t), http: skaldtest.FreeAddress(t), subjects: skaldtest.Subjects(t),
		sessions: newSessions(seed), ledger: &ledger{rows: map[uint64]string{}}, began: time.Now(),
		enough: enough, reached: make(chan struct{}),
	}
	w.dir = filepath.Join(t.TempDir(), "data")
	t.Cleanup(w.keep) // runs when the processes are gone and the directory is not
	ctx, timeout := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("the test takes longer than %s", limit))
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	t.Cleanup(func() {
		w.cancel(nil)
		timeout()
		w.wg.Wait()
	})
	for i, name := range []string{"the HTTP reader", "the reader of the file"} {
		w.walks = append(w.walks, &walk{name: name, ledger: w.ledger, rng: rand.New(rand.NewPCG(seed, 2000+uint64(i)))})
	}
	for _, s := range w.sessions {
		s.connect(t, "nats://"+w.nats)
	}
	return w
}

// run starts a publisher or a reader; what is returned is closed when it has ended.
func (w *world) run(f func() error) <-chan struct{} {
	ended := make(chan struct{})
	w.wg.Go(func() {
		defer close(ended)
		if err := f(); err != nil {
			w.cancel(err)
		}
	})
	return ended
}

// publish starts a session's publisher, which ends some time after stop is closed.
func (w *world) publish(s *session, stop <-chan struct{}) <-chan struct{} {
	return w.run(func() error { return s.publish(w.ctx, w.subjects, stop, w.count) })
}

// count counts an acknowledgement.
func (w *world) count() {
	if w.acked.Add(1) == w.enough {
		close(w.reached)
	}
}

// read starts both readers, which go on to the end that there is when end is closed.
func (w *world) read(end <-chan struct{}) []<-chan struct{} {
	var keys []bus.Key
	for _, s := range w.sessions {
		keys = append(keys, s.key)
	}
	events := func(args ...string) *exec.Cmd { return command(w.t, args...) }
	return []<-chan struct{}{
		w.run(func() error { return w.walks[0].overHTTP(w.ctx, "http://"+w.http, keys, end) }),
		w.run(func() error { return w.walks[1].overFile(w.ctx, events, w.dir, end) }),
	}
}
