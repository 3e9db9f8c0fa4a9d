package bus_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// header builds headers out of name, value pairs.
func header(pairs ...string) nats.Header {
	h := nats.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
	}
	return h
}

func TestParseIdentity(t *testing.T) {
	long, longest := strings.Repeat("p", bus.MaxPublisher), strings.Repeat("i", bus.MaxEventID)
	for _, tc := range []struct {
		h     nats.Header
		class bus.Class
		want  bus.Identity
	}{
		{nil, bus.ClassError, bus.Identity{}},
		{header("Other", "x", "Nats-Msg-Id", "n"), bus.ClassError, bus.Identity{}},
		{header(bus.HeaderEventID, "e"), bus.ClassSession, bus.Identity{EventID: "e"}},
		{header(bus.HeaderEventID, longest), bus.ClassActivity, bus.Identity{EventID: longest}},
		{header(bus.HeaderEventID, "!~"), bus.ClassError, bus.Identity{EventID: "!~"}},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1"), bus.ClassError, bus.Identity{Publisher: "p", Count: 1}},
		{header(bus.HeaderPublisher, long, bus.HeaderPublisherSeq, "9223372036854775807"), bus.ClassError, bus.Identity{Publisher: long, Count: math.MaxInt64}},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "7", bus.HeaderEventID, "e"), bus.ClassActivity, bus.Identity{Publisher: "p", Count: 7, EventID: "e"}},
		// A page has its chain; a control message has no count. What they carry is not read.
		{header(bus.HeaderPublisher, "", bus.HeaderPublisherSeq, "x", bus.HeaderEventID, "a b"), bus.ClassProjection, bus.Identity{}},
		{header(bus.HeaderPublisher, "", bus.HeaderPublisherSeq, "x", bus.HeaderEventID, "e"), bus.ClassControl, bus.Identity{EventID: "e"}},
	} {
		got, err := bus.ParseIdentity(tc.h, tc.class)
		require.NoError(t, err, tc.h)
		require.Equal(t, tc.want, got, tc.h)
	}
}

func TestParseIdentity_Malformed(t *testing.T) {
	for _, tc := range []struct {
		h     nats.Header
		field string
	}{
		{header(bus.HeaderEventID, ""), bus.HeaderEventID},
		{header(bus.HeaderEventID, "a b"), bus.HeaderEventID},
		{header(bus.HeaderEventID, "é"), bus.HeaderEventID},
		{header(bus.HeaderEventID, "a\tb"), bus.HeaderEventID},
		{header(bus.HeaderEventID, "a", bus.HeaderEventID, "a"), bus.HeaderEventID},
		{header(bus.HeaderEventID, strings.Repeat("i", bus.MaxEventID+1)), bus.HeaderEventID},
		// NATS keeps the case of names: another spelling would be read by nobody.
		{header("skald-event-id", "e"), bus.HeaderEventID},
		{header("Skald-Event-ID", "e"), bus.HeaderEventID},
		{header(bus.HeaderPublisher, "p", "skald-publisher-seq", "1"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisherSeq, "1"), bus.HeaderPublisher},
		{header(bus.HeaderPublisher, "", bus.HeaderPublisherSeq, "1"), bus.HeaderPublisher},
		{header(bus.HeaderPublisher, strings.Repeat("p", bus.MaxPublisher+1), bus.HeaderPublisherSeq, "1"), bus.HeaderPublisher},
		{header(bus.HeaderPublisher, "p p", bus.HeaderPublisherSeq, "1"), bus.HeaderPublisher},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, ""), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "0"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "-1"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "+1"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1.0"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "0x1"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "9223372036854775808"), bus.HeaderPublisherSeq},
		{header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1", bus.HeaderPublisherSeq, "2"), bus.HeaderPublisherSeq},
	} {
		_, err := bus.ParseIdentity(tc.h, bus.ClassError)
		requireInvalid(t, err, bus.ReasonHeader, tc.field, tc.h)
	}
	// The event id that is well-formed is still told, for the reject.
	id, err := bus.ParseIdentity(header(bus.HeaderEventID, "e", bus.HeaderPublisher, "p"), bus.ClassError)
	require.Error(t, err)
	require.Equal(t, bus.Identity{EventID: "e"}, id)
	// A control message's id is read, so a malformed one is refused.
	_, err = bus.ParseIdentity(header(bus.HeaderEventID, "a b"), bus.ClassControl)
	requireInvalid(t, err, bus.ReasonHeader, bus.HeaderEventID)
}

