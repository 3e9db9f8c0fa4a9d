package projection

import (
	"fmt"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// control does what an operator asks of a session.
func (s *State) control(m *Message, body []byte, r *Result) {
	c, err := bus.ParseControl(body, false)
	if err != nil {
		r.reject(m, reasonOf(err), err.Error())
		return
	}
	if c.Op == bus.OpForget {
		*s = State{Forgotten: true, Changed: PartAll}
		r.Outcome, r.Forget, r.Erase = Applied, true, c.Secure
		return
	}
	s.resync(m, c.At, r)
}

// resync sets the chain's position to a place ahead of it, which nothing that is
// known leads to. The projected state stays; what lies between is skipped, and an
// entry says so.
func (s *State) resync(m *Message, to bus.ChainPosition, r *Result) {
	from := s.Chain.Position.Ordinal
	if to.Ordinal <= from {
		r.reject(m, bus.ReasonChain, fmt.Sprintf("not ahead of the position %d", from))
		return
	}
	s.Chain.Position = to
	s.Changed |= PartChain
	s.exists()
	r.Outcome = Applied
	r.leave(m, bus.ReasonResync, fmt.Sprintf("skipped ordinals %d to %d", from+1, to.Ordinal))
	slices.SortFunc(s.Held, compareHeld)
	// What was held of the skipped range will never be applied, whether or not it
	// agrees: the operator has to know.
	for i := 0; i < len(s.Held); {
		if h := s.Held[i]; h.LastOrdinal <= to.Ordinal {
			s.release(i, r)
			r.leaveHeld(&h, bus.ReasonResync, fmt.Sprintf("ordinals %d to %d were skipped by a resync to %d", h.First, h.LastOrdinal, to.Ordinal))
			continue
		}
		i++
	}
	s.fill(r)
}
