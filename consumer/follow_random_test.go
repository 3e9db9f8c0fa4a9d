package consumer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// seeded returns the test's random numbers, and says how to have them again.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("SKALD_TEST_SEED"); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SKALD_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Followers come and go at random cursors while events are written, servers restart,
// connections are cut, consumers are deleted, and two stores answer, of which one
// falls behind for good, or one that is away now and then, beside a bounded EVENTS.
// Each gets what the table lists behind its cursor, in order, byte for byte.
func TestFollow_Random(t *testing.T) {
	t.Parallel()
	for _, bounded := range []bool{false, true} {
		t.Run(fmt.Sprintf("bounded=%v", bounded), func(t *testing.T) {
			t.Parallel()
			followRandom(t, seeded(t), bounded)
		})
	}
}

func followRandom(t *testing.T, rnd *rand.Rand, bounded bool) {
	w := newWorld(t)
	if bounded {
		// Not fewer than a materializer appends before it commits: it would stop.
		w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 150, jetstream.DiscardOld })
	}
	keys := []bus.Key{keyA, keyB, keyC, {Workspace: "ä.*", Session: ">"}}
	filters := []consumer.FollowOptions{
		{}, {Workspace: "w"}, {Workspace: "w", Session: "b"}, {Workspace: "ä.*"}, {Session: "b"},
		{Types: []string{bus.TypeActivityChanged}}, {Workspace: "w", Types: []string{bus.TypeError, bus.TypeActivityChanged}},
	}
	stores, stopOther := []*store.Store{w.store}, func() {}
	if !bounded { // else a materializer that is slower than the other one stops
		var other *store.Store
		other, stopOther = w.second()
		stores = append(stores, other)
	}
	var stops []func()
	for _, st := range stores {
		stops = append(stops, w.serveTable(st))
	}
	type actor struct {
		o    consumer.FollowOptions
		p    *skaldtest.Proxy
		nc   *nats.Conn
		js   jetstream.JetStream
		r    *following
		from uint64
		seen []bus.Event
		far  uint64
	}
	var actors []*actor
	begin := func() {
		a := &actor{o: filters[rnd.IntN(len(filters))], far: 1 + rnd.Uint64N(100)}
		a.p, a.nc, a.js = w.proxied()
		if last := w.catchUp(); rnd.IntN(3) > 0 {
			a.from = rnd.Uint64N(last + 1)
		}
		a.o.From = from(a.from)
		a.r = w.follow(a.js, a.o, a.far, nil)
		actors = append(actors, a)
	}
	begin()
	steps := 40
	if os.Getenv("SKALD_TEST_LONG") != "" {
		steps = 400
	}
	for range steps {
		a := actors[rnd.IntN(len(actors))]
		switch n := rnd.IntN(20); {
		case n < 9:
			k := keys[rnd.IntN(len(keys))]
			w.fail(k, rnd.IntN(80))
			w.active(k, fmt.Sprint(rnd.Uint64()))
		case n < 12:
			if len(actors) < 12 {
				begin()
			}
		case n < 13: // the same reader, later and from where it was
			if a.r.f.Cursor().Epoch == "" {
				continue
			}
			a.r.finish()
			at := a.r.f.Cursor()
			a.seen = append(a.seen, a.r.seen()...)
			a.o.From = &at
			a.r = w.follow(a.js, a.o, a.far, nil)
		case n < 15:
			a.p.Cut()
		case n < 16:
			w.deleteConsumers(func(string) bool { return rnd.IntN(2) == 0 })
		case n < 17:
			w.restart()
		case n < 18:
			stopOther() // from here on its store lags
		default: // one store's service ends, and begins again
			i := rnd.IntN(len(stores))
			stops[i]()
			stops[i] = w.serveTable(stores[i])
		}
	}
	w.catchUp()
	for _, a := range actors {
		var want []bus.Event
		for _, ev := range w.table(consumer.Options{Workspace: a.o.Workspace, Session: a.o.Session, Types: a.o.Types}) {
			if ev.Seq > a.from {
				want = append(want, ev)
			}
		}
		if len(want) > 0 {
			a.r.reach(want[len(want)-1].Seq)
		}
		a.r.finish()
		same(t, want, append(a.seen, a.r.seen()...), fmt.Sprintf("%+v from %d", a.o, a.from))
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) == 0 }, "consumers stay")
}