func TestTraceparent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, h := range []nats.Header{header("traceparent", good), header("Traceparent", good), header("TRACEPARENT", good)} {
		require.Equal(t, good, bus.Traceparent(h))
	}
	require.Empty(t, bus.Traceparent(nil))
	for _, bad := range []string{
		"", good[1:], good + "0", strings.ToUpper(good), strings.ReplaceAll(good, "-", "_"), strings.Replace(good, "4", "g", 1), "x" + good[1:],
	} {
		require.Empty(t, bus.Traceparent(header("traceparent", bad)), bad)
	}
	require.Empty(t, bus.Traceparent(header("traceparent", good, "traceparent", good)))
}

func TestOrigin(t *testing.T) {
	for _, o := range []bus.Origin{{Seq: 1}, {Seq: math.MaxInt64, Time: math.MaxInt64, Index: math.MaxInt32}, {Seq: 7, Time: 1789200000000000003, Index: 2}} {
		h := nats.Header{}
		o.SetHeaders(h)
		got, ok := bus.ParseOrigin(h)
		require.True(t, ok)
		require.Equal(t, o, got)
	}
	for _, bad := range []string{"", "x", "-1", "1.0", "+1", " 1", "9223372036854775808"} {
		for _, name := range []string{bus.HeaderIngestSeq, bus.HeaderIngestTime, bus.HeaderIndex} {
			h := nats.Header{}
			bus.Origin{Seq: 1, Time: 1}.SetHeaders(h)
			h[name] = []string{bad}
			_, ok := bus.ParseOrigin(h)
			require.False(t, ok, "%s: %q", name, bad)
			delete(h, name)
			_, ok = bus.ParseOrigin(h)
			require.False(t, ok, "without %s", name)
		}
	}
	_, ok := bus.ParseOrigin(header(bus.HeaderIngestSeq, "0", bus.HeaderIngestTime, "1", bus.HeaderIndex, "0"))
	require.False(t, ok)
	_, ok = bus.ParseOrigin(header(bus.HeaderIngestSeq, "1", bus.HeaderIngestTime, "1", bus.HeaderIndex, "2147483648"))
	require.False(t, ok)
	_, ok = bus.ParseOrigin(nil)
	require.False(t, ok)
}

// A source is the same after the headers of EVENTS and after the table's form.
func TestSource(t *testing.T) {
	for text, s := range map[string]bus.Source{
		"":                       {},
		"p7:worker-1":            {Publisher: "worker-1", Count: 7},
		"p9223372036854775807::": {Publisher: ":", Count: math.MaxInt64},
		"ie:1":                   {EventID: "e:1"},
		"ip1:x":                  {EventID: "p1:x"},
		"c8:" + someHex:          {Chain: bus.ChainPosition{Ordinal: 8, Digest: digest(t, someHex)}},
	} {
		require.Equal(t, text, s.String())
		got, ok := bus.ParseSource(text)
		require.True(t, ok, text)
		require.Equal(t, s, got)
		h := nats.Header{}
		s.SetHeaders(h)
		require.Equal(t, s, bus.SourceOf(h))
		require.Equal(t, text == "", len(h) == 0)
	}
	for _, bad := range []string{
		"x", "i", "p", "p1", "p1:", "p0:x", "p-1:x", "px:x", ":x", "7:x", "c", "c8", "c8:", "c8:" + someHex[1:], "c0:" + someHex, "c8:" + strings.ToUpper(someHex), "P1:x",
		"p9223372036854775808:x",
	} {
		s, ok := bus.ParseSource(bad)
		require.False(t, ok, bad)
		require.Zero(t, s, bad)
	}
}

// One source a message: the chain before the count, the count before the id, and
// what is malformed counts as absent.
func TestSourceOf_One(t *testing.T) {
	chain := header(bus.HeaderChain, "8:"+someHex, bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1", bus.HeaderEventID, "e")
	require.Equal(t, bus.Source{Chain: bus.ChainPosition{Ordinal: 8, Digest: digest(t, someHex)}}, bus.SourceOf(chain))
	chain[bus.HeaderChain] = []string{"0:" + someHex}
	require.Equal(t, bus.Source{Publisher: "p", Count: 1}, bus.SourceOf(chain))
	require.Zero(t, bus.SourceOf(header(bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "0")))
	require.Zero(t, bus.SourceOf(nil))
}

func digest(t *testing.T, hex string) bus.Digest {
	t.Helper()
	d, ok := bus.ParseDigest([]byte(hex))
	require.True(t, ok)
	return d
}

func TestTracestate(t *testing.T) {
	for _, h := range []nats.Header{header("tracestate", "a=1"), header("TraceState", "a=1")} {
		require.Equal(t, "a=1", bus.Tracestate(h))
	}
	longest := strings.Repeat("x", bus.MaxTraceState)
	require.Equal(t, longest, bus.Tracestate(header("tracestate", longest)))
	require.Empty(t, bus.Tracestate(header("tracestate", longest+"x")))
	require.Empty(t, bus.Tracestate(nats.Header{"tracestate": {"a=1", "b=2"}}))
	require.Empty(t, bus.Tracestate(nil))
}
