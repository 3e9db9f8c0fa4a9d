package bus

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxID is the longest id of a workspace or a session, in bytes.
const MaxID = 256

// Key names a session: by workspace and id together. Two workspaces may use the
// same session id without reaching each other.
type Key struct {
	Workspace string
	Session   string
}

// CheckID reports whether id may name a workspace or a session: any UTF-8 string
// of 1 to [MaxID] bytes without control characters. The error is an
// *[InvalidError] that names field.
func CheckID(field, id string) error {
	switch {
	case id == "":
		return invalid(ReasonSubject, field, "must not be empty")
	case len(id) > MaxID:
		return invalid(ReasonSubject, field, "is %d bytes long, at most %d are allowed", len(id), MaxID)
	case !utf8.ValidString(id):
		return invalid(ReasonSubject, field, "must be valid UTF-8")
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return invalid(ReasonSubject, field, "must not contain control characters, found %U", r)
		}
	}
	return nil
}

// Check reports whether both ids of the key are valid, as [CheckID] does.
func (k Key) Check() error {
	if err := CheckID("workspace", k.Workspace); err != nil {
		return err
	}
	return CheckID("session", k.Session)
}

// plain reports whether c stands for itself in a token.
func plain(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// Escape returns id as one subject token: a byte outside A-Z a-z 0-9 _ - becomes
// =XX with upper-case hex. No two ids share a token and no token is a wildcard.
// It does not check the id.
func Escape(id string) string {
	n := 0
	for i := 0; i < len(id); i++ {
		if !plain(id[i]) {
			n++
		}
	}
	if n == 0 {
		return id
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(id) + 2*n)
	for i := 0; i < len(id); i++ {
		if c := id[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// Unescape returns the id that token stands for. A token is valid only if
// escaping its id gives the token again, so that every id has exactly one
// subject; anything else is an *[InvalidError] that names field.
func Unescape(field, token string) (string, error) {
	id := token
	if strings.IndexByte(token, '=') >= 0 {
		b := make([]byte, 0, len(token))
		for i := 0; i < len(token); i++ {
			if token[i] != '=' {
				b = append(b, token[i])
				continue
			}
			if i+2 >= len(token) || upperHex(token[i+1]) < 0 || upperHex(token[i+2]) < 0 {
				return "", invalid(ReasonSubject, field, "token has a = that two upper-case hex digits do not follow")
			}
			b = append(b, byte(upperHex(token[i+1])<<4|upperHex(token[i+2])))
			i += 2
		}
		id = string(b)
	}
	if err := CheckID(field, id); err != nil {
		return "", err
	}
	if Escape(id) != token {
		return "", invalid(ReasonSubject, field, "token is not the canonical escape of its id, which is %q", Escape(id))
	}
	return id, nil
}

func upperHex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
