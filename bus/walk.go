package bus

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Members calls fn for each member of obj, which must be an object as [Compact]
// returns it, in the order they stand: with the decoded name and the value's
// bytes, which belong to obj. It stops at the first error, returns it, and
// returns false in ok if obj is not an object.
func Members(obj []byte, fn func(name string, value []byte) error) (ok bool, err error) {
	if len(obj) < 2 || obj[0] != '{' {
		return false, nil
	}
	for i := 1; obj[i] != '}'; {
		if obj[i] == ',' {
			i++
		}
		end := skip(obj, i)
		name := obj[i:end]
		i = end + 1 // past the colon
		end = skip(obj, i)
		if err := fn(memberName(name), obj[i:end]); err != nil {
			return true, err
		}
		i = end
	}
	return true, nil
}

// memberName decodes a member's name. The names that pages consist of, ten for each
// event, are taken from here and not allocated: that is an eighth of a page's time.
func memberName(token []byte) string {
	switch string(token[1 : len(token)-1]) {
	case "ordinal":
		return "ordinal"
	case "previous_digest":
		return "previous_digest"
	case "digest":
		return "digest"
	case "recorded_at_ms":
		return "recorded_at_ms"
	case "command_id":
		return "command_id"
	case "observation":
		return "observation"
	case "type":
		return "type"
	case "data":
		return "data"
	case "message":
		return "message"
	}
	return Unquote(token)
}

// Elements calls fn for each element of arr, which must be an array as [Compact]
// returns it. It stops at the first error and returns false in ok if arr is not
// an array.
func Elements(arr []byte, fn func(value []byte) error) (ok bool, err error) {
	if len(arr) < 2 || arr[0] != '[' {
		return false, nil
	}
	for i := 1; arr[i] != ']'; {
		if arr[i] == ',' {
			i++
		}
		end := skip(arr, i)
		if err := fn(arr[i:end]); err != nil {
			return true, err
		}
		i = end
	}
	return true, nil
}

// skip returns the end of the value that begins at i in a compact JSON text.
func skip(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':':
			i++
			continue
		default: // a number or a literal
			for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ':' {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// skipString returns the end of the string that begins at i.
func skipString(b []byte, i int) int {
	i++
	for {
		q := i + bytes.IndexByte(b[i:], '"')
		// A quote ends the string unless an odd number of backslashes precedes it.
		k := q
		for k > i && b[k-1] == '\\' {
			k--
		}
		if (q-k)%2 == 0 {
			return q + 1
		}
		i = q + 1
	}
}

// IsString reports whether the compact value is a string, IsObject an object,
// IsNull null.
func IsString(v []byte) bool { return len(v) > 0 && v[0] == '"' }

// IsObject reports whether the compact value is an object.
func IsObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }

// IsNull reports whether the compact value is null.
func IsNull(v []byte) bool { return len(v) > 0 && v[0] == 'n' }

// Int reads a compact value as an integer literal within int64: no fraction, no
// exponent, not even one that would be whole.
func Int(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// Unquote decodes a JSON string token. Escapes of lone surrogates become the
// three bytes that encode the surrogate, which is no valid UTF-8 but keeps
// different strings different; the result is for comparing, the token itself is
// what goes out again.
func Unquote(tok []byte) string {
	in := tok[1 : len(tok)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in)
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		switch in[i+1] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := rune4(in[i+2:])
			if utf16.IsSurrogate(r) {
				if i+12 <= len(in) && in[i+6] == '\\' && in[i+7] == 'u' {
					if full := utf16.DecodeRune(r, rune4(in[i+8:])); full != utf8.RuneError {
						out = utf8.AppendRune(out, full)
						i += 12
						continue
					}
				}
				out = append(out, byte(0xE0|r>>12), byte(0x80|r>>6&0x3F), byte(0x80|r&0x3F))
			} else {
				out = utf8.AppendRune(out, r)
			}
			i += 6
			continue
		default: // " \ /
			out = append(out, in[i+1])
		}
		i += 2
	}
	return string(out)
}

func rune4(h []byte) rune {
	return rune(hexDigit(h[0])<<12 | hexDigit(h[1])<<8 | hexDigit(h[2])<<4 | hexDigit(h[3]))
}

// AppendQuoted appends s as a JSON string token. It escapes what JSON demands,
// and nothing else: no <, > or &, no U+2028. A byte that is not UTF-8 becomes
// U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}
