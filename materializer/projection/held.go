package projection

import (
	"cmp"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// fill applies the held pages that fit after the position has moved, until none
// does. Pages may overlap. One that turns out wrong leaves an entry of its own:
// its message was called held, and nobody would hear of it otherwise.
func (s *State) fill(r *Result) {
	for {
		i := s.fitting()
		if i < 0 {
			return
		}
		h := s.Held[i]
		s.release(i, r)
		if err := s.applyHeld(&h, r); err != nil {
			r.leaveHeld(&h, reasonOf(err), err.Error())
		}
	}
}

// fitting returns the held page to try next, -1 if all lie ahead.
func (s *State) fitting() int {
	best := -1
	for i := range s.Held {
		if s.Held[i].First > s.Chain.expected() {
			continue
		}
		if best < 0 || compareHeld(s.Held[i], s.Held[best]) < 0 {
			best = i
		}
	}
	return best
}

// compareHeld orders held pages by what their messages say: the lowest first
// ordinal, then the one that came first. The order in which a store has loaded
// them does not matter. The last digest decides between pages of one sequence,
// which only a recreated INGEST can give twice.
func compareHeld(a, b HeldPage) int {
	return cmp.Or(
		cmp.Compare(a.First, b.First),
		cmp.Compare(a.Time, b.Time),
		cmp.Compare(a.Seq, b.Seq),
		slices.Compare(a.Last[:], b.Last[:]),
	)
}

// release takes a page out of what is held.
func (s *State) release(i int, r *Result) {
	r.Release = append(r.Release, s.Held[i].HeldKey)
	s.Held = slices.Delete(s.Held, i, i+1)
	s.Changed |= PartHeld
}

// applyHeld applies a page that was held and does not lie ahead any more. One
// that has been overtaken is done with if it agrees with what is known.
func (s *State) applyHeld(h *HeldPage, r *Result) error {
	// The body was checked before it was held, but it comes back from a disk, and
	// the walk over JSON relies on its form.
	body, err := bus.Compact(h.Body)
	if err != nil {
		return err
	}
	p, err := bus.ParsePage(body)
	if err != nil {
		return err
	}
	switch {
	case p.Last() <= s.Chain.Position.Ordinal:
		return s.Chain.agree(&p)
	case p.First() > s.Chain.expected():
		return chainError("events", "of the held page begin at %d, not at %d", p.First(), h.First)
	}
	return s.extend(&p, r)
}
