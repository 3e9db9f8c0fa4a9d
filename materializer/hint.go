package materializer

import (
	"strconv"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// manyDone is from how many messages on a commit confirms applied ones only by
// the newest of each session. A worker that waits has few under way, so those who
// catch up are told of the newest and need not hear of each.
const manyDone = bigUnit

// confirm tells who listens what became of committed messages, on core NATS. A
// hint may be lost; the truth is asked for with the position and outcome
// services. The body is
//
//	{"ingest_seq","outcome","reason"?,"publisher"?,"publisher_seq"?,"event_id"?,"frontier"?}
//
// with the frontier, the session's chain position, for projection pages.
func (m *Materializer) confirm(what []done) {
	var newest map[bus.Key]uint64
	if len(what) >= manyDone {
		newest = make(map[bus.Key]uint64)
		for i := range what {
			newest[what[i].msg.Key] = what[i].msg.Seq
		}
	}
	var buf []byte
	for i := range what {
		d := &what[i]
		if d.msg.subjectErr != nil || d.msg.admin {
			continue
		}
		if newest != nil && d.outcome == projection.Applied && d.msg.Seq != newest[d.msg.Key] {
			continue
		}
		buf = d.appendJSON(buf[:0])
		// The connection copies the bytes into its buffer; an error means that
		// it is closed, and then nobody is told.
		if m.o.Conn.Publish(m.o.Subjects.Done(d.msg.Key), buf) != nil {
			return
		}
	}
}

func (d *done) appendJSON(b []byte) []byte {
	b = append(b, `{"ingest_seq":`...)
	b = strconv.AppendUint(b, d.msg.Seq, 10)
	b = append(b, `,"outcome":"`...)
	b = append(b, d.outcome.String()...)
	b = append(b, '"')
	if d.reason != "" {
		b = append(b, `,"reason":"`...)
		b = append(b, d.reason...)
		b = append(b, '"')
	}
	id := &d.msg.Identity
	if id.Publisher != "" {
		b = append(b, `,"publisher":`...)
		b = bus.AppendQuoted(b, id.Publisher)
		b = append(b, `,"publisher_seq":`...)
		b = strconv.AppendUint(b, id.Count, 10)
	}
	if id.EventID != "" {
		b = append(b, `,"event_id":`...)
		b = bus.AppendQuoted(b, id.EventID)
	}
	if d.msg.Class == bus.ClassProjection {
		b = append(b, `,"frontier":{"ordinal":`...)
		b = strconv.AppendUint(b, d.frontier.Ordinal, 10)
		b = append(b, `,"digest":"`...)
		b = append(b, d.frontier.Digest.String()...)
		b = append(b, `"}`...)
	}
	return append(b, '}')
}
