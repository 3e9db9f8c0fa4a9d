package projection

import (
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// Apply decides what becomes of m, changes the state accordingly and returns
// what else follows. known is what is remembered of the message's event id
// within the horizon, nil if nothing; it is only read for a message that has an
// event id and no count. Apply is total: any message has an outcome. A message
// that is rejected changes nothing but its publisher's count.
//
// Nothing in the result is shared with m; a held page's body is shared between
// the state and the result and must not be modified.
func (s *State) Apply(m Message, known *KnownID) Result {
	var r Result
	if s.Forgotten {
		r.Outcome = Dropped
		return r
	}
	if m.Class == bus.ClassProjection || m.Class == bus.ClassControl {
		m.Identity.Publisher, m.Identity.Count = "", 0
	}
	if m.Class == bus.ClassProjection {
		// Pages are deduplicated by their chain alone.
		m.Identity.EventID = ""
	}
	switch {
	case m.IdentityErr != nil && m.Class.Known():
		r.reject(&m, bus.ReasonHeader, m.IdentityErr.Error())
		return r
	case m.IdentityErr != nil:
		m.Identity = bus.Identity{}
	case m.Identity.Publisher != "" && (m.Identity.Count == 0 || m.Identity.Count > bus.MaxSeq):
		r.reject(&m, bus.ReasonHeader, fmt.Sprintf("%s: must be a decimal number from 1 to 2^63-1", bus.HeaderPublisherSeq))
		return r
	}

	body, bodyErr := bus.Compact(m.Body)
	if m.Identity.Publisher != "" {
		hashed := body
		if bodyErr != nil {
			hashed = m.Body
		}
		if !s.count(&m, hashOf(m.Class, hashed), &r) {
			return r
		}
	}
	if !m.Class.Known() {
		r.reject(&m, bus.ReasonClass, fmt.Sprintf("class: %.64q is not known", string(m.Class)))
		return r
	}
	if bodyErr != nil {
		r.reject(&m, bus.ReasonBody, bodyErr.Error())
		return r
	}
	byID := m.Identity.Publisher == "" && m.Identity.EventID != ""
	if byID {
		r.Hash = hashOf(m.Class, body)
		if known != nil && (known.Hash == r.Hash || known.Hash == Hash{}) {
			r.Outcome = Duplicate
			return r
		}
		if known != nil {
			r.reject(&m, bus.ReasonConflict, "event id: is known with another class or body, which stands")
			return r
		}
	}

	switch m.Class {
	case bus.ClassSession:
		s.session(&m, body, &r)
	case bus.ClassActivity:
		s.activity(&m, body, &r)
	case bus.ClassError:
		s.error(&m, body, &r)
	case bus.ClassProjection:
		s.page(&m, body, &r)
	case bus.ClassControl:
		s.control(&m, body, &r)
	}
	// A tombstone has no ids.
	r.Remember = byID && r.Outcome == Applied && !r.Forget
	return r
}

// count decides by the message's count and uses it; it reports whether the
// message goes on. A count is used before the body is read: a rejected message
// has used its count too.
func (s *State) count(m *Message, h Hash, r *Result) bool {
	p := &s.Publishers
	switch v, expected := p.judge(m.Identity, h); v {
	case countRepeated:
		if p.front(p.find(m.Identity.Publisher)) {
			s.Changed |= PartPublishers
		}
		r.Outcome = Duplicate
		return false
	case countConflicting:
		r.reject(m, bus.ReasonConflict, fmt.Sprintf("count: %d is known with another class or body, which stands", m.Identity.Count))
		return false
	case countAhead:
		r.reject(m, bus.ReasonAhead, fmt.Sprintf("count: %d would leave more than %d ranges missing, expected count %d", m.Identity.Count, MaxMissingRanges, expected))
		return false
	}
	p.use(m.Identity, h)
	s.Changed |= PartPublishers
	return true
}
