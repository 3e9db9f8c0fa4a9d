package projection

import (
	"slices"

	"github.com/skaldbus/skald/bus"
)

// TakeOver moves the state to what a fact says that it was deduplicated by, for a store
// that has the fact from EVENTS and will never see its message: the chain's position, or
// the highest count of its publisher. So what comes again from before is known. It is
// all that a fact tells; the view stays as it is, and what lies between counts as
// passed. An event id is the caller's to remember. recordedAt is the fact's, ms. It
// reports whether chain or counts have moved; a fact that is known already moves nothing.
func (s *State) TakeOver(src bus.Source, recordedAt int64) (moved bool) {
	if s.Forgotten {
		return false
	}
	s.exists()
	part := PartChain
	switch {
	case src.Publisher != "":
		part = PartPublishers
		moved = s.Publishers.takeOver(src.Publisher, src.Count)
	case src.Chain.Ordinal > s.Chain.Position.Ordinal:
		s.Chain.Position, moved = src.Chain, true
	}
	s.touch(recordedAt, part)
	return moved
}

// takeOver notes that a publisher's count was used, and reports whether that was news.
func (p *Publishers) takeOver(publisher string, count uint64) bool {
	if i := p.find(publisher); i >= 0 {
		p.front(i)
	} else {
		if len(p.Seen) >= MaxPublishers {
			p.Seen = p.Seen[:MaxPublishers-1]
		}
		p.Seen = slices.Insert(p.Seen, 0, Publisher{ID: publisher})
	}
	b := &p.Seen[0]
	if count > b.Count {
		b.Count = count
		return true
	}
	_, missing := b.missing(count)
	b.came(count)
	return missing
}
