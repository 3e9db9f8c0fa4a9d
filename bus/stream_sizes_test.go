package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Whatever fits into INGEST fits into EVENTS with the fact's own members and the
// longest ids; what is larger is refused at once.
func TestOpen_Sizes(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	requireSizes(t, js)
}

// JetStream stores no more than 32 MiB for a message, whatever the payload limit: behind
// a limit of 64 MiB INGEST took a message of 32 MiB, EVENTS refused its fact, and the
// materializer stopped for good. A bus that was made like that is refused, with the number.
func TestOpen_SizesOfRecords(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.ServerWith(t, natsd.Options{MaxPayload: 64 << 20, SyncInterval: time.Minute}))
	st := requireSizes(t, js)
	cfg := st.Ingest.CachedInfo().Config
	require.EqualValues(t, bus.MaxRecord-bus.PayloadReserve, cfg.MaxMsgSize)

	cfg.MaxMsgSize++
	_, err := js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	_, err = skaldtest.Subjects(t).Open(t.Context(), js, options(js), st.Epoch)
	require.ErrorIs(t, err, bus.ErrStreamSettings)
	require.ErrorContains(t, err, "must be from 1 to 33538048")
}

// requireSizes fails the test unless EVENTS takes the fact of the largest message that
// INGEST takes.
func requireSizes(t *testing.T, js jetstream.JetStream) bus.Streams {
	t.Helper()
	st := skaldtest.Streams(t, js)
	s := skaldtest.Subjects(t)
	most := int(st.Ingest.CachedInfo().Config.MaxMsgSize)
	longest := make([]byte, bus.MaxID)
	for i := range longest {
		longest[i] = '"' // a byte that grows in the subject and in JSON
	}
	k := bus.Key{Workspace: string(longest), Session: string(longest)}
	require.NoError(t, k.Check())
	body := append([]byte(`{"x":"`), make([]byte, most)...)
	for i := 6; i < len(body); i++ {
		body[i] = 'x'
	}
	copy(body[most-2:], `"}`)
	_, err := js.Publish(t.Context(), s.Ingest(k, bus.ClassProjection), body[:most])
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), s.Ingest(k, bus.ClassProjection), body[:most+1])
	require.Error(t, err)

	e := bus.Event{Seq: bus.MaxSeq, Session: k.Session, Workspace: k.Workspace, RecordedAt: -1 << 63, StoredAt: -1 << 63, Type: bus.TypeActivityChanged, Data: body[:most]}
	m := &nats.Msg{Subject: s.Event(k, e.Type), Data: e.AppendJSON(nil), Header: nats.Header{}}
	bus.Origin{Seq: bus.MaxSeq, Time: 1<<63 - 1, Index: 1<<31 - 1}.SetHeaders(m.Header)
	bus.Source{Chain: bus.ChainPosition{Ordinal: 1<<63 - 1, Digest: bus.Digest{1}}}.SetHeaders(m.Header)
	m.Header.Set(bus.HeaderEpoch, st.Epoch)
	m.Header.Set(bus.HeaderTrace, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	_, err = js.PublishMsg(t.Context(), m)
	require.NoError(t, err)
	return st
}
