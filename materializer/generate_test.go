package materializer_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// generator draws messages as workers, operators and strangers might send them:
// in order, with gaps, late, twice, contradicting, malformed.
type generator struct {
	r        *rand.Rand
	subj     bus.Subjects
	sessions []*worker
	made     int
	pruneTo  uint64 // the highest number that a prune may name
}

// worker draws the messages of one session.
type worker struct {
	*generator
	key     bus.Key
	journal []relayEvent
	sent    uint64            // ordinals up to here were sent in pages
	counts  map[string]uint64 // by publisher, the last count
	skipped []bus.Identity
	past    []*nats.Msg // what may be repeated
	ids     int
	gone    bool // it was forgotten
}

func newGenerator(r *rand.Rand, subj bus.Subjects) *generator {
	g := &generator{r: r, subj: subj}
	for range 6 {
		g.sessions = append(g.sessions, g.worker())
	}
	return g
}

// worker makes a new session; every id is used in two workspaces.
func (g *generator) worker() *worker {
	k := bus.Key{Workspace: []string{"w", "ws 2"}[g.made%2], Session: fmt.Sprintf("s.%d", g.made/2)}
	g.made++
	return &worker{generator: g, key: k, counts: map[string]uint64{}}
}

func (g *generator) one(in ...string) string { return in[g.r.IntN(len(in))] }
func (g *generator) odds(n int) bool         { return g.r.IntN(n) == 0 }

// next draws a message.
func (g *generator) next() *nats.Msg {
	if g.odds(60) {
		return &nats.Msg{Subject: "skald.in." + g.one("=.=.error", "a=zz.s.error", "w.=41.error", "w.s=.session", "=.s.control"), Data: []byte(`{"message":"m"}`)}
	}
	if g.odds(80) {
		body := fmt.Sprintf(`{"op":"prune","before_seq":%d}`, g.r.Uint64N(g.pruneTo+1))
		return &nats.Msg{Subject: g.subj.IngestAdmin(), Data: []byte(g.one(body, body, `{"op":"forget"}`))}
	}
	i := g.r.IntN(len(g.sessions))
	s := g.sessions[i]
	if s.gone && g.odds(6) {
		s = g.worker()
		g.sessions[i] = s
	}
	m := s.message()
	if len(s.past) < 40 {
		s.past = append(s.past, m)
	} else {
		s.past[g.r.IntN(40)] = m
	}
	return m
}

func (s *worker) message() *nats.Msg {
	switch n := s.r.IntN(100); {
	case n < 12 && len(s.past) > 0: // sent again, as it was or in other words
		m := *s.past[s.r.IntN(len(s.past))]
		if s.odds(4) {
			m.Data = []byte(strings.Replace(string(m.Data), `{"`, "{ \"", 1))
		}
		if s.odds(6) {
			m.Data = []byte(fmt.Sprintf(`{"message":"another %d"}`, s.r.IntN(3)))
		}
		return &m
	case n < 50:
		return s.msg(bus.ClassProjection, s.page(), nil)
	case n < 53:
		return s.control()
	case n < 55:
		return s.msg(bus.Class(s.one("note", "errors", "x=")), `{"message":"m"}`, s.identity())
	case n < 58:
		return s.msg(bus.Class(s.one("session", "activity", "error", "projection")), s.one(``, `{`, `[]`, `{"message":1}`, `{"op":"save","title":1}`,
			`{"activity":"x"}`, `{"op":"load"}`, `{"events":[]}`, `{"events":7}`, `{"recorded_at_ms":1.5,"message":"m","activity":{},"op":"save"}`), s.identity())
	case n < 70:
		var b strings.Builder
		b.WriteString(`{"op":"save"`)
		for _, name := range []string{"title", "state", "last_error"} {
			if s.odds(2) {
				fmt.Fprintf(&b, `, "%s":%s`, name, s.one(`null`, `"a <&> 1"`, `"b\n"`, `"é"`))
			}
		}
		return s.msg(bus.ClassSession, b.String()+s.recorded()+`}`, s.identity())
	case n < 82:
		return s.msg(bus.ClassActivity, fmt.Sprintf(`{"activity":{"state":%s, "n":%s}%s}`, s.one(`"idle"`, `"busy"`), s.one("1", "1.0", "1e0"), s.recorded()), s.identity())
	}
	return s.msg(bus.ClassError, fmt.Sprintf(`{"message":"e %d"%s%s}`, s.r.IntN(1000), s.one(``, `,"command_id":null`, `,"command_id":"c\u0041"`), s.recorded()), s.identity())
}

