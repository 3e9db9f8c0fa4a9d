package projection

import (
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// page places a page of relay events against the chain: its shape first, then its
// place, then the digests of what is new. A page that is older than the position
// would fail validation for that alone, and redelivery is normal.
func (s *State) page(m *Message, body []byte, r *Result) {
	p, err := bus.ParsePage(body)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	switch {
	case p.First() > s.Chain.expected():
		s.ahead(m, body, &p, r)
		return
	case p.Last() <= s.Chain.Position.Ordinal:
		if err := s.Chain.agree(&p); err != nil {
			r.reject(m, reasonOf(err), err.Error())
			return
		}
		r.Outcome = Duplicate
		return
	}
	if err := s.extend(&p, r); err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	s.exists()
	r.Outcome = Applied
	s.fill(r)
}

// extend applies those events of p that lie after the position, the first of
// which must directly follow it. On an error nothing has changed.
func (s *State) extend(p *bus.Page, r *Result) error {
	if err := s.Chain.agree(p); err != nil {
		return err
	}
	events := p.Events[s.Chain.expected()-p.First():]
	digests, err := verify(events, s.Chain.Position.Digest)
	if err != nil {
		return err
	}
	latest := events[0].RecordedAt
	for i := range events {
		latest = max(latest, events[i].RecordedAt)
		s.observe(&events[i], digests[i], r)
	}
	s.touch(latest, PartChain)
	s.Chain.advance(bus.ChainPosition{Ordinal: p.Last(), Digest: digests[len(digests)-1]})
	return nil
}

// ahead holds a page that begins after the expected ordinal, if it is right by
// itself and there is room.
func (s *State) ahead(m *Message, body []byte, p *bus.Page, r *Result) {
	last, err := verifyAhead(p)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	key := HeldKey{First: p.First(), Last: last}
	bytes := len(body)
	for i := range s.Held {
		if s.Held[i].HeldKey == key {
			r.Outcome = Held
			return
		}
		bytes += len(s.Held[i].Body)
	}
	if len(s.Held) >= MaxHeldPages || bytes > MaxHeldBytes {
		r.reject(m, bus.ReasonAhead, fmt.Sprintf("events: begin at ordinal %d and there is no room to hold them (%d pages are held), expected ordinal %d",
			p.First(), len(s.Held), s.Chain.expected()))
		return
	}
	h := HeldPage{HeldKey: key, LastOrdinal: p.Last(), Seq: m.Seq, Time: m.Time, Body: m.own(body)}
	s.Held = append(s.Held, h)
	s.Changed |= PartHeld
	s.exists()
	r.Outcome, r.Hold = Held, &h
}
