package materializer_test

import (
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// rollback is a world with a model that has heard all that its node has read, and what
// it takes to set INGEST back.
type rollback struct {
	*world
	n      *node
	m      *model
	r      *rand.Rand
	g      *generator
	copies []string
	wentTo int // times that wentBack has heard of
}

func newRollback(t *testing.T) *rollback {
	r := rand.New(rand.NewPCG(seed(t), 4))
	w := newWorld(t)
	return &rollback{world: w, n: w.node(), m: newModel(w.subj, w.streams.Horizon.Nanoseconds()), r: r, g: newGenerator(r, w.subj)}
}

// mix publishes messages of all kinds.
func (w *rollback) mix(n int) {
	w.t.Helper()
	w.g.pruneTo = w.last(w.streams.Events)
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = w.g.next()
	}
	w.sayAll(msgs)
}

// older returns one of the copies. After the first time the newest is what is there.
func (w *rollback) older(nth int) string {
	n := len(w.copies)
	if nth > 1 {
		n--
	}
	return w.copies[w.r.IntN(n)]
}

// heard catches up and compares.
func (w *rollback) heard() {
	w.t.Helper()
	w.n.catchUp()
	w.compare(w.m, w.n, w.r, nil)
}

// copyIngest keeps what INGEST is now.
func (w *rollback) copyIngest() {
	w.t.Helper()
	w.copies = append(w.copies, w.stoppedCopy("SKALD_INGEST"))
}

// wentBack tells the model that the node has gone back once more, and compares.
func (w *rollback) wentBack(reason bus.Reason) {
	w.t.Helper()
	w.wentTo++
	w.n.catchUp()
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool { return w.n.caughtUp() && len(w.n.wentBack()) >= w.wentTo })
	require.Len(w.t, w.n.wentBack(), w.wentTo)
	last := w.n.wentBack()[w.wentTo-1]
	require.Equal(w.t, reason, last.reason)
	w.m.back(reason, last.seq)
	w.compare(w.m, w.n, w.r, nil)
}

// rejectsOf returns the details of the entries of a reason.
func (n *node) rejectsOf(reason bus.Reason) (details []string) {
	list, err := n.st.Reader().Rejects(n.w.t.Context(), store.RejectsQuery{Limit: 1000})
	require.NoError(n.w.t, err)
	for _, r := range list {
		if r.Reason == reason {
			details = append(details, r.Detail)
		}
	}
	return details
}

// gone waits until the node has gone back for the nth time.
func (n *node) gone(nth int, reason bus.Reason) {
	n.w.t.Helper()
	skaldtest.Eventually(n.w.t, 2*skaldtest.Timeout, func() bool { return len(n.rejectsOf(reason)) >= nth }, "it does not go back")
}

// setBack puts a copy in INGEST's place. If it is to be overtaken, INGEST has grown
// beyond what was read before anybody can look at it.
func (w *rollback) setBack(path string, overtaken bool) {
	w.t.Helper()
	last := w.last(w.streams.Ingest)
	w.stopServer()
	w.putStream("SKALD_INGEST", path)
	if overtaken {
		// Another address first, so that the node can not come before the messages.
		address := w.o.Listen
		w.o.Listen = ""
		w.server = skaldtest.ServerWith(w.t, w.o)
		nc, js := skaldtest.Connect(w.t, w.server)
		for {
			m := w.g.next()
			ack, err := js.PublishMsg(w.t.Context(), m)
			require.NoError(w.t, err)
			if ack.Sequence > last+5 {
				break
			}
		}
		nc.Close()
		w.stopServer()
		w.o.Listen = address
	}
	w.startServer()
}
