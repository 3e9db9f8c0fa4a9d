package edge_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/edge"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// start runs an edge on a server and returns a client beside it.
func start(t *testing.T) (client *nats.Conn, stop func()) {
	server := skaldtest.Server(t)
	nc, js := skaldtest.Connect(t, server)
	skaldtest.Streams(t, js)
	own, err := server.InProcess()
	require.NoError(t, err)
	t.Cleanup(own.Close)
	ready := make(chan struct{})
	e, err := edge.New(edge.Options{Conn: own, Subjects: skaldtest.Subjects(t), Ready: func() { close(ready) }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var ended error
	wg.Go(func() { ended = e.Run(ctx) })
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
			require.NoError(t, ended)
			require.ErrorIs(t, e.Run(ctx), edge.ErrRunning)
		})
	}
	t.Cleanup(stop)
	<-ready
	return nc, stop
}

// What is stored has Skald's headers and no other, spelled as they were; the answer is
// INGEST's.
func TestEdge_Headers(t *testing.T) {
	t.Parallel()
	nc, _ := start(t)
	m, err := nc.RequestMsg(&nats.Msg{Subject: "skald.edge.w.s.error", Data: []byte("x"), Header: nats.Header{
		"Nats-Expected-Last-Msg-Id": {"no"}, "Nats-Msg-Id": {"a"}, "X": {"y"},
		"Skald-Publisher": {"p"}, "Skald-Publisher-Seq": {"1"}, "skald-event-id": {"e"}, "TraceParent": {"t"}, "tracestate": {"a=1"},
	}}, skaldtest.Timeout)
	require.NoError(t, err)
	require.JSONEq(t, `{"stream":"SKALD_INGEST","seq":1}`, string(m.Data))
	js := jetStream(t, nc)
	in, err := js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	stored, err := in.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "skald.in.w.s.error", stored.Subject)
	require.Equal(t, nats.Header{"Skald-Publisher": {"p"}, "Skald-Publisher-Seq": {"1"}, "skald-event-id": {"e"}, "TraceParent": {"t"}, "tracestate": {"a=1"}}, stored.Header)
}

// INGEST's refusals reach the sender as INGEST gives them.
func TestEdge_Refusals(t *testing.T) {
	t.Parallel()
	nc, _ := start(t)
	m, err := nc.Request("skald.edge.w.s.error", []byte(strings.Repeat("x", int(nc.MaxPayload())-100)), skaldtest.Timeout)
	require.NoError(t, err)
	require.Contains(t, string(m.Data), `"err_code":10054`)
	require.NoError(t, jetStream(t, nc).DeleteStream(t.Context(), "SKALD_INGEST"))
	m, err = nc.Request("skald.edge.w.s.error", []byte("x"), skaldtest.Timeout)
	require.NoError(t, err)
	require.Contains(t, string(m.Data), `"err_code":10008`)
}

// An edge that is stopped answers what it has taken on, and takes no more.
func TestEdge_Stop(t *testing.T) {
	t.Parallel()
	nc, stop := start(t)
	inbox := nc.NewRespInbox()
	answers, err := nc.SubscribeSync(inbox)
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, nc.PublishRequest("skald.edge.w.s.activity", inbox, []byte(`{}`)))
	}
	_, err = answers.NextMsg(skaldtest.Timeout)
	require.NoError(t, err)
	stop()
	require.NoError(t, nc.Flush())
	in, err := jetStream(t, nc).Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	pending, _, err := answers.Pending()
	require.NoError(t, err)
	require.EqualValues(t, in.CachedInfo().State.Msgs, pending+1, "each stored message was acknowledged")
	_, err = nc.Request("skald.edge.w.s.error", []byte("x"), skaldtest.Timeout)
	require.ErrorIs(t, err, nats.ErrNoResponders)
}

func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}