func (s *worker) msg(class bus.Class, body string, h nats.Header) *nats.Msg {
	if h == nil {
		h = nats.Header{}
	}
	if s.odds(5) {
		h[bus.HeaderTrace] = []string{s.one("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "malformed")}
	}
	return &nats.Msg{Subject: s.subj.Ingest(s.key, class), Header: h, Data: []byte(body)}
}

func (s *worker) recorded() string {
	if s.odds(3) {
		return ""
	}
	return fmt.Sprintf(`,"recorded_at_ms":%d`, s.r.IntN(1_000_000))
}

// identity draws what a message is deduplicated by.
func (s *worker) identity() nats.Header {
	h := nats.Header{}
	counted := func(id bus.Identity) nats.Header {
		h[bus.HeaderPublisher] = []string{id.Publisher}
		h[bus.HeaderPublisherSeq] = []string{strconv.FormatUint(id.Count, 10)}
		return h
	}
	p := s.one("p", "q")
	switch n := s.r.IntN(100); {
	case n < 45:
		s.counts[p]++
		return counted(bus.Identity{Publisher: p, Count: s.counts[p]})
	case n < 53: // leaves a gap
		for range 1 + s.r.IntN(3) {
			s.counts[p]++
			s.skipped = append(s.skipped, bus.Identity{Publisher: p, Count: s.counts[p]})
		}
		s.counts[p]++
		return counted(bus.Identity{Publisher: p, Count: s.counts[p]})
	case n < 62 && len(s.skipped) > 0: // comes late
		i := s.r.IntN(len(s.skipped))
		id := s.skipped[i]
		s.skipped = append(s.skipped[:i], s.skipped[i+1:]...)
		return counted(id)
	case n < 66 && s.counts[p] > 0: // a known count, whatever the body
		return counted(bus.Identity{Publisher: p, Count: s.counts[p] - s.r.Uint64N(min(s.counts[p], 80))})
	case n < 80:
		s.ids++
		h[bus.HeaderEventID] = []string{fmt.Sprintf("id-%d", s.ids)}
	case n < 86:
		h[bus.HeaderEventID] = []string{fmt.Sprintf("id-%d", 1+s.r.IntN(s.ids+1))}
	case n < 90:
		h[bus.HeaderPublisher] = []string{s.one("p", "with space", "")}
	}
	return h
}

func (s *worker) control() *nats.Msg {
	h := nats.Header{}
	if s.odds(3) {
		h[bus.HeaderEventID] = []string{s.one("op-1", "op-2", "op 3")}
	}
	switch {
	case s.odds(4):
		s.gone = true
		return s.msg(bus.ClassControl, `{"op":"forget"}`, h)
	case s.odds(2):
		return s.msg(bus.ClassControl, s.one(`{"op":"resync"}`, `{"op":"prune","before_seq":1}`, `{"op":"resync","ordinal":0,"digest":"`+genesis+`"}`), h)
	}
	// The journal goes on from a place a little ahead of what was sent, or behind it.
	s.grow(1 + s.r.IntN(4))
	at := s.journal[max(0, len(s.journal)-1-s.r.IntN(8))]
	return s.msg(bus.ClassControl, fmt.Sprintf(`{"op":"resync","ordinal":%d,"digest":"%s"}`, at.Ordinal, *at.Digest), h)
}

// grow adds n relay events to the journal.
func (s *worker) grow(n int) {
	for range n {
		e := relayEvent{Format: 1 + s.r.IntN(8)/7, Ordinal: uint64(len(s.journal) + 1), Observation: []byte(s.observation())}
		at := int64(s.r.IntN(1_000_000))
		e.RecordedAt = &at
		if s.odds(4) {
			e.CommandID = []byte(s.one(`"env"`, `null`))
		}
		s.seal(&e, s.previous(e.Ordinal))
		s.journal = append(s.journal, e)
	}
}

// previous is the digest before an ordinal.
func (s *worker) previous(ordinal uint64) string {
	if ordinal < 2 {
		return genesis
	}
	return *s.journal[ordinal-2].Digest
}

func (*worker) seal(e *relayEvent, previous string) {
	if e.Format != 2 {
		e.Previous = previous
	}
	d := e.sealed(previous)
	e.Digest = &d
}

// page draws a page: mostly the next one, else one that overlaps, lies ahead, is
// old, forks off or is malformed.
func (s *worker) page() string {
	n := 1 + s.r.IntN(6)
	if s.odds(20) {
		n = 100 + s.r.IntN(29)
	}
	first := s.sent + 1
	switch s.r.IntN(12) {
	case 0: // overlaps what was sent
		first -= s.r.Uint64N(min(s.sent, 9) + 1)
	case 1: // ahead of what was sent, which comes later
		first += 1 + s.r.Uint64N(5)
	case 2: // old
		first = 1 + s.r.Uint64N(s.sent+1)
	}
	last := first + uint64(n) - 1
	if grow := int(last) - len(s.journal); grow > 0 {
		s.grow(grow)
	}
	if first <= s.sent+1 {
		s.sent = max(s.sent, last)
	}
	events := append([]relayEvent(nil), s.journal[first-1:last]...)
	after := ""
	if s.odds(2) {
		after = fmt.Sprintf(`"after":{"ordinal":%d,"digest":"%s"},`, first-1, s.previous(first))
	}
	i := s.r.IntN(n)
	switch s.r.IntN(24) {
	case 0: // a fork: another event, and the rest of the page behind it
		events[i].Observation = []byte(`{"type":"notice","data":{"message":"fork"}}`)
		for ; i < n; i++ {
			previous := s.previous(first)
			if i > 0 {
				previous = *events[i-1].Digest
			}
			s.seal(&events[i], previous)
		}
	case 1: // a broken digest
		d := strings.Repeat("0a", 32)
		events[i].Digest = &d
	case 2:
		after = fmt.Sprintf(`"after":{"ordinal":%d,"digest":"%s"},`, first, strings.Repeat("ab", 32))
	case 3:
		events = append(events[:i], events[min(i+1, n):]...)
	case 4:
		events[i].Digest = nil
	}
	var b strings.Builder
	b.WriteString(`{` + after + `"events":[`)
	for i := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(events[i].text())
	}
	return b.String() + `]}`
}

// text is the event as a page holds it.
func (e *relayEvent) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"ordinal":%d,`, e.Ordinal)
	if e.Format == 2 {
		b.WriteString(`"format":2,`)
	} else {
		fmt.Fprintf(&b, `"previous_digest":"%s",`, e.Previous)
	}
	if e.Digest != nil {
		fmt.Fprintf(&b, `"digest":"%s",`, *e.Digest)
	}
	if len(e.CommandID) > 0 {
		fmt.Fprintf(&b, `"command_id":%s,`, e.CommandID)
	}
	fmt.Fprintf(&b, `"recorded_at_ms":%d,"observation":%s}`, *e.RecordedAt, e.Observation)
	return b.String()
}

// observation draws what happened in a session; few ids, so that things meet.
func (s *worker) observation() string {
	id := s.one("a", "b", "c")
	switch s.r.IntN(16) {
	case 0, 1:
		return fmt.Sprintf(`{"type":"command_queued","data":{"command_id":"%s","command":{"type":"%s","data":{"prompt":[{"type":"text","text":" do  %s "}]}},"created_at_ms":%d}}`,
			id, s.one("prompt", "prompt", "prompt", "set_config", "close"), id, s.r.IntN(100))
	case 2, 3:
		return fmt.Sprintf(`{"type":"command_started","data":{"command_id":"%s","started_at_ms":%d}}`, id, s.r.IntN(100))
	case 4, 5:
		return fmt.Sprintf(`{"type":"command_completed","data":{"command_id":"%s","outcome":{"type":"prompt","data":{"stop_reason":"%s"}}}}`,
			id, s.one("end_turn", "awaiting_input", "Cancelled", "ModelCapacity", "refusal"))
	case 6:
		return fmt.Sprintf(`{"type":"command_completed","data":{"command_id":"x","outcome":{"type":"steered","data":{"queued_command_id":"%s"}}}}`, id)
	case 7:
		return fmt.Sprintf(`{"type":"command_completed","data":{"command_id":"x","outcome":{"type":"queue_changed","data":{"removed_command_ids":["%s"]}}}}`, id)
	case 8:
		return fmt.Sprintf(`{"type":"%s","data":{"command_id":"%s","command":"%s","message":"m <%d>"}}`,
			s.one("command_rejected", "command_interrupted"), id, s.one("prompt", "close", "set_config"), s.r.IntN(9))
	case 9, 10:
		return fmt.Sprintf(`{"type":"elicitation_requested","data":{"request":{"id":"%s","message":"%d","fields":[]}}}`, id, s.r.IntN(2))
	case 11:
		return fmt.Sprintf(`{"type":"elicitation_resolved","data":{"elicitation_id":"%s","action":"accept"}}`, id)
	case 12:
		return s.one(`{"type":"elicitations_cleared"}`, `{"type":"session_opened","data":{"native_session_id":"n","resumed":false}}`, `{"type":"session_restarted"}`)
	case 13:
		return fmt.Sprintf(`{"type":"agent_initialized","data":{"runtime":{"id":null,"n":%d.0}}}`, s.r.IntN(9))
	case 14:
		return s.one(`{"type":"elicitation_requested","data":{"request":{"message":"no id"}}}`, `{"type":"harness_turn_settled","data":{"prompt_in_flight":false}}`)
	}
	return s.one(`{"type":"notice","data":{"message":"n"}}`, `{"type":"of_the_future","data":{"a":[1]}}`)
}
