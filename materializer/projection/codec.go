package projection

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// The binary parts begin with the version of their form. Numbers are varints,
// strings and lists carry their length before them.
const (
	chainForm      = 1
	publishersForm = 1
)

// AppendChain appends the chain's encoding, which holds the time of activity too.
// Equal states have equal encodings.
func (s *State) AppendChain(dst []byte) []byte {
	dst = append(dst, chainForm)
	dst = s.appendActivityTime(dst)
	dst = binary.AppendUvarint(dst, s.Chain.Position.Ordinal)
	dst = append(dst, s.Chain.Position.Digest[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(s.Chain.Ends)))
	last := uint64(0)
	for _, e := range s.Chain.Ends {
		dst = binary.AppendUvarint(dst, e.Ordinal-last)
		dst = append(dst, e.Digest[:]...)
		last = e.Ordinal
	}
	return dst
}

// AppendPublishers appends the encoding of the publishers' counts, which holds
// the time of activity too. Equal states have equal encodings.
func (s *State) AppendPublishers(dst []byte) []byte {
	dst = append(dst, publishersForm)
	dst = s.appendActivityTime(dst)
	p := &s.Publishers
	for _, by := range []*Setter{&p.Activity, &p.Title, &p.State, &p.LastError} {
		dst = appendString(dst, by.Publisher)
		dst = binary.AppendUvarint(dst, by.Count)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.Seen)))
	for i := range p.Seen {
		b := &p.Seen[i]
		dst = appendString(dst, b.ID)
		dst = binary.AppendUvarint(dst, b.Count)
		// Ascending numbers as distances are mostly one byte each.
		dst = binary.AppendUvarint(dst, uint64(len(b.Hashes)))
		dst = slices.Grow(dst, len(b.Hashes)*(1+len(Hash{})))
		last := uint64(0)
		for _, h := range b.Hashes {
			dst = binary.AppendUvarint(dst, h.Count-last)
			dst = append(dst, h.Hash[:]...)
			last = h.Count
		}
		dst = binary.AppendUvarint(dst, uint64(len(b.Missing)))
		last = 0
		for _, r := range b.Missing {
			dst = binary.AppendUvarint(dst, r.From-last)
			dst = binary.AppendUvarint(dst, r.To-r.From)
			last = r.To
		}
	}
	return dst
}

func (s *State) appendActivityTime(dst []byte) []byte {
	if s.LastActivityAt == nil {
		return append(dst, 0)
	}
	return binary.AppendVarint(append(dst, 1), *s.LastActivityAt)
}

func appendString(dst []byte, v string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

// Decode returns the state that the three parts encode. An empty part stands for
// one in which nothing was ever set. Exists, Forgotten and Held are the caller's
// to fill in; the time of activity is the later one of the parts. The error wraps
// [ErrEncoding] and names the part.
func Decode(chain, publishers, view []byte) (*State, error) {
	s := &State{}
	if len(chain) > 0 {
		d := decoder{in: chain}
		d.chain(s)
		if err := d.end(); err != nil {
			return nil, fmt.Errorf("decode chain: %w", err)
		}
	}
	if len(publishers) > 0 {
		d := decoder{in: publishers}
		d.publishers(s)
		if err := d.end(); err != nil {
			return nil, fmt.Errorf("decode publishers: %w", err)
		}
	}
	if len(view) > 0 {
		if err := s.View.decode(view); err != nil {
			return nil, fmt.Errorf("decode view: %w", err)
		}
	}
	return s, nil
}

func (d *decoder) chain(s *State) {
	d.form(chainForm)
	d.activityTime(s)
	c := &s.Chain
	c.Position.Ordinal = d.uint()
	d.bytes(c.Position.Digest[:])
	n := d.length(MaxChainEnds)
	last := uint64(0)
	for range n {
		var e bus.ChainPosition
		e.Ordinal = last + d.uint()
		d.bytes(e.Digest[:])
		c.Ends = append(c.Ends, e)
		last = e.Ordinal
	}
}

func (d *decoder) publishers(s *State) {
	d.form(publishersForm)
	d.activityTime(s)
	p := &s.Publishers
	for _, by := range []*Setter{&p.Activity, &p.Title, &p.State, &p.LastError} {
		by.Publisher = d.string()
		by.Count = d.uint()
	}
	for range d.length(MaxPublishers) {
		b := Publisher{ID: d.string(), Count: d.uint()}
		last := uint64(0)
		for range d.length(MaxCountHashes) {
			h := CountHash{Count: last + d.uint()}
			d.bytes(h.Hash[:])
			b.Hashes = append(b.Hashes, h)
			last = h.Count
		}
		last = 0
		for range d.length(MaxMissingRanges) {
			r := Range{From: last + d.uint()}
			r.To = r.From + d.uint()
			b.Missing = append(b.Missing, r)
			last = r.To
		}
		p.Seen = append(p.Seen, b)
	}
}

// activityTime keeps the later time: each part was written when it changed, and
// the time only rises.
func (d *decoder) activityTime(s *State) {
	switch d.byte() {
	case 0:
	case 1:
		if at := d.int(); d.err == nil {
			s.touch(at, 0)
		}
	default:
		d.fail("a flag is neither 0 nor 1")
	}
}
