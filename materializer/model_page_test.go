package materializer_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skaldbus/skald/bus"
)

var genesis = strings.Repeat("0", 64)

// modelChain is all that was ever applied of a session's journal.
type modelChain struct {
	at     uint64
	digest string // "" at the beginning
	ends   []modelEnd
	held   []modelPage
}

type modelEnd struct {
	ordinal uint64
	digest  string
}

// relayEvent is one event of a page.
type relayEvent struct {
	Format      int             `json:"format"`
	Ordinal     uint64          `json:"ordinal"`
	Previous    string          `json:"previous_digest"`
	Digest      *string         `json:"digest"`
	RecordedAt  *int64          `json:"recorded_at_ms"`
	CommandID   json.RawMessage `json:"command_id"`
	Observation json.RawMessage `json:"observation"`
}

type modelPage struct {
	After *struct {
		Ordinal uint64 `json:"ordinal"`
		Digest  string `json:"digest"`
	} `json:"after"`
	Events []relayEvent `json:"events"`
	// Of the message.
	seq  uint64
	time int64
}

func (p *modelPage) first() uint64 { return p.Events[0].Ordinal }
func (p *modelPage) last() uint64  { return p.Events[len(p.Events)-1].Ordinal }
func (p *modelPage) end() string   { return *p.Events[len(p.Events)-1].Digest }

// shape says what is wrong with a page by itself.
func (p *modelPage) shape() bus.Reason {
	for i, e := range p.Events {
		switch {
		case i == 128, e.Ordinal < 1:
			return bus.ReasonPage
		case e.Digest == nil || e.RecordedAt == nil || len(e.Observation) == 0 || e.Observation[0] != '{':
			return bus.ReasonBody
		case i > 0 && e.Ordinal != p.Events[i-1].Ordinal+1:
			return bus.ReasonPage
		}
	}
	if len(p.Events) == 0 || p.After != nil && p.After.Ordinal != p.first()-1 {
		return bus.ReasonPage
	}
	return ""
}

// sealed is the digest of an event by the contract's rule.
func (e *relayEvent) sealed(previous string) string {
	command := ""
	if len(e.CommandID) > 0 && string(e.CommandID) != "null" {
		command = fmt.Sprintf(`"command_id":%s,`, e.CommandID)
	}
	text := fmt.Sprintf("hel-relay-event-v1\x00"+`{"ordinal":%d,"previous_digest":"%s","recorded_at_ms":%d,%s"observation":%s}`,
		e.Ordinal, previous, *e.RecordedAt, command, e.Observation)
	if e.Format == 2 {
		text = fmt.Sprintf("hel-relay-event-v2\x00"+`{"ordinal":%d,"recorded_at_ms":%d,%s"observation":%s}`,
			e.Ordinal, *e.RecordedAt, command, e.Observation)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// linked reports whether the events follow each other and previous.
func linked(events []relayEvent, previous string) bool {
	for i := range events {
		e := &events[i]
		if e.Format == 2 && e.Previous != "" || e.Format != 2 && e.Previous != previous || *e.Digest != e.sealed(previous) {
			return false
		}
		previous = *e.Digest
	}
	return true
}

// known returns the digest at an ordinal, "" if it is not known.
func (c *modelChain) known(ordinal uint64) string {
	switch ordinal {
	case 0:
		return genesis
	case c.at:
		return c.digest
	}
	for _, e := range c.ends[max(0, len(c.ends)-64):] {
		if e.ordinal == ordinal {
			return e.digest
		}
	}
	return ""
}

// agrees compares what the page says of what is applied.
func (c *modelChain) agrees(p *modelPage) bool {
	same := func(ordinal uint64, digest string) bool {
		known := c.known(ordinal)
		return known == "" || known == digest
	}
	if p.After != nil && !same(p.After.Ordinal, p.After.Digest) {
		return false
	}
	for _, e := range p.Events {
		if e.Ordinal > c.at {
			break
		}
		if !same(e.Ordinal, *e.Digest) || e.Previous != "" && !same(e.Ordinal-1, e.Previous) {
			return false
		}
	}
	return true
}

func (t *turn) page(body string) {
	p := modelPage{seq: t.seq, time: t.time}
	if json.Unmarshal([]byte(body), &p) != nil || p.Events == nil {
		t.refuse(bus.ReasonBody)
		return
	}
	if reason := p.shape(); reason != "" {
		t.refuse(reason)
		return
	}
	c := &t.chain
	switch {
	case p.first() > c.at+1:
		t.hold(&p)
	case p.last() <= c.at && !c.agrees(&p):
		t.refuse(bus.ReasonChain)
	case p.last() <= c.at:
		t.duplicates++
	case !t.extend(&p):
		t.refuse(bus.ReasonChain)
	default:
		t.exists = true
		t.applied++
		t.fill()
	}
}

func (t *turn) hold(p *modelPage) {
	c := &t.chain
	previous := genesis
	if e := &p.Events[0]; e.Format != 2 {
		previous = e.Previous
		if p.After != nil && p.After.Digest != previous {
			t.refuse(bus.ReasonChain)
			return
		}
	}
	if !linked(p.Events, previous) {
		t.refuse(bus.ReasonChain)
		return
	}
	if slices.ContainsFunc(c.held, func(h modelPage) bool { return h.first() == p.first() && h.end() == p.end() }) {
		return
	}
	if len(c.held) == 64 {
		t.refuse(bus.ReasonAhead)
		return
	}
	t.exists = true
	c.held = append(c.held, *p)
}

// extend applies what of the page lies after the position, whole or not at all.
func (t *turn) extend(p *modelPage) bool {
	c := &t.chain
	digest := c.digest
	if c.at == 0 {
		digest = genesis
	}
	fresh := p.Events[c.at+1-p.first():]
	if !c.agrees(p) || !linked(fresh, digest) {
		return false
	}
	for i := range fresh {
		e := &fresh[i]
		t.active(*e.RecordedAt)
		if !t.observe(e) {
			t.unprojected++
		}
	}
	c.at, c.digest = p.last(), p.end()
	c.ends = append(c.ends, modelEnd{c.at, c.digest})
	return true
}

// fill applies held pages as long as one fits: the lowest first, then the oldest.
func (t *turn) fill() {
	c := &t.chain
	for {
		slices.SortFunc(c.held, func(a, b modelPage) int {
			return cmp.Or(cmp.Compare(a.first(), b.first()), cmp.Compare(a.time, b.time), cmp.Compare(a.seq, b.seq))
		})
		if len(c.held) == 0 || c.held[0].first() > c.at+1 {
			return
		}
		p := c.held[0]
		c.held = slices.Delete(c.held, 0, 1)
		if p.last() <= c.at && c.agrees(&p) || p.last() > c.at && t.extend(&p) {
			continue
		}
		t.model.refused = append(t.model.refused, refused{seq: p.seq, time: p.time, key: t.key, reason: bus.ReasonChain})
	}
}

func (t *turn) resync(ordinal uint64, digest string) {
	c := &t.chain
	if ordinal <= c.at {
		t.refuse(bus.ReasonChain)
		return
	}
	c.at, c.digest = ordinal, digest
	t.exists = true
	t.applied++
	t.refuse(bus.ReasonResync) // the record of it
	c.held = slices.DeleteFunc(c.held, func(p modelPage) bool {
		if p.last() > ordinal {
			return false
		}
		t.model.refused = append(t.model.refused, refused{seq: p.seq, time: p.time, key: t.key, reason: bus.ReasonResync})
		return true
	})
	t.fill()
}
