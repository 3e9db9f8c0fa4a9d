package projection

import "github.com/skaldbus/skald/bus"

// Chain is how far a session's relay events are applied, and where their digests
// are known: at the beginning, at the position, and at the ends of the pages
// applied last.
type Chain struct {
	Position bus.ChainPosition
	Ends     []bus.ChainPosition // ascending, at most MaxChainEnds
}

// expected returns the ordinal that the chain takes next.
func (c *Chain) expected() uint64 { return c.Position.Ordinal + 1 }

// known returns the digest at an ordinal if it is known.
func (c *Chain) known(ordinal uint64) (bus.Digest, bool) {
	switch {
	case ordinal == 0:
		return bus.Digest{}, true
	case ordinal == c.Position.Ordinal:
		return c.Position.Digest, true
	}
	// Pages that overlap the position are the common case, so search from there.
	for i := len(c.Ends) - 1; i >= 0 && c.Ends[i].Ordinal >= ordinal; i-- {
		if c.Ends[i].Ordinal == ordinal {
			return c.Ends[i].Digest, true
		}
	}
	return bus.Digest{}, false
}

// agree compares what p says of ordinals up to the position with the digests
// that are known there. Digests of what is applied are compared, not validated:
// a page that was accepted once is a duplicate whatever else it holds.
func (c *Chain) agree(p *bus.Page) error {
	if p.After != nil {
		if d, ok := c.known(p.After.Ordinal); ok && d != p.After.Digest {
			return chainError("after.digest", "at %d is %s, the chain knows %s", p.After.Ordinal, p.After.Digest, d)
		}
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Ordinal > c.Position.Ordinal {
			break
		}
		if d, ok := c.known(e.Ordinal); ok && !isDigest(e.Digest, d) {
			return chainError("digest", "of event %d is not %s, which the chain knows", e.Ordinal, d)
		}
		// In format 1 an event also tells the digest before it.
		if d, ok := c.known(e.Ordinal - 1); ok && len(e.Previous) > 0 && !isDigest(e.Previous, d) {
			return chainError("previous_digest", "of event %d is not %s, which the chain knows", e.Ordinal, d)
		}
	}
	return nil
}

// isDigest reports whether the hex text as sent is d.
func isDigest(text []byte, d bus.Digest) bool {
	sent, ok := bus.ParseDigest(text)
	return ok && sent == d
}

// verify checks the digests of events that follow each other, the first one's
// predecessor being previous, and returns them.
func verify(events []bus.RelayEvent, previous bus.Digest) ([]bus.Digest, error) {
	digests := make([]bus.Digest, len(events))
	size := 0
	for i := range events {
		size = max(size, len(events[i].Observation)+len(events[i].CommandID))
	}
	buf := make([]byte, 0, size+256) // what is hashed besides has fewer bytes
	for i := range events {
		var err error
		if digests[i], buf, err = events[i].Verify(previous, buf); err != nil {
			return nil, err
		}
		previous = digests[i]
	}
	return digests, nil
}

// verifyAhead checks a page whose predecessor is not known: what its first event
// says of that is taken as given, and must be what the page itself says.
func verifyAhead(p *bus.Page) (last bus.Digest, err error) {
	var previous bus.Digest
	if first := &p.Events[0]; first.Format == bus.FormatChained {
		var ok bool
		if previous, ok = bus.ParseDigest(first.Previous); ok && p.After != nil && p.After.Digest != previous {
			return last, chainError("after.digest", "is %s, the first event's previous digest is %s", p.After.Digest, previous)
		}
		// If it is no digest, Verify says so.
	}
	digests, err := verify(p.Events, previous)
	if err != nil {
		return last, err
	}
	return digests[len(digests)-1], nil
}

// advance moves the position to the end of a page that was applied.
func (c *Chain) advance(to bus.ChainPosition) {
	c.Position = to
	if len(c.Ends) >= MaxChainEnds {
		copy(c.Ends, c.Ends[len(c.Ends)-MaxChainEnds+1:])
		c.Ends = c.Ends[:MaxChainEnds-1]
	}
	c.Ends = append(c.Ends, to)
}
