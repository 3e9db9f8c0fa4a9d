package materializer_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// seams are the names at which a materializer is stopped.
var seams = []string{"read", "projected", "sent", "appended", "before commit", "committed", "removed from EVENTS"}

// seed returns the seed of a random test, and prints it. SKALD_TEST_SEED repeats one.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("SKALD_TEST_SEED"); s != "" {
		var err error
		n, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SKALD_TEST_SEED=%d", n)
	return n
}

// long reports whether tests run at full length.
func long() bool { return os.Getenv("SKALD_TEST_LONG") != "" }

// budget is how long a random test goes on.
func budget(short, usual, full time.Duration) time.Duration {
	switch {
	case long():
		return full
	case testing.Short():
		return short
	}
	return usual
}

// Whatever is said, and wherever the materializer is stopped, set back or cut off:
// table, EVENTS and a naive model are equal in the end, readers never see a number
// change its meaning or a row appear behind their cursor, and a store that starts
// empty comes to the same rows and states.
func TestProperty_OneMaterializer(t *testing.T) {
	episodes(t, 1, budget(5*time.Second, 20*time.Second, 3*time.Minute))
}

// The same holds for two materializers, each with a store of its own, that race
// for EVENTS and are stopped at random.
func TestProperty_TwoMaterializers(t *testing.T) {
	episodes(t, 2, budget(5*time.Second, 20*time.Second, 3*time.Minute))
}

// episodes runs episodes of a few seconds, each on a server of its own.
func episodes(t *testing.T, nodes int, d time.Duration) {
	r := rand.New(rand.NewPCG(seed(t), 1))
	end := time.Now().Add(d)
	total := &tally{seams: map[string]int{}}
	for i := 0; time.Now().Before(end); i++ {
		n := r.Uint64()
		ok := t.Run(fmt.Sprintf("episode-%d", i), func(t *testing.T) {
			newEpisode(t, rand.New(rand.NewPCG(n, 2)), nodes, total).play(min(6*time.Second, time.Until(end)))
		})
		if !ok {
			return
		}
	}
	t.Logf("%+v", *total)
}

// tally counts what the episodes came to.
type tally struct {
	messages, facts, starts, restores, cuts, checkpoints, followers, pages int
	won, lost, questions                                                   int64
	losses                                                                 [5]int // of INGEST, by kind: copied only, set back, made anew, holes, trimmed
	seams                                                                  map[string]int
}

// episode is one server with its materializers and readers.
type episode struct {
	*world
	r       *rand.Rand
	g       *generator
	foreign map[uint64]bool
	players []*player
	ingests []string // copies of INGEST
	losing  bool     // INGEST is set back, made anew, trimmed, holed
	lost    bool     // INGEST has lost what was read: a new store can not come to the same states
	seen    *meanings
	tally   *tally
}

// player is a materializer that is started, stopped, cut off and set back.
type player struct {
	*node
	o      *observer
	m      *model   // what it has heard; after a loss two may have heard different things twice
	heard  int      // how often the model has gone back
	copies []string // of its store, from commits that are older or newer
	hit    atomic.Pointer[string]
	cut    *atomic.Bool // of the present run: the connection of one before may be closed late
	copied int
}

func newEpisode(t *testing.T, r *rand.Rand, nodes int, total *tally) *episode {
	w := newWorldWith(t, bus.StreamOptions{IDHorizon: time.Duration(1+r.IntN(30)) * time.Second})
	e := &episode{
		world: w, r: r, g: newGenerator(r, w.subj), losing: r.IntN(2) == 0,
		foreign: map[uint64]bool{}, seen: &meanings{of: map[uint64]string{}}, tally: total,
	}
	for range nodes {
		p := &player{node: w.node(), m: newModel(w.subj, w.streams.Horizon.Nanoseconds()), cut: new(atomic.Bool)}
		p.waits = r.IntN(2) == 0
		p.o = p.observer(rand.New(rand.NewPCG(r.Uint64(), 3)), e.seen)
		e.players = append(e.players, p)
	}
	return e
}

func (e *episode) play(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		e.publish()
		for _, p := range e.players {
			e.disturb(p)
		}
		switch n := e.r.IntN(24); {
		case n < 2:
			e.checkpoint()
		case n < 4 && e.losing:
			e.lose()
		}
	}
	e.checkpoint()
	e.follower()
	for _, p := range e.players {
		p.o.pause()
		p.stop()
		e.tally.pages += p.o.pages
		e.tally.won += p.stats.AppendsWon
		e.tally.lost += p.stats.AppendsLost
		e.tally.questions += p.stats.Questions
	}
	e.tally.facts += len(e.players[0].m.facts)
}

