//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/auth"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

const (
	// recoverWithin is how long after a fault the bus may be slow.
	recoverWithin = 30 * time.Second
	// lagBound is from publishing until a materializer has it, when nothing is wrong.
	lagBound = time.Second
	// loadPause is between two messages of a session, loadSessions how many there are.
	loadPause    = 20 * time.Millisecond
	loadSessions = 6
)

// noticing has a client give up a server that has gone silent, as natsconn does.
func noticing() []nats.Option {
	return []nats.Option{nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2)}
}

// load is what publishers of both tenants have had acknowledged, and what readers got.
type load struct {
	t       *testing.T
	ctx     context.Context // ends the readers
	enough  chan struct{}   // closed to end the senders
	end     sync.Once       // closes enough
	sending sync.WaitGroup
	probe   *publisher.Session

	mu    sync.Mutex
	acked map[string]bool // by text
	seen  []uint64        // numbers that the Go consumer handled
	pulls map[string]bool // texts that acme's durable brought
}

// startLoad runs sessions of both tenants' workers, a consumer over all and a reader
// of one.
func (c *cluster) startLoad(t *testing.T) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{t: t, ctx: ctx, enough: make(chan struct{}), acked: map[string]bool{}, pulls: map[string]bool{}}
	var running sync.WaitGroup // publishers and readers
	for i, w := range []struct{ token, id string }{{"acme", "acme"}, {"glo=2Ebex", "glo.bex"}} {
		p, err := publisher.New(c.as("workspaces/"+w.token+"/workers/w", noticing()...), publisher.Options{})
		require.NoError(t, err)
		running.Go(func() { _ = p.Run(ctx) })
		for n := range loadSessions / 2 {
			s, err := p.Session(t.Context(), bus.Key{Workspace: w.id, Session: fmt.Sprint("load ", n)})
			require.NoError(t, err)
			l.sending.Go(func() { l.send(s, fmt.Sprint(w.id, " ", n)) })
		}
		if i == 0 {
			l.probe, err = p.Session(t.Context(), bus.Key{Workspace: w.id, Session: "probe"})
			require.NoError(t, err)
		}
	}
	l.read(c, &running)
	// Before the connections are closed, which were made earlier.
	t.Cleanup(func() {
		l.stopSending()
		stop()
		running.Wait()
	})
	return l
}

// send publishes one message after the other until it is stopped. Each must be
// acknowledged.
func (l *load) send(s *publisher.Session, name string) {
	for n := 0; ; n++ {
		select {
		case <-l.enough:
			return
		case <-time.After(loadPause): // the load's rate
		}
		text := fmt.Sprint(name, " ", n)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		r, err := s.Error(ctx, text, "")
		if err == nil {
			_, err = r.Stored(ctx)
		}
		cancel()
		if err != nil {
			l.t.Errorf("%s: %v", text, err)
			return
		}
		l.mu.Lock()
		l.acked[text] = true
		l.mu.Unlock()
	}
}

func (l *load) stopSending() {
	l.end.Do(func() { close(l.enough) })
	l.sending.Wait()
}

// read starts the readers.
func (l *load) read(c *cluster, running *sync.WaitGroup) {
	subjects, err := bus.NewSubjects("")
	require.NoError(l.t, err)
	js, err := jetstream.New(c.as("materializers/m1", noticing()...))
	require.NoError(l.t, err)
	all, err := consumer.New(js, consumer.Options{Subjects: subjects, Durable: "all"})
	require.NoError(l.t, err)
	running.Go(func() {
		err := all.Run(l.ctx, func(_ context.Context, ev bus.Event) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.seen = append(l.seen, ev.Seq)
			return nil
		})
		if err != nil {
			l.t.Errorf("consumer: %v", err)
		}
	})
	own, err := jetstream.NewWithAPIPrefix(c.as("workspaces/acme/readers/r", noticing()...), auth.APIPrefix)
	require.NoError(l.t, err)
	running.Go(func() {
		for l.ctx.Err() == nil {
			// Everything of one round may fail while a node is away.
			cons, err := own.Consumer(l.ctx, "SKALD_EVENTS", "acme=r-d")
			if err != nil {
				continue
			}
			batch, err := cons.Fetch(100, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				continue
			}
			for m := range batch.Messages() {
				l.mu.Lock()
				l.pulls[textOf(l.t, m.Data())] = true
				l.mu.Unlock()
				_ = m.Ack() // else it comes again
			}
		}
	})
}

// textOf returns the text of an error event.
func textOf(t *testing.T, event []byte) string {
	var ev struct {
		Data struct{ Message string }
	}
	if err := json.Unmarshal(event, &ev); err != nil {
		t.Errorf("event %s: %v", event, err)
	}
	return ev.Data.Message
}

// recovered waits until a message is in a materializer's store within lagBound, and
// requires that this is so within recoverWithin of the fault.
func (l *load) recovered(fault string) {
	l.t.Helper()
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(l.t.Context(), patience)
		sent := time.Now()
		r, err := l.probe.Error(ctx, fmt.Sprint("probe ", sent.UnixNano()), "")
		require.NoError(l.t, err)
		_, err = r.Materialized(ctx)
		cancel()
		require.NoError(l.t, err, fault)
		lag := time.Since(sent)
		if lag < lagBound {
			l.t.Logf("%s: lag %s after %s", fault, lag.Round(time.Millisecond), sent.Sub(began).Round(time.Millisecond))
			require.Less(l.t, sent.Sub(began), recoverWithin, fault)
			return
		}
		require.Less(l.t, time.Since(began), recoverWithin+lagBound, "%s: lag is %s", fault, lag)
	}
}

