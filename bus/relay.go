package bus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Digest is a relay event's SHA-256. The zero value is the genesis digest, which
// is written as 64 zeros and stands for "nothing applied".
type Digest [sha256.Size]byte

// String returns 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads exactly 64 lower-case hex digits.
func ParseDigest(s []byte) (d Digest, ok bool) {
	if len(s) != 2*len(d) {
		return d, false
	}
	for i := range d {
		hi, lo := lowerHex(s[2*i]), lowerHex(s[2*i+1])
		if hi < 0 || lo < 0 {
			return Digest{}, false
		}
		d[i] = byte(hi<<4 | lo)
	}
	return d, true
}

func lowerHex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// ChainPosition is the place a session's chain has reached: the ordinal of its
// last relay event and that event's digest. The zero value is the beginning.
type ChainPosition struct {
	Ordinal uint64
	Digest  Digest
}

// Formats of relay events. Format 1 chains each event to the one before by
// previous_digest; format 2 has none and relies on contiguous ordinals.
const (
	FormatChained    = 1
	FormatStandalone = 2
)

// The digests' domains: contract semantics §1.2, each ended by a NUL byte.
const (
	domainV1 = "hel-relay-event-v1\x00"
	domainV2 = "hel-relay-event-v2\x00"
)

// RelayEvent is one event of a session's journal. Its slices belong to the
// compact page that it was read from.
type RelayEvent struct {
	Format      int
	Ordinal     uint64
	Previous    []byte // previous_digest's hex as sent, unchecked; nil if absent
	Digest      []byte // digest's hex as sent, unchecked: what is skipped is not validated
	RecordedAt  int64  // ms
	CommandID   []byte // the string's token as sent; nil if absent or null
	Observation []byte // the compact object as sent
}

// ComputeDigest returns the digest of e over the bytes as sent: its format's
// domain, then the compact object of ordinal, previous_digest (format 1 only),
// recorded_at_ms, command_id (if present) and observation. previous is only
// read for format 1. buf is scratch space and is returned for the next call.
func (e *RelayEvent) ComputeDigest(previous Digest, buf []byte) (Digest, []byte) {
	buf = e.appendDigested(buf[:0], previous, e.Observation)
	return sha256.Sum256(buf), buf
}

func (e *RelayEvent) appendDigested(b []byte, previous Digest, observation []byte) []byte {
	if e.Format == FormatStandalone {
		b = append(b, domainV2...)
	} else {
		b = append(b, domainV1...)
	}
	b = append(b, `{"ordinal":`...)
	b = strconv.AppendUint(b, e.Ordinal, 10)
	if e.Format != FormatStandalone {
		b = append(b, `,"previous_digest":"`...)
		b = hex.AppendEncode(b, previous[:])
		b = append(b, '"')
	}
	b = append(b, `,"recorded_at_ms":`...)
	b = strconv.AppendInt(b, e.RecordedAt, 10)
	if e.CommandID != nil {
		b = append(b, `,"command_id":`...)
		b = append(b, e.CommandID...)
	}
	b = append(b, `,"observation":`...)
	b = append(b, observation...)
	return append(b, '}')
}

// Verify checks e's digests in the order of the contract (semantics §1.3): for
// format 1 the previous digest must be previous, for format 2 there must be
// none; then the digest must be that of the bytes sent. It returns the digest.
// The error is an *[InvalidError] with [ReasonChain].
func (e *RelayEvent) Verify(previous Digest, buf []byte) (Digest, []byte, error) {
	if e.Format == FormatStandalone {
		if len(e.Previous) > 0 {
			return Digest{}, buf, invalid(ReasonChain, "previous_digest", "of event %d must be empty in format 2", e.Ordinal)
		}
	} else if p, ok := ParseDigest(e.Previous); !ok {
		return Digest{}, buf, invalid(ReasonChain, "previous_digest", "of event %d must be 64 lower-case hex digits", e.Ordinal)
	} else if p != previous {
		return Digest{}, buf, invalid(ReasonChain, "previous_digest", "of event %d is %s, the chain is at %s", e.Ordinal, p, previous)
	}
	given, ok := ParseDigest(e.Digest)
	if !ok {
		return Digest{}, buf, invalid(ReasonChain, "digest", "of event %d must be 64 lower-case hex digits", e.Ordinal)
	}
	computed, buf := e.ComputeDigest(previous, buf)
	if given == computed {
		return given, buf, nil
	}
	if legacy, ok := legacyObservation(e.Observation); ok {
		buf = e.appendDigested(buf[:0], previous, legacy)
		if given == sha256.Sum256(buf) {
			return given, buf, nil
		}
	}
	return Digest{}, buf, invalid(ReasonChain, "digest", "of event %d is not that of its bytes, which is %s", e.Ordinal, computed)
}

// legacyObservation returns a session_opened observation as builds of September
// 2026 encoded it, with native_continuity_lost written although false: the one
// alternative encoding that the contract accepts (semantics §1.4).
func legacyObservation(o []byte) ([]byte, bool) {
	const opened = `{"type":"session_opened","data":{`
	if !bytes.HasPrefix(o, []byte(opened)) || !bytes.HasSuffix(o, []byte("}}")) || bytes.Contains(o, []byte(`"native_continuity_lost"`)) {
		return nil, false
	}
	b := append([]byte(nil), o[:len(o)-2]...)
	if len(b) > len(opened) {
		b = append(b, ',')
	}
	return append(b, `"native_continuity_lost":false}}`...), true
}
