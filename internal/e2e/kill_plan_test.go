//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// message is one message of a session's plan, with what must come of it and what
// its publisher saw of it.
type message struct {
	number int // its place in the plan, from 1; its body is the only one of its kind in the session
	class  bus.Class
	header nats.Header
	body   []byte
	facts  []fact
	held   bool // it lies ahead of the chain: the facts are those of the message that fills the gap
	resync bool // it leaves an entry among the rejects

	tries int    // how often it was sent
	last  error  // why it was sent once more
	ack   uint64 // the INGEST sequence that was acknowledged, 0 if none
}

// identity shows what the message is deduplicated by.
func (m *message) identity() string {
	switch h := m.header; {
	case m.class == bus.ClassProjection:
		return "chain"
	case h.Get(bus.HeaderPublisher) != "":
		return h.Get(bus.HeaderPublisher) + "/" + h.Get(bus.HeaderPublisherSeq)
	default:
		return h.Get(bus.HeaderEventID)
	}
}

// session makes up the messages of one session, one after the other. It belongs
// to the goroutine that publishes them.
type session struct {
	key     bus.Key
	recipe  recipe
	rng     *rand.Rand
	journal *journal
	plan    []*message // all that were made
	queue   []*message // made but not taken
	conn    *nats.Conn
	nerves  *rand.Rand // of its tries, whose number differs from run to run

	counts   uint64 // the last count that was used
	activity string // the last activity
	record   map[string]string
	resyncAt int // the number at which an operator sets the chain, 0 for never
}

// recipe says how often a session has which messages, and by what they are
// deduplicated.
type recipe struct {
	errors, activities, records, pages int // weights
	counted                            int // of ten messages without a chain, how many have a count
	format                             func(turn int) int
	swaps                              bool // pages arrive before their predecessors
	resync                             bool
}

func chained(int) int    { return bus.FormatChained }
func standalone(int) int { return bus.FormatStandalone }
func mixed(turn int) int { return bus.FormatChained + turn%2 }

// newSessions returns six sessions in two workspaces, which share a session id.
// The last one is to be forgotten.
func newSessions(seed uint64) []*session {
	all := []*session{
		{key: bus.Key{Workspace: "north", Session: "alpha"}, recipe: recipe{errors: 3, activities: 2, counted: 10}},
		{key: bus.Key{Workspace: "north", Session: "shared"}, recipe: recipe{errors: 2, activities: 2, records: 1}},
		{key: bus.Key{Workspace: "south", Session: "shared"}, recipe: recipe{pages: 1, format: chained}},
		{key: bus.Key{Workspace: "south", Session: "β.* >"}, recipe: recipe{pages: 3, records: 1, counted: 10, format: standalone, swaps: true}},
		{key: bus.Key{Workspace: "south", Session: "mixed"}, recipe: recipe{errors: 1, activities: 1, records: 1, pages: 2, counted: 5, format: mixed, swaps: true, resync: true}},
		{key: bus.Key{Workspace: "north", Session: "gone"}, recipe: recipe{errors: 2, pages: 1, counted: 5, format: chained}},
	}
	for i, s := range all {
		s.rng, s.nerves = rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed, 100+uint64(i)))
		s.record = map[string]string{}
		s.journal = &journal{rng: s.rng, format: s.recipe.format}
		if s.recipe.resync {
			s.resyncAt = 20 + s.rng.IntN(100)
		}
	}
	return all
}