// The shipped cluster, with two materializers, two edges and load of two tenants:
// nodes and materializers are killed and started again, and a node is cut off. Nothing
// that was acknowledged is missing or repeated, at any reader, and the bus is as fast
// as before soon after each fault. Each node and materializer has its turn, and the cut
// lasts 30 s, with SKALD_TEST_LONG=1; else there is one of those faults, by chance.
func TestCluster_Faults(t *testing.T) {
	long := os.Getenv("SKALD_TEST_LONG") != ""
	rnd := skaldtest.Rand(t)
	c := newCluster(t, nil)
	data := []string{t.TempDir(), t.TempDir()}
	names := []string{"m1", "m2"}
	serves := []*server{c.serve(names[0], data[0]), c.serve(names[1], data[1])}
	c.edge("e1")
	c.edge("e2")
	c.durables()
	l := c.startLoad(t)
	l.recovered("no fault")

	cut := 30 * time.Second
	if !long {
		cut = 6 * time.Second
	}
	faults := []func(){func() {
		i := c.leader(t)
		// It stops in the middle of whatever it does, and its connections stay open.
		c.nodes[i].signal(t, syscall.SIGSTOP)
		began := time.Now()
		l.recovered(fmt.Sprintf("node %d, INGEST's leader, cut off", i+1))
		time.Sleep(cut - time.Since(began)) // the cut's length
		c.nodes[i].signal(t, syscall.SIGCONT)
		l.recovered(fmt.Sprintf("node %d reached again", i+1))
		c.healthy()
	}}
	for i := range c.nodes {
		faults = append(faults, func() {
			kill(c.nodes[i])
			l.recovered(fmt.Sprintf("node %d killed", i+1))
			c.start(i)
			c.healthy()
			l.recovered(fmt.Sprintf("node %d back", i+1))
		})
	}
	for i := range serves {
		faults = append(faults, func() {
			kill(serves[i].process)
			l.recovered(names[i] + " killed")
			serves[i] = c.serve(names[i], data[i])
			l.recovered(names[i] + " back")
		})
	}
	rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	if !long {
		faults = faults[:1]
	}
	for _, fault := range faults {
		fault()
	}
	l.check(c, serves)
}

// leader returns the node that leads INGEST.
func (c *cluster) leader(t *testing.T) int {
	in, err := c.bus().Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	i := slices.Index([]string{"node1", "node2", "node3"}, in.CachedInfo().Cluster.Leader)
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, 3, in.CachedInfo().Config.Replicas)
	return i
}

// check stops the load's senders and compares both tables, EVENTS and what readers got
// with what was acknowledged.
func (l *load) check(c *cluster, serves []*server) {
	t := l.t
	l.stopSending()
	var tables [2][]string
	for i, s := range serves {
		s.settle(t)
		tables[i] = pages(t, s.http)
	}
	require.Equal(t, tables[0], tables[1], "both tables")
	ev, err := c.bus().Stream(t.Context(), "SKALD_EVENTS")
	require.NoError(t, err)
	var events []string
	for seq := range ev.CachedInfo().State.LastSeq {
		m, err := ev.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		events = append(events, string(m.Data))
	}
	require.Equal(t, tables[0], events, "table and EVENTS")

	count, own := map[string]int{}, map[string]bool{}
	var seqs []uint64
	for _, line := range events {
		var ev struct {
			Seq       uint64
			Workspace string `json:"workspace_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &ev))
		text := textOf(t, []byte(line))
		count[text]++
		seqs = append(seqs, ev.Seq)
		if ev.Workspace == "acme" {
			own[text] = true
		}
	}
	for text, n := range count {
		require.Equal(t, 1, n, "repeated: %s", text)
	}
	for text := range l.acked {
		require.Equal(t, 1, count[text], "acknowledged and missing: %s", text)
	}
	t.Logf("%d messages acknowledged, %d facts", len(l.acked), len(events))
	skaldtest.Eventually(t, patience, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.seen) >= len(seqs) && len(l.pulls) >= len(own)
	}, "readers come to the end")
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, seqs, l.seen, "the consumer has each fact once, in order")
	require.Equal(t, own, l.pulls, "the tenant's durable brought the tenant's facts")
}

// pages reads the whole table over HTTP.
func pages(t *testing.T, base string) []string {
	t.Helper()
	var out []string
	for after := uint64(0); ; {
		resp, err := client.Get(fmt.Sprintf("%s/api/v1/events?after_seq=%d&limit=1000", base, after))
		require.NoError(t, err)
		var p struct {
			Events []json.RawMessage
			Next   uint64 `json:"next_after_seq"`
		}
		err = json.NewDecoder(resp.Body).Decode(&p)
		resp.Body.Close()
		require.NoError(t, err)
		if len(p.Events) == 0 {
			return out
		}
		for _, ev := range p.Events {
			out = append(out, string(ev))
		}
		after = p.Next
	}
}
