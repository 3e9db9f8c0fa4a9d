package materializer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// said is one message of INGEST.
type said struct {
	seq     uint64
	time    int64 // ns
	subject string
	header  nats.Header
	body    []byte
}

// happened is one fact that must come of what was said.
type happened struct {
	key      bus.Key
	typ      string
	recorded int64 // ms
	data     string
	origin   bus.Origin
	source   string // as the table keeps it
	trace    string
}

// refused is an entry that must be left for the operator.
type refused struct {
	seq    uint64
	time   int64   // ns; 0 if it is of no message
	key    bus.Key // zero if the subject names none
	reason bus.Reason
}

// model decides what becomes of messages in the simplest way there is: everything
// that was ever said is kept, in maps, and looked at again. It shares no code with
// the projection.
type model struct {
	subj     bus.Subjects
	horizon  int64 // ns
	last     uint64
	lastTime int64
	since    int64 // the stored time of the first new message since the last going back, 0 if there was none
	before   []stretch
	highest  int64
	oldest   uint64 // what was pruned lies below it
	sessions map[bus.Key]*modelSession
	facts    []happened // all that there ever were, those of forgotten sessions included
	refused  []refused

	applied, duplicates, dropped, unprojected, holes int64
}

type modelSession struct {
	exists, forgotten bool
	activeAt          *int64
	used              map[string]map[uint64]string // by publisher and count: class and compact body
	ids               map[string]modelID
	// The record's members and the activity by name, and who set them.
	members map[string]string
	setBy   map[string]bus.Identity
	chain   modelChain
	view    modelView
}

type modelID struct {
	said    string
	applied int64
}

func newModel(subj bus.Subjects, horizon int64) *model {
	return &model{subj: subj, horizon: horizon, sessions: map[bus.Key]*modelSession{}}
}

func (m *model) session(k bus.Key) *modelSession {
	s := m.sessions[k]
	if s == nil {
		s = &modelSession{used: map[string]map[uint64]string{}, ids: map[string]modelID{}, members: map[string]string{}, setBy: map[string]bus.Identity{}}
		m.sessions[k] = s
	}
	return s
}

// turn is the model at work on one message.
type turn struct {
	*model
	*modelSession
	said
	key   bus.Key
	id    bus.Identity
	trace string
	index int
}

func (m *model) take(msg said) {
	again := m.again(&msg)
	if !again && (m.since == 0 || msg.time < m.since) {
		m.since = msg.time
	}
	if n := msg.seq - m.last - 1; n > 0 && !again {
		m.holes += int64(n)
		m.refused = append(m.refused, refused{seq: m.last + 1, reason: bus.ReasonIngestHole})
	}
	m.last, m.lastTime, m.highest = msg.seq, msg.time, max(m.highest, msg.time)
	key, class, admin, err := m.subj.ParseIngest(msg.subject)
	if again && m.heardEnough(&msg, err != nil || admin, class) {
		m.duplicates++
		return
	}
	switch {
	case err != nil:
		m.refused = append(m.refused, refused{seq: msg.seq, time: msg.time, reason: bus.ReasonSubject})
		return
	case admin:
		var c struct {
			Op      string
			Before  uint64 `json:"before_seq"`
			Entries []struct {
				Seq    uint64 `json:"ingest_seq"`
				Time   int64  `json:"ingest_time_ns"`
				Reason bus.Reason
			}
		}
		err := json.Unmarshal(msg.body, &c)
		if err == nil && c.Op == "discard" {
			for _, e := range c.Entries {
				m.refused = slices.DeleteFunc(m.refused, func(r refused) bool { return r.seq == e.Seq && r.time == e.Time && r.reason == e.Reason })
			}
			m.applied++
			return
		}
		if err != nil || c.Op != "prune" || c.Before < 1 {
			m.refused = append(m.refused, refused{seq: msg.seq, time: msg.time, reason: bus.ReasonBody})
			return
		}
		m.oldest = max(m.oldest, c.Before)
		m.applied++
		return
	}
	t := turn{model: m, modelSession: m.session(key), said: msg, key: key, trace: bus.Traceparent(msg.header)}
	if t.forgotten {
		m.dropped++
		return
	}
	var badHeader error
	t.id, badHeader = bus.ParseIdentity(msg.header, class)
	if badHeader != nil {
		if class.Known() {
			t.refuse(bus.ReasonHeader)
		} else {
			t.refuse(bus.ReasonClass)
		}
		return
	}
	body, reason := compacted(msg.body)
	said := string(class) + " " + body
	if t.id.Publisher != "" && !t.count(said) {
		return
	}
	if !class.Known() {
		t.refuse(bus.ReasonClass)
		return
	}
	if reason != "" {
		t.refuse(reason)
		return
	}
	byID := t.id.Publisher == "" && t.id.EventID != ""
	known, ok := t.ids[t.id.EventID]
	ok = ok && known.applied >= m.highest-m.horizon
	if byID && again && !ok {
		m.duplicates++ // it was applied, or one with its id was, so long ago that the id is known no more
		return
	}
	if byID && ok {
		if known.said == said {
			m.duplicates++
		} else {
			t.refuse(bus.ReasonConflict)
		}
		return
	}
	before := m.applied
	t.apply(class, body)
	if byID && m.applied > before && !t.forgotten {
		t.ids[t.id.EventID] = modelID{said: said, applied: m.highest}
	}
}

// compacted returns the body without white space, or itself and a reason.
func compacted(body []byte) (string, bus.Reason) {
	var b bytes.Buffer
	if json.Compact(&b, body) != nil {
		return string(body), bus.ReasonBody
	}
	return b.String(), ""
}

