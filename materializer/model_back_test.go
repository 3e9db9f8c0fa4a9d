package materializer_test

import (
	"slices"

	"github.com/skaldbus/skald/bus"
)

// stretch is what was heard of INGEST before it was set back.
type stretch struct {
	from, to int64 // stored times, ns
	last     uint64
}

// back goes back in INGEST, or passes what it no longer holds, to hear on after seq.
func (m *model) back(reason bus.Reason, seq uint64) {
	m.refused = append(m.refused, refused{seq: m.last, reason: reason})
	if reason == bus.ReasonIngestTrimmed {
		m.holes += int64(seq - m.last)
	}
	if m.since != 0 {
		m.before = append(m.before, stretch{m.since, m.lastTime, m.last})
	}
	m.last, m.lastTime, m.since = seq, 0, 0
}

// again reports whether a message was heard before.
func (m *model) again(msg *said) bool {
	return slices.ContainsFunc(m.before, func(s stretch) bool { return msg.seq <= s.last && s.from <= msg.time && msg.time <= s.to })
}

// heardEnough reports whether a message that was heard before is left out: it has
// nothing by which it could be known, or was refused then.
func (m *model) heardEnough(msg *said, nobodys bool, class bus.Class) bool {
	if nobodys {
		return true
	}
	id, _ := bus.ParseIdentity(msg.header, class)
	if class != bus.ClassProjection && id == (bus.Identity{}) {
		return true
	}
	return slices.ContainsFunc(m.refused, func(r refused) bool { return r.seq == msg.seq && r.time == msg.time })
}
