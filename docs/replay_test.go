package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// session is the one that the page's examples tell of, driven by the messages
// from which they were taken.
type session struct {
	t       *testing.T
	key     bus.Key
	state   projection.State
	seq     uint64
	results map[uint64]projection.Result // by INGEST sequence
	facts   []bus.Event
}

// say applies one message of the class, as number seq of INGEST, stored at ms.
func (s *session) say(seq uint64, ms int64, class bus.Class, body string, headers ...string) projection.Result {
	s.t.Helper()
	h := nats.Header{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	id, err := bus.ParseIdentity(h, class)
	r := s.state.Apply(projection.Message{
		Key: s.key, Class: class, Seq: seq, Time: ms * 1e6, Identity: id, IdentityErr: err, Body: []byte(body),
	}, nil)
	for _, f := range r.Facts {
		s.facts = append(s.facts, bus.Event{
			Seq: uint64(len(s.facts) + 1), Session: s.key.Session, Workspace: s.key.Workspace,
			RecordedAt: f.RecordedAt, StoredAt: ms, Type: f.Type, Data: f.Data,
		})
	}
	s.results[seq] = r
	s.seq = seq
	return r
}

// count returns the headers of the page's publisher.
func count(n int) []string {
	return []string{bus.HeaderPublisher, "w-7f3a", bus.HeaderPublisherSeq, fmt.Sprint(n)}
}

// pageAfter builds a page in format 1 of observations 100 ms apart; it returns the
// place that it ends at.
func pageAfter(at bus.ChainPosition, observations ...string) (string, bus.ChainPosition) {
	b := fmt.Sprintf(`{"after":{"ordinal":%d,"digest":"%s"},"events":[`, at.Ordinal, at.Digest)
	for i, o := range observations {
		e := bus.RelayEvent{Format: bus.FormatChained, Ordinal: at.Ordinal + 1, RecordedAt: int64(at.Ordinal+1) * 100, Observation: []byte(o)}
		d, _ := e.ComputeDigest(at.Digest, nil)
		if i > 0 {
			b += ","
		}
		b += fmt.Sprintf(`{"ordinal":%d,"previous_digest":"%s","digest":"%s","recorded_at_ms":%d,"observation":%s}`,
			e.Ordinal, at.Digest, d, e.RecordedAt, o)
		at = bus.ChainPosition{Ordinal: e.Ordinal, Digest: d}
	}
	return b + "]}", at
}

// The examples of facts, hints, position, outcome and session are what the
// messages that the page shows lead to, byte for byte.
func TestExamples_Replay(t *testing.T) {
	p := open(t)
	example := func(class string) string { return p.example(p.row("## Classes", 0, class)[2]) }
	s := session{t: t, key: bus.Key{Workspace: "acme", Session: "my job v1.2"}, results: map[uint64]projection.Result{}}
	first := p.lines("## Projection pages")[0]
	second, at := pageAfter(placeAfter(t, first),
		`{"type":"agent_initialized","data":{"protocol_version":1,"capabilities":{},"agent_info":null,"runtime":{"id":null,"harness":"codex","platform":"linux","provenance":"managed_installation","components":[],"unavailable_reason":"not found"}}}`,
		`{"type":"elicitation_requested","data":{"request":{"id":"q-1","message":"Which directory?","fields":[]}}}`)
	third, _ := pageAfter(at,
		`{"type":"elicitation_resolved","data":{"elicitation_id":"q-1","action":"accept"}}`,
		`{"type":"command_completed","data":{"command_id":"prompt-1","outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}}}}`)

	s.say(1, 1796058833409, bus.ClassError, example("error"), count(1)...)
	s.say(3, 1796058833500, bus.ClassError, `{"message":"other"}`, count(1)...)
	s.say(4, 1796058833655, bus.ClassActivity, example("activity"), count(2)...)
	s.say(5, 1796058833737, bus.ClassActivity, `{"activity":{"state":"running","details":null}}`, count(3)...)
	s.say(6, 1796058833818, bus.ClassSession, `{"op":"save","state":"running","recorded_at_ms":1}`, count(4)...)
	s.say(7, 1796058833900, bus.ClassSession, example("session"))
	s.say(8, 1796058833990, bus.ClassError, `{"message":5}`, count(6)...)
	require.Equal(t, projection.Applied, s.say(13, 1796058834389, bus.ClassProjection, first).Outcome)
	require.Equal(t, projection.Held, s.say(14, 1796058834470, bus.ClassProjection, third).Outcome)

	outcomes := p.lines("## Outcomes")
	require.Len(t, outcomes, 6)
	for _, line := range outcomes[:3] {
		s.hint(line)
	}
	require.Equal(t, outcomes[3], string(s.state.AppendPosition(nil, s.key, s.seq, "7xg6vwigpoxd6")))
	r := s.results[8]
	require.Equal(t, fmt.Sprintf(`{"outcome":"%s","reason":"%s","detail":"%s","ingest_position":18}`, r.Outcome, r.Reason, r.Detail), outcomes[5])

	require.Equal(t, projection.Applied, s.say(15, 1796058834557, bus.ClassProjection, second).Outcome)
	require.Equal(t, p.lines("## Facts")[0], string(s.facts[0].AppendJSON(nil)))
	shown := map[string]bool{}
	for _, f := range s.facts {
		if !shown[f.Type] {
			require.Equal(t, p.example(p.row("## Facts", 0, f.Type)[1]), string(f.Data))
		}
		shown[f.Type] = true
	}
	require.Len(t, shown, 7, "every type has an example")
	require.Contains(t, p.lines("## Pages")[0], `{"events":[`+string(s.facts[3].AppendJSON(nil))+`],`)

	view := string(s.state.AppendSession(nil, s.key, projection.SessionEvents{Count: int64(len(s.facts)), FirstSeq: 1, LastSeq: uint64(len(s.facts))}))
	require.Equal(t, p.lines("## Sessions and status")[0], view)

	for _, op := range []string{"resync", "forget"} {
		body := p.example(p.row("## Control", 0, op)[2])
		require.Equal(t, projection.Applied, s.say(s.seq+1, 1796058835000, bus.ClassControl, body).Outcome, op)
	}
	require.Equal(t, projection.Dropped, s.say(s.seq+1, 1796058836000, bus.ClassError, example("error")).Outcome)
	prune, err := bus.ParseControl([]byte(p.example(p.row("## Control", 0, "prune")[2])), true)
	require.NoError(t, err)
	require.Equal(t, bus.OpPrune, prune.Op)
	discard, err := bus.ParseControl([]byte(p.example(p.row("## Control", 0, "discard")[2])), true)
	require.NoError(t, err)
	require.Equal(t, []bus.EntryRef{{Seq: 18, Time: 1796058834389000000, Reason: bus.ReasonBody}}, discard.Entries)
}

// hint compares an example of a hint with the outcome of its message.
func (s *session) hint(line string) {
	s.t.Helper()
	var h struct {
		Seq      uint64 `json:"ingest_seq"`
		Outcome  string
		Reason   bus.Reason
		Frontier json.RawMessage
	}
	require.NoError(s.t, json.Unmarshal([]byte(line), &h))
	r, ok := s.results[h.Seq]
	require.True(s.t, ok, line)
	require.Equal(s.t, r.Outcome.String(), h.Outcome)
	require.Equal(s.t, r.Reason, h.Reason)
	if h.Frontier != nil {
		at := s.state.Chain.Position
		require.Equal(s.t, fmt.Sprintf(`{"ordinal":%d,"digest":"%s"}`, at.Ordinal, at.Digest), string(h.Frontier))
	}
}

// placeAfter returns the place that a page ends at.
func placeAfter(t *testing.T, page string) bus.ChainPosition {
	t.Helper()
	p, err := bus.ParsePage([]byte(page))
	require.NoError(t, err)
	last := p.Events[len(p.Events)-1]
	d, ok := bus.ParseDigest(last.Digest)
	require.True(t, ok)
	return bus.ChainPosition{Ordinal: last.Ordinal, Digest: d}
}

// Status and page have the members that the page shows, in this order.
func TestExamples_Members(t *testing.T) {
	p := open(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	defer st.Close()
	a := api.New(api.Options{Reader: st.Reader(), Ends: func(context.Context) (api.Ends, error) { return api.Ends{}, nil }})
	status, err := a.Status(context.Background(), api.Params{})
	require.NoError(t, err)
	require.Equal(t, names(t, string(status)), names(t, p.lines("## Sessions and status")[1]))
	events, err := a.Events(context.Background(), api.Params{}, 0)
	require.NoError(t, err)
	require.Equal(t, names(t, string(events)), names(t, p.lines("## Pages")[0]))
}

// names returns the names of an object's members, with those of the objects in it.
func names(t *testing.T, object string) []string {
	t.Helper()
	var out []string
	ok, err := bus.Members([]byte(object), func(name string, v []byte) error {
		out = append(out, name)
		if bus.IsObject(v) {
			out = append(out, names(t, string(v))...)
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, ok)
	return out
}
