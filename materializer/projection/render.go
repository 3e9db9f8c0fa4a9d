package projection

import (
	"encoding/hex"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// SessionEvents says which facts of a session the table holds.
type SessionEvents struct {
	Count             int64
	FirstSeq, LastSeq uint64 // not read if Count is 0
}

// AppendSession appends the session as readers see it, one compact JSON object.
// What is not known is null, an empty list []; the title is the record's if it is
// set, else the projected one.
func (s *State) AppendSession(dst []byte, k bus.Key, e SessionEvents) []byte {
	v := &s.View
	dst = append(dst, `{"session_id":`...)
	dst = bus.AppendQuoted(dst, k.Session)
	dst = append(dst, `,"workspace_id":`...)
	dst = bus.AppendQuoted(dst, k.Workspace)
	title := v.Title
	if title == "" {
		title = v.ProjectedTitle
	}
	dst = appendOrNull(dst, "title", title)
	dst = appendOrNull(dst, "state", v.State)
	dst = appendOrNull(dst, "last_error", v.LastError)
	dst = append(dst, `,"execution":`...)
	dst = v.Execution.appendJSON(dst)
	dst = append(dst, `,"active_turn":`...)
	if v.ActiveTurn != nil {
		dst = v.ActiveTurn.appendJSON(dst)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendOrNull(dst, "last_turn_outcome", v.LastOutcome)
	dst = append(dst, `,"pending_elicitations":[`...)
	for i := range v.Elicitations {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v.Elicitations[i].Request...)
	}
	dst = append(dst, `],"queued_prompts":[`...)
	for i := range v.Queue {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.Queue[i].appendJSON(dst)
	}
	dst = append(dst, ']')
	dst = appendOrNull(dst, "activity", v.Activity)
	dst = s.appendFrontier(dst)
	dst = appendOrNull(dst, "runtime", v.Runtime)
	dst = append(dst, `,"last_activity_at_ms":`...)
	if s.LastActivityAt != nil {
		dst = strconv.AppendInt(dst, *s.LastActivityAt, 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = s.appendHeld(dst)
	dst = append(dst, `,"events":{"count":`...)
	dst = strconv.AppendInt(dst, e.Count, 10)
	if e.Count == 0 {
		return append(dst, `,"first_seq":null,"last_seq":null}}`...)
	}
	dst = append(dst, `,"first_seq":`...)
	dst = strconv.AppendUint(dst, e.FirstSeq, 10)
	dst = append(dst, `,"last_seq":`...)
	dst = strconv.AppendUint(dst, e.LastSeq, 10)
	return append(dst, "}}"...)
}

// AppendPosition appends how far the session has come, one compact JSON object: a
// publisher that starts again goes on from there. ingestPosition is the INGEST
// sequence up to which the store has applied. Publishers stand in the order in
// which they were seen last.
func (s *State) AppendPosition(dst []byte, k bus.Key, ingestPosition uint64, epoch string) []byte {
	dst = append(dst, `{"workspace_id":`...)
	dst = bus.AppendQuoted(dst, k.Workspace)
	dst = append(dst, `,"session_id":`...)
	dst = bus.AppendQuoted(dst, k.Session)
	dst = s.appendFrontier(dst)
	dst = append(dst, `,"publishers":[`...)
	for i := range s.Publishers.Seen {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.Publishers.Seen[i].appendJSON(dst)
	}
	dst = append(dst, ']')
	dst = s.appendHeld(dst)
	dst = append(dst, `,"ingest_position":`...)
	dst = strconv.AppendUint(dst, ingestPosition, 10)
	dst = append(dst, `,"epoch":`...)
	dst = bus.AppendQuoted(dst, epoch)
	return append(dst, '}')
}

// appendOrNull appends a further member whose value is JSON text, null for "".
func appendOrNull(dst []byte, name, value string) []byte {
	if value == "" {
		value = "null"
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return append(dst, value...)
}

func (s *State) appendFrontier(dst []byte) []byte {
	dst = append(dst, `,"frontier":{"ordinal":`...)
	dst = strconv.AppendUint(dst, s.Chain.Position.Ordinal, 10)
	dst = append(dst, `,"digest":"`...)
	dst = hex.AppendEncode(dst, s.Chain.Position.Digest[:])
	return append(dst, `"}`...)
}

func (s *State) appendHeld(dst []byte) []byte {
	dst = append(dst, `,"held":{"pages":`...)
	dst = strconv.AppendInt(dst, int64(len(s.Held)), 10)
	dst = append(dst, `,"waiting_for":`...)
	if len(s.Held) == 0 {
		return append(dst, "null}"...)
	}
	dst = strconv.AppendUint(dst, s.Chain.expected(), 10)
	return append(dst, '}')
}

func (x Execution) appendJSON(dst []byte) []byte {
	if x.Kind == "" {
		return append(dst, "null"...)
	}
	dst = append(append(append(dst, `{"kind":"`...), x.Kind...), '"')
	if x.Kind == ExecutionRunning {
		dst = append(dst, `,"started_at_ms":`...)
		dst = strconv.AppendInt(dst, x.StartedAt, 10)
	}
	return append(dst, '}')
}

func (q *Queued) appendJSON(dst []byte) []byte {
	dst = append(append(dst, `{"command_id":`...), q.CommandID.token...)
	dst = append(append(append(dst, `,"kind":"`...), q.Kind...), `","accepted_ordinal":`...)
	dst = strconv.AppendUint(dst, q.Accepted, 10)
	dst = append(dst, `,"queued_at_ms":`...)
	dst = strconv.AppendInt(dst, q.QueuedAt, 10)
	return append(dst, '}')
}

func (b *Publisher) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"publisher":`...)
	dst = bus.AppendQuoted(dst, b.ID)
	dst = append(dst, `,"count":`...)
	dst = strconv.AppendUint(dst, b.Count, 10)
	dst = append(dst, `,"missing":[`...)
	for i, r := range b.Missing {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		dst = strconv.AppendUint(dst, r.From, 10)
		dst = append(dst, ',')
		dst = strconv.AppendUint(dst, r.To, 10)
		dst = append(dst, ']')
	}
	return append(dst, "]}"...)
}
