//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// stopTime is how long serve may take to stop, whatever it has to do, on a machine
// that is busy.
const stopTime = patience

// terminate stops a process that is at work, in time and with status 0.
func terminate(t *testing.T, s *server) {
	t.Helper()
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(stopTime):
		t.Fatalf("serve takes longer than %s to stop:\n%s", stopTime, s.text())
	}
	require.Equal(t, 0, s.code, s.text())
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
}

// Stopped again and again while all publish and read, serve ends in time each time,
// and in the end everything is as if it had never stopped.
func TestServe_StopsAtWork(t *testing.T) {
	w := newWorld(t, seed(t), 500, 5*time.Minute)
	stop, end := make(chan struct{}), make(chan struct{})
	var publishers, readers []<-chan struct{}
	for _, s := range w.sessions {
		publishers = append(publishers, w.publish(s, stop))
	}
	for i := range 4 {
		s := w.startReady()
		if i == 0 {
			readers = w.read(end)
		}
		w.note("stop, %s after it was ready", w.after(s, time.Second))
		terminate(t, s)
	}
	s := w.startReady()
	w.await("enough messages", w.reached)
	close(stop)
	w.await("the last messages", publishers...)
	s.settle(t)
	close(end)
	w.await("the readers", readers...)
	if f := w.check(s); f != nil {
		w.give(f.what, f)
	}
	s.stop(t)
	checkFile(t, w.dir)
}

// flood sends numbered messages of a session as fast as the server takes them, many
// in flight, until one is not acknowledged.
type flood struct {
	session string
	acked   map[int]bool
	err     error // that ended it
}

func (f *flood) run(nc *nats.Conn, total *atomic.Int64) {
	const inFlight = 256
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*inFlight), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		f.err = err
		return
	}
	sent := make(chan jetstream.PubAckFuture, inFlight)
	var broken atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		n := 0
		for ack := range sent {
			n++
			select {
			case <-ack.Ok():
				f.acked[n] = true
				total.Add(1)
			case f.err = <-ack.Err():
				broken.Store(true)
			}
		}
	})
	for n := 1; !broken.Load(); n++ {
		ack, err := js.PublishMsgAsync(&nats.Msg{
			Subject: ingestSubject("flood", f.session, "error"), Header: withID(fmt.Sprint("id-", n)), Data: []byte(failed(strconv.Itoa(n))),
		}, jetstream.WithRetryAttempts(0))
		if err != nil {
			break // the connection is gone
		}
		sent <- ack
	}
	close(sent)
	wg.Wait()
}

// In the middle of a flood SIGTERM ends serve in time, and nothing that was
// acknowledged is lost or applied twice.
func TestServe_StopsInAFlood(t *testing.T) {
	least := int64(3000)
	if os.Getenv("SKALD_TEST_LONG") != "" {
		least = 50_000
	}
	dir := t.TempDir()
	s := serve(t, dir)
	var total atomic.Int64
	var wg sync.WaitGroup
	floods := make([]*flood, 4)
	for i := range floods {
		floods[i] = &flood{session: strconv.Itoa(i), acked: map[int]bool{}}
		nc, err := nats.Connect(s.nats, nats.NoReconnect(), nats.ErrorHandler(ignored))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		wg.Go(func() { floods[i].run(nc, &total) })
	}
	deadline := time.After(2 * patience)
	tick := time.NewTicker(readPause)
	defer tick.Stop()
	for total.Load() < least {
		select {
		case <-tick.C:
		case <-s.exited:
			t.Fatalf("serve ended by itself:\n%s", s.text())
		case <-deadline:
			t.Fatalf("%d messages were acknowledged in time, not %d", total.Load(), least)
		}
	}
	terminate(t, s)
	wg.Wait()

	s = serve(t, dir)
	s.settle(t)
	for _, f := range floods {
		last := 0
		for _, n := range numbersOf(t, s, f.session) {
			require.Greater(t, n, last, "session %s: once, and in order", f.session)
			last = n
			delete(f.acked, n)
		}
		require.Empty(t, f.acked, "session %s: acknowledged and not in the table", f.session)
	}
	t.Logf("%d acknowledged before it stopped", total.Load())
	s.stop(t)
}

// numbersOf returns the numbers that the messages of the session's errors hold, in
// the table's order.
func numbersOf(t *testing.T, s *server, session string) []int {
	t.Helper()
	var all []int
	w := &walk{name: "the reader", ledger: &ledger{rows: map[uint64]string{}}}
	for {
		p, err := w.ask(t.Context(), s.http, url.Values{
			"after_seq": {strconv.FormatUint(w.cursor, 10)}, "limit": {"1000"}, "workspace_id": {"flood"}, "session_id": {session},
		})
		require.NoError(t, err)
		require.NoError(t, w.take(&p))
		for _, raw := range p.Events {
			all = append(all, numberOf(t, raw))
		}
		if len(p.Events) == 0 && p.NextAfter == p.Latest {
			return all
		}
	}
}

func numberOf(t *testing.T, raw []byte) int {
	t.Helper()
	e, err := bus.ParseEvent(raw)
	require.NoError(t, err)
	var data struct{ Message string }
	require.NoError(t, json.Unmarshal(e.Data, &data))
	n, err := strconv.Atoi(data.Message)
	require.NoError(t, err)
	return n
}