func (e *episode) publish() {
	n := e.r.IntN(30)
	if e.r.IntN(10) == 0 {
		n = e.r.IntN(1500)
	}
	e.g.pruneTo = e.last(e.streams.Events)
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = e.g.next()
	}
	e.sayAll(msgs)
	e.tally.messages += n
	if e.r.IntN(15) == 0 {
		ack, err := e.js.Publish(e.t.Context(), "skald.ev.w.s=2E0.error", []byte(`{"seq":1}`))
		require.NoError(e.t, err)
		e.foreign[ack.Sequence] = true
	}
}

// disturb does to a materializer what its operator, its disk or its network may do.
func (e *episode) disturb(p *player) {
	if !p.running {
		e.handle(p)
		e.begin(p)
		return
	}
	if e.r.IntN(3) == 0 {
		skaldtest.Eventually(e.t, 2*skaldtest.Timeout, func() bool { return len(p.done) > 0 || p.cut.Load() || p.caughtUp() })
	}
	switch {
	case p.cut.Load():
		p.stop()
	case len(p.done) > 0:
		require.ErrorIs(e.t, p.wait(), errCrash)
	case e.r.IntN(3) == 0:
		p.cancel()
		if err := p.wait(); err != nil {
			require.ErrorIs(e.t, err, errCrash)
		}
	}
	if at := p.hit.Swap(nil); at != nil {
		e.tally.seams[*at]++
	}
}

// begin starts the materializer, mostly with a fault to come.
func (e *episode) begin(p *player) {
	e.tally.starts++
	var count atomic.Int64
	name, nth := seams[e.r.IntN(len(seams))], int64(1+e.r.IntN(4))
	kind, delay := e.r.IntN(5), time.Duration(e.r.IntN(1500))*time.Microsecond
	cut := new(atomic.Bool)
	p.cut = cut
	p.start(func(at string) error {
		if at != name || count.Add(1) != nth || kind == 0 {
			return nil
		}
		p.hit.Store(&name)
		if kind == 1 {
			// The connection goes a little later: with an append that is not sent,
			// or not answered, or answered.
			nc := p.nc
			time.AfterFunc(delay, func() { nc.Close(); cut.Store(true) })
			return nil
		}
		return errCrash
	})
	if kind == 1 {
		e.tally.cuts++
	}
}

// handle copies the stopped store, or sets it back to a copy.
func (e *episode) handle(p *player) {
	if _, err := os.Stat(p.path); err != nil {
		return // not made yet
	}
	switch {
	case e.r.IntN(4) == 0:
		to := filepath.Join(filepath.Dir(p.path), fmt.Sprintf("copy-%d.db", p.copied))
		db, err := sql.Open("sqlite", "file:"+p.path+"?mode=rw&_busy_timeout=5000")
		require.NoError(e.t, err)
		_, err = db.Exec(`VACUUM INTO ?`, to)
		require.NoError(e.t, err)
		require.NoError(e.t, db.Close())
		p.copies = append(p.copies, to)
		p.copied++
	case e.r.IntN(5) == 0 && len(p.copies) > 0:
		p.o.pause()
		for _, left := range []string{"-wal", "-shm"} {
			_ = os.Remove(p.path + left) // a reader was open when the writer closed
		}
		p.restore(p.copies[e.r.IntN(len(p.copies))])
		p.o.restart()
		p.o.resume()
		e.tally.restores++
	}
}

// checkpoint lets all catch up, without faults, and compares.
func (e *episode) checkpoint() {
	e.tally.checkpoints++
	for _, p := range e.players {
		if p.running {
			p.cancel()
			if err := p.wait(); err != nil {
				require.ErrorIs(e.t, err, errCrash)
			}
		}
		p.start(nil)
	}
	for _, p := range e.players {
		p.catchUp()
	}
	for _, p := range e.players {
		for _, b := range p.wentBack()[p.heard:] {
			p.m.back(b.reason, b.seq)
			p.heard++
		}
		e.compare(p.m, p.node, e.r, e.foreign)
	}
	sessions := e.players[0].m.sessions
	for _, p := range e.players[1:] {
		same(e.t, "what the stores remember", e.players[0].states(sessions), p.states(sessions))
	}
}

// follower starts an empty store over the same streams, which has to come to the
// same end.
func (e *episode) follower() {
	if e.lost {
		return
	}
	e.tally.followers++
	first := e.players[0]
	n := e.node()
	n.start(nil)
	n.catchUp()
	e.compare(first.m, n, e.r, e.foreign)
	same(e.t, "what a new store remembers", first.states(first.m.sessions), n.states(first.m.sessions))
	n.stop()
}
