package materializer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// idle returns a materializer that is not run, for what it does in its parts.
func (n *node) idle() *materializer.Materializer {
	n.w.t.Helper()
	m, err := materializer.New(materializer.Options{Conn: n.nc, JS: n.js, Store: n.st, Streams: n.w.streams, Subjects: n.w.subj})
	require.NoError(n.w.t, err)
	return m
}

// EVENTS takes nothing of an append that has no end, and a server that keeps the
// beginnings of fifty batches at most is not filled with them.
func TestAppend_GivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.fail(alpha, "before")
	n.catchUp()
	other := n.idle()
	rows := make([]store.Row, 3)
	for i := range rows {
		rows[i] = store.Row{Seq: uint64(2 + i), Key: beta, Type: bus.TypeError, Origin: bus.Origin{Seq: 9, Time: 9, Index: i}, Data: []byte(`{}`)}
	}
	for range 60 {
		require.NoError(t, other.GiveUpAppend(1, rows))
	}
	w.failMany(beta, 300)
	n.catchUp()
	require.EqualValues(t, 301, w.last(w.streams.Events))
	w.check(n)
	n.stop()
	require.Empty(t, n.asked())
}

// No append is larger than the options say, and one message's facts go out in several.
func TestAppend_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.appends = 40
	questions := make([]string, 100)
	for i := range questions {
		questions[i] = fmt.Sprintf(`{"type":"elicitation_requested","data":{"request":{"id":"q%d","message":"m","fields":[]}}}`, i)
	}
	newGenerator(rand.New(rand.NewPCG(1, 1)), w.subj).worker().observe(w, questions...)
	w.failMany(beta, 300)
	n.start(nil)
	n.catchUp()
	w.check(n)
	n.stop()
	require.GreaterOrEqual(t, n.stats.AppendsWon, int64(400/40))

	_, err := materializer.New(materializer.Options{
		AppendMessages: -1, Conn: n.nc, JS: n.js, Store: n.st, Streams: w.streams, Subjects: w.subj,
	})
	var invalid *bus.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "append messages", invalid.Field)
}

// A message does not carry headers of the one before it, in whose memory it is built.
func TestAppend_Messages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.open()
	defer n.close()
	sources := []bus.Source{
		{}, {Publisher: "worker-1", Count: 7}, {Publisher: "worker-22", Count: 1 << 40}, {EventID: "id-1"},
		{Chain: bus.ChainPosition{Ordinal: 3, Digest: bus.Digest{1, 2}}},
	}
	rows := make([]*store.Row, 200)
	for i := range rows {
		if i%7 == 3 {
			continue
		}
		rows[i] = &store.Row{
			Seq: uint64(11 + i), Key: alpha, Type: bus.TypeError, RecordedAt: int64(i),
			Origin: bus.Origin{Seq: uint64(i + 1), Time: 1e18 + int64(i), Index: i % 3},
			Source: sources[i%len(sources)], Data: fmt.Appendf(nil, `{"n":"%0*d"}`, i*37%40, i),
		}
		if i%4 == 1 {
			rows[i].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		}
	}
	for i, msg := range n.idle().EventMessages(10, "batch", rows) {
		want := nats.Header{"Nats-Batch-Id": {"batch"}, "Nats-Batch-Sequence": {fmt.Sprint(i + 1)}}
		if i == 0 {
			want["Nats-Expected-Last-Sequence"] = []string{"10"}
		}
		if i == len(rows)-1 {
			want["Nats-Batch-Commit"] = []string{"1"}
		}
		r := rows[i]
		if r == nil {
			require.Equal(t, w.subj.Void(), msg.Subject)
			require.Empty(t, msg.Data)
			require.Equal(t, want, msg.Header)
			continue
		}
		want[bus.HeaderEpoch] = []string{w.streams.Epoch}
		r.Origin.SetHeaders(want)
		r.Source.SetHeaders(want)
		if r.Trace != "" {
			want[bus.HeaderTrace] = []string{r.Trace}
		}
		require.Equal(t, want, msg.Header)
		ev, origin, ok := w.subj.ParseFact(r.Seq, msg.Subject, msg.Header, msg.Data)
		require.True(t, ok, "message %d: %s", i, msg.Data)
		require.Equal(t, r.Origin, origin)
		require.Equal(t, r.Source, bus.SourceOf(msg.Header))
		require.Equal(t, string(r.Data), string(ev.Data))
	}
}