func (t *turn) refuse(reason bus.Reason) {
	t.refused = append(t.refused, refused{seq: t.seq, time: t.time, key: t.key, reason: reason})
}

func (t *turn) fact(typ string, at int64, source, data string) {
	t.facts = append(t.facts, happened{
		key: t.key, typ: typ, recorded: at, data: data, source: source, trace: t.trace,
		origin: bus.Origin{Seq: t.seq, Time: t.time, Index: t.index},
	})
	t.index++
}

// source is what a fact of a message without a chain is deduplicated by.
func (t *turn) source() string {
	switch {
	case t.id.Publisher != "":
		return fmt.Sprintf("p%d:%s", t.id.Count, t.id.Publisher)
	case t.id.EventID != "":
		return "i" + t.id.EventID
	}
	return ""
}

func (t *turn) active(at int64) {
	t.exists = true
	if t.activeAt == nil || *t.activeAt < at {
		t.activeAt = &at
	}
}

// missing returns the ranges of counts that never came.
func missing(used map[uint64]string) (ranges [][2]uint64) {
	for n := uint64(1); n < highest(used); n++ {
		if _, ok := used[n]; ok {
			continue
		}
		if k := len(ranges) - 1; k >= 0 && ranges[k][1] == n-1 {
			ranges[k][1] = n
		} else {
			ranges = append(ranges, [2]uint64{n, n})
		}
	}
	return ranges
}

func highest(used map[uint64]string) (top uint64) {
	for n := range used {
		top = max(top, n)
	}
	return top
}

// count uses the message's count; it reports whether the message goes on.
func (t *turn) count(said string) bool {
	used := t.used[t.id.Publisher]
	n := t.id.Count
	if was, ok := used[n]; ok {
		above := 0
		for other := range used {
			if other > n {
				above++
			}
		}
		if was != said && above < 64 {
			t.refuse(bus.ReasonConflict)
		} else {
			t.duplicates++
		}
		return false
	}
	if used == nil {
		used = map[uint64]string{}
		t.used[t.id.Publisher] = used
	}
	used[n] = said
	if len(missing(used)) > 64 {
		delete(used, n)
		t.refuse(bus.ReasonAhead)
		return false
	}
	return true
}

func (t *turn) apply(class bus.Class, body string) {
	var b map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &b) != nil {
		t.refuse(bus.ReasonBody)
		return
	}
	at := t.time / 1e6
	if v, ok := b["recorded_at_ms"]; ok && class != bus.ClassProjection && class != bus.ClassControl {
		if json.Unmarshal(v, &at) != nil {
			t.refuse(bus.ReasonBody)
			return
		}
	}
	switch class {
	case bus.ClassSession:
		t.record(b, at)
	case bus.ClassActivity:
		object := string(b["activity"])
		if !strings.HasPrefix(object, "{") {
			t.refuse(bus.ReasonBody)
			return
		}
		if object != t.members["activity"] {
			t.fact("activity_changed", at, t.source(), `{"activity":`+object+`}`)
		}
		t.set("activity", object)
		t.done(at)
	case bus.ClassError:
		command := string(b["command_id"])
		if command == "" {
			command = "null"
		}
		if !isString(b["message"]) || command != "null" && command[0] != '"' {
			t.refuse(bus.ReasonBody)
			return
		}
		t.fact("error", at, t.source(), fmt.Sprintf(`{"message":%s,"command_id":%s}`, b["message"], command))
		t.done(at)
	case bus.ClassProjection:
		t.page(body)
	case bus.ClassControl:
		t.control(b)
	}
}

func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }

func (t *turn) done(at int64) {
	t.active(at)
	t.applied++
}

// set sets a member unless a later count of the same publisher has.
func (t *turn) set(name, token string) {
	if by := t.setBy[name]; by.Publisher != "" && by.Publisher == t.id.Publisher && by.Count > t.id.Count {
		return
	}
	t.setBy[name], t.members[name] = t.id, token
}

func (t *turn) record(b map[string]json.RawMessage, at int64) {
	names := []string{"title", "state", "last_error"}
	bad := string(b["op"]) != `"save"`
	for _, name := range names {
		v := b[name]
		bad = bad || v != nil && !isString(v) && string(v) != "null"
	}
	if bad {
		t.refuse(bus.ReasonBody)
		return
	}
	if v := b["last_error"]; isString(v) && string(v) != t.members["last_error"] {
		t.fact("error", at, t.source(), fmt.Sprintf(`{"message":%s,"command_id":null}`, v))
	}
	for _, name := range names {
		switch v := string(b[name]); v {
		case "":
		case "null":
			t.set(name, "")
		default:
			t.set(name, v)
		}
	}
	t.done(at)
}

func (t *turn) control(b map[string]json.RawMessage) {
	switch string(b["op"]) {
	case `"forget"`:
		*t.modelSession = modelSession{forgotten: true}
		t.model.refused = slices.DeleteFunc(t.model.refused, func(r refused) bool { return r.key == t.key })
		t.applied++
	case `"resync"`:
		var ordinal uint64
		var digest string
		if json.Unmarshal(b["ordinal"], &ordinal) != nil || ordinal < 1 || json.Unmarshal(b["digest"], &digest) != nil || len(digest) != 64 {
			t.refuse(bus.ReasonBody)
			return
		}
		t.resync(ordinal, digest)
	default:
		t.refuse(bus.ReasonBody)
	}
}

// live returns the facts of sessions that are not forgotten.
func (m *model) live(f *happened) bool { return !m.sessions[f.key].forgotten }
