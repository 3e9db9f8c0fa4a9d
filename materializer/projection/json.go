package projection

import (
	"bytes"

	"github.com/skaldbus/skald/bus"
)

// members reads the members of a compact object that slot names: slot returns
// where a member's value goes, nil if it is not read. It reports false if obj is
// no object, or if a member that is read occurs twice: readers of JSON differ in
// which of two they take.
func members(obj []byte, slot func(name string) *[]byte) bool {
	once := true
	ok, _ := bus.Members(obj, func(name string, v []byte) error {
		if to := slot(name); to != nil {
			once = once && *to == nil
			*to = v
		}
		return nil
	})
	return ok && once
}

// decoded returns what a string token stands for. Without escapes that is a part
// of the token.
func decoded(token []byte) []byte {
	in := token[1 : len(token)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	return []byte(bus.Unquote(token))
}

// sameText reports whether two string tokens stand for the same string.
func sameText(a string, b []byte) bool {
	if a == string(b) {
		return true
	}
	// Without escapes different tokens are different strings.
	if !hasEscape(a) && bytes.IndexByte(b, '\\') < 0 {
		return false
	}
	return bus.Unquote([]byte(a)) == bus.Unquote(b)
}

func hasEscape(token string) bool {
	for i := 0; i < len(token); i++ {
		if token[i] == '\\' {
			return true
		}
	}
	return false
}

// isID reports whether the value may be an id inside an observation.
func isID(v []byte) bool { return bus.IsString(v) && len(v) <= MaxObservationID }

// isAbsent reports whether an optional member is absent or null.
func isAbsent(v []byte) bool { return v == nil || bus.IsNull(v) }

func isArray(v []byte) bool { return len(v) > 0 && v[0] == '[' }
