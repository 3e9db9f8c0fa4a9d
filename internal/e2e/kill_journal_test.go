//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// clock0 is the first worker's time, ms.
const clock0 = 1_789_200_000_000

// fact is what must come of a message: an event less its number and its session.
type fact struct {
	typ        string
	recordedAt int64 // ms; 0: the time at which INGEST stored the message
	data       string
	source     bus.Source
}

// journal tells a session's relay events: turns, one after the other, in a chain
// of real digests. Every ordinal, and so every fact, occurs once.
type journal struct {
	rng    *rand.Rand
	format func(turn int) int // of a turn's events
	at     bus.ChainPosition  // the last event told
	turn   int
	rest   []observation // of the turn being told
}

// observation is a relay event before it has a digest.
type observation struct {
	json  string
	facts []fact
}

// next returns the next relay event and its facts.
func (j *journal) next() (string, []fact) {
	if len(j.rest) == 0 {
		j.turn++
		j.rest = j.tell()
	}
	o := j.rest[0]
	j.rest = j.rest[1:]
	e := bus.RelayEvent{
		Format: j.format(j.turn), Ordinal: j.at.Ordinal + 1, RecordedAt: recordedAt(j.at.Ordinal + 1), Observation: []byte(o.json),
	}
	digest, _ := e.ComputeDigest(j.at.Digest, nil)
	previous, format := `,"previous_digest":"`+j.at.Digest.String()+`"`, ""
	if e.Format == bus.FormatStandalone {
		previous, format = "", `"format":2,`
	}
	j.at = bus.ChainPosition{Ordinal: e.Ordinal, Digest: digest}
	for i := range o.facts {
		o.facts[i].recordedAt, o.facts[i].source = e.RecordedAt, bus.Source{Chain: j.at}
	}
	return fmt.Sprintf(`{%s"ordinal":%d%s,"digest":"%s","recorded_at_ms":%d,"observation":%s}`,
		format, e.Ordinal, previous, digest, e.RecordedAt, o.json), o.facts
}

// recordedAt is the worker's time of an ordinal.
func recordedAt(ordinal uint64) int64 { return clock0 + 7*int64(ordinal) }

// page returns the body of a page of n events and their facts.
func (j *journal) page(n int) ([]byte, []fact) {
	body := []byte("{")
	if j.rng.IntN(4) > 0 {
		body = fmt.Appendf(body, `"after":{"ordinal":%d,"digest":"%s"},`, j.at.Ordinal, j.at.Digest)
	}
	body = append(body, `"events":[`...)
	var all []fact
	for i := range n {
		event, facts := j.next()
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, event...)
		all = append(all, facts...)
	}
	return append(body, "]}"...), all
}

// lose tells whole turns to nobody.
func (j *journal) lose(turns int) {
	for last := j.turn + turns; j.turn < last || len(j.rest) > 0; {
		j.next()
	}
}

// tell makes up a turn: a prompt is queued and started, something may be asked and
// answered, and the prompt ends one way or another. The rules of what comes of it
// are those of the event semantics §2.6 and §3.
func (j *journal) tell() []observation {
	accepted := j.at.Ordinal + 1
	var all []observation
	add := func(json string, facts ...fact) { all = append(all, observation{json: json, facts: facts}) }
	ordinal := func() uint64 { return accepted + uint64(len(all)) } // of what is added next
	id := "p" + strconv.Itoa(j.turn)

	add(fmt.Sprintf(`{"type":"command_queued","data":{"command_id":"%s","command":{"type":"prompt","data":{"prompt":[{"type":"text","text":"turn %d"}]}},"created_at_ms":%d}}`,
		id, j.turn, recordedAt(accepted)))
	start, startedAt := ordinal(), recordedAt(ordinal())
	add(fmt.Sprintf(`{"type":"command_started","data":{"command_id":"%s","started_at_ms":%d}}`, id, startedAt),
		fact{typ: bus.TypeTurnStarted, data: fmt.Sprintf(`{"turn":{"command_id":"%s","accepted_ordinal":%d,"turn_start_position":%d,"started_at_ms":%d}}`,
			id, accepted, start, startedAt)})
	for range j.rng.IntN(3) {
		add(fmt.Sprintf(`{"type":"session_update","data":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"<&> \u00e9 é of %s"}}}}`, id))
	}
	if j.rng.IntN(3) == 0 {
		request := fmt.Sprintf(`{"id":"q%d","message":"Which <directory> & why? \u2028","fields":[]}`, j.turn)
		add(`{"type":"elicitation_requested","data":{"request":`+request+`}}`,
			fact{typ: bus.TypeInputRequired, data: fmt.Sprintf(`{"request":%s,"turn_id":%d}`, request, accepted)})
		add(fmt.Sprintf(`{"type":"elicitation_resolved","data":{"elicitation_id":"q%d","action":"accept"}}`, j.turn),
			fact{typ: bus.TypeInputResolved, data: fmt.Sprintf(`{"elicitation_id":"q%d","turn_id":%d,"action":"accept"}`, j.turn, accepted)})
	}
	failed := func(message string) fact {
		return fact{typ: bus.TypeError, data: fmt.Sprintf(`{"message":"%s","command_id":"%s"}`, message, id)}
	}
	ended := func(outcome string) fact {
		return fact{typ: bus.TypeTurnEnded, data: fmt.Sprintf(`{"turn":{"command_id":"%s","accepted_ordinal":%d,"turn_start_position":%d,"completed_ordinal":%d,"completed_at_ms":%d,"outcome":%s}}`,
			id, accepted, start, ordinal(), recordedAt(ordinal()), outcome)}
	}
	reason := [...]string{"end_turn", "EndTurn", "cancelled", "awaiting_input", "MaxTokens", ""}[j.rng.IntN(6)]
	completed := fmt.Sprintf(`{"type":"command_completed","data":{"command_id":"%s","outcome":{"type":"prompt","data":{"stop_reason":"%s"}}}}`, id, reason)
	end := ended(`{"kind":"completed","stop_reason":"` + reason + `"}`)
	switch reason {
	case "MaxTokens":
		add(completed, failed(reason), end)
	case "awaiting_input":
		add(completed, fact{typ: bus.TypeInputRequired, data: fmt.Sprintf(`{"turn_id":%d}`, accepted)}, end)
	case "":
		add(fmt.Sprintf(`{"type":"command_interrupted","data":{"command_id":"%s","command":"prompt","message":"stopped"}}`, id),
			failed("stopped"), ended(`{"kind":"interrupted","message":"stopped"}`))
	default:
		add(completed, end)
	}
	return all
}
