package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// session is a state under test with the INGEST numbers that its messages get.
type session struct {
	t     testing.TB
	state *projection.State
	seq   uint64
	ids   map[string]projection.Hash
}

func newSession(t testing.TB) *session {
	return &session{t: t, state: &projection.State{}, ids: map[string]projection.Hash{}}
}

// ingestTime is the stored time, ns, of the message with the given sequence.
func ingestTime(seq uint64) int64 { return 1_700_000_000_000_000_000 + int64(seq)*1_000_000 }

// apply applies one message; the event ids that were to be remembered are known.
func (s *session) apply(class bus.Class, id bus.Identity, body string) projection.Result {
	s.seq++
	var known *projection.KnownID
	if h, ok := s.ids[id.EventID]; ok {
		known = &projection.KnownID{Hash: h}
	}
	r := s.state.Apply(projection.Message{
		Key: bus.Key{Workspace: "w", Session: "s"}, Class: class, Seq: s.seq, Time: ingestTime(s.seq),
		Identity: id, Body: []byte(body),
	}, known)
	if r.Remember {
		s.ids[id.EventID] = r.Hash
	}
	return r
}

// mustApply applies a message that has to be applied.
func (s *session) mustApply(class bus.Class, body string) projection.Result {
	s.t.Helper()
	r := s.apply(class, bus.Identity{}, body)
	require.Equal(s.t, projection.Applied, r.Outcome, "%s: %s", r.Reason, r.Detail)
	return r
}

// counted is the identity of a publisher's count.
func counted(publisher string, n uint64) bus.Identity {
	return bus.Identity{Publisher: publisher, Count: n}
}

// journal is a worker's journal: relay events with their digests. It begins at
// genesis and writes format 1 unless told otherwise.
type journal struct {
	at     bus.ChainPosition
	format int
	events []relay
}

// relay is one event of a journal, and the JSON that a page holds of it.
type relay struct {
	bus.ChainPosition
	previous bus.Digest
	json     string
}

// recordedAt is the recorded time, ms, of a journal's event.
func recordedAt(ordinal uint64) int64 { return int64(ordinal) * 10 }

func (j *journal) add(observation string) relay {
	return j.addAt(observation, recordedAt(j.at.Ordinal+1))
}

func (j *journal) addAt(observation string, recordedAt int64) relay {
	format := j.format
	if format == 0 {
		format = bus.FormatChained
	}
	e := bus.RelayEvent{Format: format, Ordinal: j.at.Ordinal + 1, RecordedAt: recordedAt, Observation: []byte(observation)}
	d, _ := e.ComputeDigest(j.at.Digest, nil)
	r := relay{ChainPosition: bus.ChainPosition{Ordinal: e.Ordinal, Digest: d}, previous: j.at.Digest}
	previous := fmt.Sprintf(`"previous_digest":"%s",`, j.at.Digest)
	if format == bus.FormatStandalone {
		previous = `"format":2,`
	}
	r.json = fmt.Sprintf(`{%s"ordinal":%d,"digest":"%s","recorded_at_ms":%d,"observation":%s}`, previous, e.Ordinal, d, recordedAt, observation)
	j.at = r.ChainPosition
	j.events = append(j.events, r)
	return r
}

// page returns a page of the events with ordinals from first to last.
func (j *journal) page(first, last uint64) string {
	var events []string
	for _, e := range j.events {
		if first <= e.Ordinal && e.Ordinal <= last {
			events = append(events, e.json)
		}
	}
	return `{"events":[` + strings.Join(events, ",") + `]}`
}

// pageAfter returns the same page with the position that it claims to follow.
func (j *journal) pageAfter(first, last uint64) string {
	p := j.page(first, last)
	for _, e := range j.events {
		if e.Ordinal == first {
			return fmt.Sprintf(`{"after":{"ordinal":%d,"digest":"%s"},%s`, first-1, e.previous, p[1:])
		}
	}
	return p
}

// notices fills a journal with n observations that derive nothing.
func notices(n int) *journal {
	j := &journal{}
	for i := range n {
		j.add(fmt.Sprintf(`{"type":"notice","data":{"message":"m%d"}}`, i))
	}
	return j
}

// failing fills a journal with n observations that give one error fact each,
// whose message is the ordinal.
func failing(n int) *journal {
	j := &journal{}
	for i := range n {
		j.add(fmt.Sprintf(`{"type":"command_rejected","data":{"command_id":"c","command":"x","message":"%d"}}`, i+1))
	}
	return j
}

// facts renders facts as "type data", which is what tests compare.
func facts(r projection.Result) []string {
	out := []string{}
	for _, f := range r.Facts {
		out = append(out, f.Type+" "+string(f.Data))
	}
	return out
}
