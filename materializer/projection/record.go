package projection

import "github.com/skaldbus/skald/bus"

// session saves the session's record: absent members stay, null clears.
func (s *State) session(m *Message, body []byte, r *Result) {
	rec, err := bus.ParseSession(body)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	at := m.recordedAt(rec.RecordedAt)
	v, p := &s.View, &s.Publishers
	if t := rec.LastError; t.Set() && !t.Null() && (v.LastError == "" || !sameText(v.LastError, t.Token)) {
		r.fact(m, bus.TypeError, at, appendErrorData(nil, t.Token, []byte("null")))
	}
	s.save(&v.Title, &p.Title, m.Identity, rec.Title)
	s.save(&v.State, &p.State, m.Identity, rec.State)
	s.save(&v.LastError, &p.LastError, m.Identity, rec.LastError)
	s.applied(at, r)
}

// save sets one member of the record, unless a later count of the same publisher
// has set it.
func (s *State) save(to *string, by *Setter, id bus.Identity, t bus.Text) {
	if !t.Set() || by.outranks(id) {
		return
	}
	*by = Setter{Publisher: id.Publisher, Count: id.Count}
	token := t.Token
	if t.Null() {
		token = nil
	}
	if *to != string(token) {
		*to = string(token)
		s.Changed |= PartView
	}
}

// activity compares by compact bytes: the same object said again is no event.
func (s *State) activity(m *Message, body []byte, r *Result) {
	a, err := bus.ParseActivity(body)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	at := m.recordedAt(a.RecordedAt)
	differs := s.View.Activity != string(a.Object)
	if differs {
		d := make([]byte, 0, len(a.Object)+len(`{"activity":}`))
		d = append(append(append(d, `{"activity":`...), a.Object...), '}')
		r.fact(m, bus.TypeActivityChanged, at, d)
	}
	if by := &s.Publishers.Activity; !by.outranks(m.Identity) {
		// Said again counts as set again: a late message must not undo it.
		*by = Setter{Publisher: m.Identity.Publisher, Count: m.Identity.Count}
		if differs {
			s.View.Activity = string(a.Object)
			s.Changed |= PartView
		}
	}
	s.applied(at, r)
}

// error passes an error on that happened outside the chain.
func (s *State) error(m *Message, body []byte, r *Result) {
	e, err := bus.ParseError(body)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	at := m.recordedAt(e.RecordedAt)
	r.fact(m, bus.TypeError, at, appendErrorData(nil, e.Message, e.CommandID))
	s.applied(at, r)
}

// applied is the end of every message without a chain. The publishers' part
// holds the time of activity for it, also if the message had no count.
func (s *State) applied(at int64, r *Result) {
	s.exists()
	s.touch(at, PartPublishers)
	r.Outcome = Applied
}

// fact adds a fact that no relay event gave.
func (r *Result) fact(m *Message, typ string, at int64, data []byte) {
	r.Facts = append(r.Facts, Fact{Type: typ, RecordedAt: at, Data: data, Source: m.source()})
}

// appendErrorData appends the data of an error fact; both are tokens.
func appendErrorData(dst, message, commandID []byte) []byte {
	if dst == nil {
		dst = make([]byte, 0, len(message)+len(commandID)+len(`{"message":,"command_id":}`))
	}
	dst = append(append(dst, `{"message":`...), message...)
	dst = append(append(dst, `,"command_id":`...), commandID...)
	return append(dst, '}')
}
