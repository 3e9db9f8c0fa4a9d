package publisher

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// pageLevels is how many levels of JSON a page puts around an observation.
const pageLevels = 3

// appendEvent appends a relay event in its wire form. Observation and command id
// are spliced in as they are: the digest is over these bytes.
func appendEvent(dst []byte, e *bus.RelayEvent) []byte {
	dst = append(dst, '{')
	if e.Format != bus.FormatChained {
		dst = append(dst, `"format":`...)
		dst = strconv.AppendInt(dst, int64(e.Format), 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"ordinal":`...)
	dst = strconv.AppendUint(dst, e.Ordinal, 10)
	if len(e.Previous) > 0 {
		dst = append(dst, `,"previous_digest":"`...)
		dst = append(dst, e.Previous...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"digest":"`...)
	dst = append(dst, e.Digest...)
	dst = append(dst, `","recorded_at_ms":`...)
	dst = strconv.AppendInt(dst, e.RecordedAt, 10)
	if e.CommandID != nil {
		dst = append(dst, `,"command_id":`...)
		dst = append(dst, e.CommandID...)
	}
	dst = append(dst, `,"observation":`...)
	dst = append(dst, e.Observation...)
	return append(dst, '}')
}

// chained makes the event that follows at, in format 1. observation is a compact
// object, commandID a string's token or nil.
func chained(at bus.ChainPosition, observation, commandID []byte, recordedAt int64) (event []byte, next bus.ChainPosition) {
	e := bus.RelayEvent{
		Format:      bus.FormatChained,
		Ordinal:     at.Ordinal + 1,
		Previous:    hex.AppendEncode(nil, at.Digest[:]),
		RecordedAt:  recordedAt,
		CommandID:   commandID,
		Observation: observation,
	}
	digest, scratch := e.ComputeDigest(at.Digest, make([]byte, 0, len(observation)+len(commandID)+256))
	e.Digest = hex.AppendEncode(nil, digest[:])
	// What was hashed is not needed any more, and a little shorter than the event.
	event = appendEvent(make([]byte, 0, len(scratch)+128), &e)
	return event, bus.ChainPosition{Ordinal: e.Ordinal, Digest: digest}
}

// readyMade checks an event out of a journal against the place it must follow.
func readyMade(at bus.ChainPosition, e bus.RelayEvent) (event []byte, next bus.ChainPosition, err error) {
	if e.Format == 0 {
		e.Format = bus.FormatChained
	}
	if e.Format != bus.FormatChained && e.Format != bus.FormatStandalone {
		return nil, next, badEvent(e.Ordinal, "format", "must be 1 or 2")
	}
	if e.Ordinal != at.Ordinal+1 {
		return nil, next, badEvent(e.Ordinal, "ordinal", "must be "+strconv.FormatUint(at.Ordinal+1, 10))
	}
	compact, err := bus.Compact(e.Observation)
	if err != nil {
		return nil, next, fmt.Errorf("event %d: %w", e.Ordinal, err)
	}
	if e.Observation = compact; !bus.IsObject(compact) {
		return nil, next, badEvent(e.Ordinal, "observation", "must be an object")
	}
	if err := checkDepth(compact, pageLevels); err != nil {
		return nil, next, fmt.Errorf("event %d: %w", e.Ordinal, err)
	}
	if bus.IsNull(e.CommandID) {
		e.CommandID = nil // the digest is the same, see the contract
	}
	if e.CommandID != nil {
		if e.CommandID, err = bus.Compact(e.CommandID); err != nil || !bus.IsString(e.CommandID) {
			return nil, next, badEvent(e.Ordinal, "command_id", "must be a string's token or nil")
		}
	}
	if p, ok := bus.ParseDigest(e.Previous); e.Format == bus.FormatChained && ok && p != at.Digest {
		return nil, next, fmt.Errorf("event %d: %w: its previous digest is %s, the session's chain is at %s", e.Ordinal, ErrForked, p, at.Digest)
	}
	digest, _, err := e.Verify(at.Digest, nil)
	if err != nil {
		return nil, next, err
	}
	size := len(e.Observation) + len(e.CommandID) + overhead
	return appendEvent(make([]byte, 0, size), &e), bus.ChainPosition{Ordinal: e.Ordinal, Digest: digest}, nil
}

func badEvent(ordinal uint64, field, rule string) error {
	return fmt.Errorf("event %d: %w", ordinal, &bus.InvalidError{Reason: bus.ReasonPage, Field: field, Rule: rule})
}

// checkDepth refuses a compact value that would nest too deep once a message puts
// so many levels around it: it would be rejected there, and the chain with it.
func checkDepth(compact []byte, levels int) error {
	if bytes.Count(compact, []byte{'{'})+bytes.Count(compact, []byte{'['}) <= bus.MaxDepth-levels {
		return nil
	}
	wrapped := bytes.Repeat([]byte{'['}, levels)
	wrapped = append(wrapped, compact...)
	wrapped = append(wrapped, bytes.Repeat([]byte{']'}, levels)...)
	_, err := bus.Compact(wrapped)
	return err
}

// appendPageHead appends a page's body up to its first event.
func appendPageHead(dst []byte, after bus.ChainPosition) []byte {
	dst = append(dst, `{"after":{"ordinal":`...)
	dst = strconv.AppendUint(dst, after.Ordinal, 10)
	dst = append(dst, `,"digest":"`...)
	dst = hex.AppendEncode(dst, after.Digest[:])
	return append(dst, `"},"events":[`...)
}

// pageFrame is the most that a page has besides its events and their commas.
const pageFrame = len(`{"after":{"ordinal":9223372036854775807,"digest":""},"events":[]}`) + 2*len(bus.Digest{})
