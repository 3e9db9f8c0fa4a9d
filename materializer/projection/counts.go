package projection

import (
	"cmp"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// Publishers are the counts of those who publish into a session.
type Publishers struct {
	// Seen holds at most MaxPublishers, the one seen last first. A publisher is
	// seen by a message that used a count or repeated a known one.
	Seen []Publisher
	// Activity, Title, State and LastError say who set the activity and the
	// record's members.
	Activity, Title, State, LastError Setter
}

// Publisher is one publisher's counts in a session.
type Publisher struct {
	ID      string
	Count   uint64      // the highest that was used
	Hashes  []CountHash // of its messages with the highest counts, ascending, at most MaxCountHashes
	Missing []Range     // counts below Count that never came, ascending, at most MaxMissingRanges
}

// CountHash is the hash of the message that used a count.
type CountHash struct {
	Count uint64
	Hash  Hash
}

// Range is a range of counts, both ends included.
type Range struct{ From, To uint64 }

// Setter names the message that set something: a publisher's count, or nothing
// if the message had none.
type Setter struct {
	Publisher string
	Count     uint64
}

// outranks reports whether what s set stands against a message of this identity,
// which came late: a later count of the same publisher has spoken.
func (s Setter) outranks(id bus.Identity) bool {
	return s.Publisher != "" && s.Publisher == id.Publisher && s.Count > id.Count
}

// Status tells what a publisher's count is to the session: known if a message
// used it, whether applied or rejected; missing if a higher count was used and it
// never came. Both are false for a count that lies above the highest, and for a
// publisher that is not among the MaxPublishers seen last.
func (p *Publishers) Status(publisher string, count uint64) (known, missing bool) {
	i := p.find(publisher)
	if i < 0 || count == 0 || count > p.Seen[i].Count {
		return false, false
	}
	_, missing = p.Seen[i].missing(count)
	return !missing, missing
}

// verdict is what a count says of its message.
type verdict uint8

const (
	countNew         verdict = iota // not used yet: in order, after a gap, or late
	countRepeated                   // used by the same message, or its hash is not kept
	countConflicting                // used by another message, which stands
	countAhead                      // accepting it would need one range more than MaxMissingRanges
)

func (p *Publishers) find(publisher string) int {
	for i := range p.Seen {
		if p.Seen[i].ID == publisher {
			return i
		}
	}
	return -1
}

// judge says what the count of id is. expected is the count to send from if the
// verdict is countAhead. It changes nothing.
func (p *Publishers) judge(id bus.Identity, h Hash) (v verdict, expected uint64) {
	i := p.find(id.Publisher)
	if i < 0 {
		return countNew, 0
	}
	b, n := &p.Seen[i], id.Count
	if n > b.Count {
		if n > b.Count+1 && len(b.Missing) >= MaxMissingRanges {
			return countAhead, b.Count + 1
		}
		return countNew, 0
	}
	if k, missing := b.missing(n); missing {
		if r := b.Missing[k]; r.From < n && n < r.To && len(b.Missing) >= MaxMissingRanges {
			return countAhead, r.From
		}
		return countNew, 0
	}
	if k, kept := b.kept(n); kept && b.Hashes[k].Hash != h {
		return countConflicting, 0
	}
	return countRepeated, 0
}

// use notes that a message with hash h used the count, which judge called new.
func (p *Publishers) use(id bus.Identity, h Hash) {
	if i := p.find(id.Publisher); i >= 0 {
		p.front(i)
	} else {
		if len(p.Seen) >= MaxPublishers {
			p.Seen = p.Seen[:MaxPublishers-1]
		}
		p.Seen = slices.Insert(p.Seen, 0, Publisher{ID: id.Publisher})
	}
	p.Seen[0].use(id.Count, h)
}

// front moves an entry to the front; it reports whether that changed anything.
func (p *Publishers) front(i int) bool {
	if i == 0 {
		return false
	}
	b := p.Seen[i]
	copy(p.Seen[1:i+1], p.Seen[:i])
	p.Seen[0] = b
	return true
}

func (b *Publisher) use(n uint64, h Hash) {
	if n > b.Count {
		if n > b.Count+1 {
			b.Missing = append(b.Missing, Range{From: b.Count + 1, To: n - 1})
		}
		b.Count = n
	} else {
		b.came(n)
	}
	b.keep(n, h)
}

// came takes a count out of the missing ranges. Where a range would have to become two
// and there is no room, its upper part counts as come.
func (b *Publisher) came(n uint64) {
	k, missing := b.missing(n)
	if !missing {
		return
	}
	switch r := b.Missing[k]; {
	case r.From == r.To:
		b.Missing = slices.Delete(b.Missing, k, k+1)
	case n == r.From:
		b.Missing[k].From++
	case n == r.To:
		b.Missing[k].To--
	default:
		b.Missing[k].To = n - 1
		if len(b.Missing) < MaxMissingRanges {
			b.Missing = slices.Insert(b.Missing, k+1, Range{From: n + 1, To: r.To})
		}
	}
}

// keep remembers the hash unless MaxCountHashes higher counts are remembered.
func (b *Publisher) keep(n uint64, h Hash) {
	k, _ := b.kept(n)
	if len(b.Hashes) < MaxCountHashes {
		b.Hashes = slices.Insert(b.Hashes, k, CountHash{Count: n, Hash: h})
		return
	}
	if k == 0 {
		return
	}
	copy(b.Hashes[:k-1], b.Hashes[1:k])
	b.Hashes[k-1] = CountHash{Count: n, Hash: h}
}

// kept returns where the hash of count n is or would be.
func (b *Publisher) kept(n uint64) (int, bool) {
	// Nearly every count is higher than all before.
	if last := len(b.Hashes) - 1; last < 0 || b.Hashes[last].Count < n {
		return last + 1, false
	}
	return slices.BinarySearchFunc(b.Hashes, n, func(e CountHash, n uint64) int {
		return cmp.Compare(e.Count, n)
	})
}

// missing returns which missing range holds count n.
func (b *Publisher) missing(n uint64) (int, bool) {
	return slices.BinarySearchFunc(b.Missing, n, func(r Range, n uint64) int {
		if r.To < n {
			return -1
		}
		return max(0, cmp.Compare(r.From, n))
	})
}
