package consumer_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// 500 ephemeral readers come and go, every other one by losing its connection. None
// leaves a consumer: those that stop at once, the others within 20 s.
func TestRun_ManyEphemeral(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	w.catchUp()
	named := w.read(w.js, consumer.Options{Durable: "named"}, nil)
	named.reach(5)
	const n, atOnce = 500, 50
	for range n / atOnce {
		var readers []*reader
		var conns []*nats.Conn
		for i := range atOnce {
			js := w.js
			if i%2 == 1 {
				nc, err := nats.Connect(w.server.ClientURL(), nats.Timeout(skaldtest.Timeout))
				require.NoError(t, err)
				js, err = jetstream.New(nc)
				require.NoError(t, err)
				conns = append(conns, nc)
			}
			readers = append(readers, w.read(js, consumer.Options{}, nil))
		}
		for _, r := range readers {
			r.reach(5)
			require.Equal(t, span(1, 5), r.seqs())
		}
		for _, nc := range conns {
			nc.Close()
		}
		var wg sync.WaitGroup
		for i, r := range readers {
			wg.Go(func() {
				if i%2 == 0 {
					r.cancel()
				}
				<-r.done
			})
		}
		wg.Wait()
		for i, r := range readers {
			if i%2 == 0 {
				require.NoError(t, r.err)
			} else {
				require.ErrorIs(t, r.err, nats.ErrConnectionClosed)
			}
		}
	}
	began := time.Now()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) == 3 }, "consumers stay")
	require.Less(t, time.Since(began), 20*time.Second)
	require.Contains(t, w.consumers(), "named")
	require.Contains(t, w.consumers(), "named=lease")
	named.finish()
}

// Whatever happens to connections, servers, consumers and processes: a durable, and
// a reader that saves its numbers itself, see exactly what the table lists for their
// filter, in order. SKALD_TEST_SEED repeats a run.
func TestRun_Random(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	w := newWorld(t)
	keys := []bus.Key{keyA, keyB, keyC, {Workspace: "ä.*", Session: ">"}}
	filters := []consumer.Options{
		{}, {Workspace: "w"}, {Workspace: "w", Session: "b"}, {Workspace: "ä.*"},
		{Types: []string{bus.TypeActivityChanged}}, {Workspace: "w", Types: []string{bus.TypeError, bus.TypeActivityChanged}},
	}
	type actor struct {
		o    consumer.Options
		p    *skaldtest.Proxy
		nc   *nats.Conn
		js   jetstream.JetStream
		r    *reader // nil while it is stopped
		seen []bus.Event
	}
	var actors []*actor
	for i, o := range filters {
		for _, durable := range []string{"", fmt.Sprint("d", i)} {
			o.Durable = durable
			a := &actor{o: o}
			a.p, a.nc, a.js = w.proxied()
			actors = append(actors, a)
		}
	}
	start := func(a *actor) {
		if a.r != nil {
			return
		}
		if a.o.Durable == "" {
			a.o.From = &bus.Cursor{Epoch: w.streams.Epoch}
			if len(a.seen) > 0 {
				a.o.From.Seq = a.seen[len(a.seen)-1].Seq
			}
		}
		a.r = w.read(a.js, a.o, nil)
	}
	stop := func(a *actor) {
		if a.r != nil {
			// Out of the server's reach nobody can leave a position there, and one that
			// was deleted is there again after 5 s.
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
				return a.nc.IsConnected() && (a.o.Durable == "" || slices.Contains(w.consumers(), a.o.Durable))
			})
			a.r.finish()
			a.seen = append(a.seen, a.r.seen()...)
			a.r = nil
		}
	}
	for range 60 {
		a := actors[rnd.IntN(len(actors))]
		switch n := rnd.IntN(20); {
		case n < 9:
			k := keys[rnd.IntN(len(keys))]
			w.fail(k, rnd.IntN(30))
			w.active(k, fmt.Sprint(rnd.Uint64()))
		case n < 12:
			start(a)
		case n < 14:
			stop(a)
		case n < 17:
			a.p.Cut()
		case n < 18:
			away := map[string]bool{} // durables whose position only the server knows
			for _, a := range actors {
				away[a.o.Durable] = a.r == nil
			}
			w.deleteConsumers(func(name string) bool { return rnd.IntN(2) == 0 && !away[name] })
		case n < 19:
			w.restart()
		default:
			w.catchUp()
		}
	}
	w.catchUp()
	for _, a := range actors {
		start(a)
		want := w.table(a.o)
		if len(want) > 0 {
			a.r.reach(want[len(want)-1].Seq)
		}
		stop(a)
		require.Equal(t, seqs(want), seqs(a.seen), "%+v", a.o)
		for i := range want {
			require.Equal(t, string(want[i].AppendJSON(nil)), string(a.seen[i].AppendJSON(nil)))
		}
	}
}