// next returns the next message of the plan.
func (s *session) next() *message {
	for len(s.queue) == 0 {
		s.make()
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	return m
}

// make puts the next message, or the next two or three, into the queue.
func (s *session) make() {
	if s.resyncAt > 0 && len(s.plan) >= s.resyncAt {
		s.resyncAt = 0
		s.makeResync()
		return
	}
	r := &s.recipe
	n := s.rng.IntN(r.errors + r.activities + r.records + r.pages)
	switch {
	case n < r.errors:
		s.makeError()
	case n < r.errors+r.activities:
		s.makeActivity()
	case n < r.errors+r.activities+r.records:
		s.makeRecord()
	default:
		s.makePages()
	}
}

// add puts a message into plan and queue.
func (s *session) add(class bus.Class, body []byte, facts ...fact) *message {
	m := &message{number: len(s.plan) + 1, class: class, header: nats.Header{}, body: body, facts: facts}
	s.plan, s.queue = append(s.plan, m), append(s.queue, m)
	return m
}

// identify gives the message a count or an event id, and its facts that source.
func (s *session) identify(m *message) {
	var from bus.Source
	if s.rng.IntN(10) < s.recipe.counted {
		s.counts++
		from = bus.Source{Publisher: "worker-of-" + bus.Escape(s.key.Session), Count: s.counts}
	} else {
		from = bus.Source{EventID: fmt.Sprintf("0198c0de-7e57-7000-8000-%012d", m.number)}
	}
	from.SetHeaders(m.header)
	for i := range m.facts {
		m.facts[i].source = from
	}
}

// text returns text that names the next message, mostly short.
func (s *session) text() string {
	text := "message " + strconv.Itoa(len(s.plan)+1) + ` <&> \u00e9 é`
	switch s.rng.IntN(100) {
	case 0:
		text += strings.Repeat(".", 100_000)
	case 1, 2, 3, 4, 5:
		text += strings.Repeat(".", 3000)
	}
	return text
}

func (s *session) makeError() {
	at, stamp := int64(0), ""
	if s.rng.IntN(2) == 0 {
		at = clock0 + int64(len(s.plan))
		stamp = fmt.Sprintf(`,"recorded_at_ms":%d`, at)
	}
	text := s.text()
	m := s.add(bus.ClassError, []byte(`{"message":"`+text+`"`+stamp+`}`),
		fact{typ: bus.TypeError, recordedAt: at, data: `{"message":"` + text + `","command_id":null}`})
	s.identify(m)
}

// makeActivity makes an activity, now and then the one that there is already,
// which gives no event.
func (s *session) makeActivity() {
	at := clock0 + int64(len(s.plan))
	var facts []fact
	if s.activity == "" || s.rng.IntN(5) > 0 {
		s.activity = fmt.Sprintf(`{"state":"%s","share":%d.50}`, s.text(), len(s.plan))
		facts = []fact{{typ: bus.TypeActivityChanged, recordedAt: at, data: `{"activity":` + s.activity + `}`}}
	}
	s.identify(s.add(bus.ClassActivity, fmt.Appendf(nil, `{"recorded_at_ms":%d,"activity":%s}`, at, s.activity), facts...))
}

// makeRecord saves the record: each time another title, and an error that is new,
// or the same, or cleared.
func (s *session) makeRecord() {
	at := clock0 + int64(len(s.plan))
	s.record["title"] = `"record ` + strconv.Itoa(len(s.plan)+1) + `"`
	var facts []fact
	switch s.rng.IntN(4) {
	case 0:
		s.record["last_error"] = "null"
	case 1, 2:
		s.record["last_error"] = `"` + s.text() + `"`
		facts = []fact{{typ: bus.TypeError, recordedAt: at, data: `{"message":` + s.record["last_error"] + `,"command_id":null}`}}
	}
	last := ""
	if v, ok := s.record["last_error"]; ok {
		last = `,"last_error":` + v
	}
	s.identify(s.add(bus.ClassSession, fmt.Appendf(nil, `{"op":"save","title":%s%s,"recorded_at_ms":%d}`, s.record["title"], last, at), facts...))
}

// makePages makes a page, or two of which the later is sent first.
func (s *session) makePages() {
	body, facts := s.journal.page(1 + s.rng.IntN(8))
	if !s.recipe.swaps || s.rng.IntN(5) > 0 {
		s.add(bus.ClassProjection, body, facts...)
		return
	}
	later, more := s.journal.page(1 + s.rng.IntN(8))
	s.add(bus.ClassProjection, later).held = true
	s.add(bus.ClassProjection, body, append(facts, more...)...)
}

// makeResync finishes the turn, loses some of the journal, and sets the chain to
// where it goes on.
func (s *session) makeResync() {
	if n := len(s.journal.rest); n > 0 {
		body, facts := s.journal.page(n)
		s.add(bus.ClassProjection, body, facts...)
	}
	s.journal.lose(3)
	m := s.add(bus.ClassControl, fmt.Appendf(nil, `{"op":"resync","ordinal":%d,"digest":"%s"}`, s.journal.at.Ordinal, s.journal.at.Digest))
	m.resync = true
	m.header.Set(bus.HeaderEventID, fmt.Sprintf("resync-%d", m.number))
}

// forgetID is the event id of the message that forgets a session.
const forgetID = "forget"

// makeForget forgets the session, and goes on as if nothing had happened: what
// comes after it is dropped.
func (s *session) makeForget(late int) {
	m := s.add(bus.ClassControl, []byte(`{"op":"forget"}`))
	m.header.Set(bus.HeaderEventID, forgetID)
	for n := len(s.plan) + late; len(s.plan) < n; {
		s.make()
	}
}
