package projection

import (
	"fmt"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// ID is an id inside an observation: the JSON string token as sent, which goes out
// again, and what it stands for, by which ids are compared. It is stored as its
// token.
type ID struct{ token, text string }

// newID copies the token.
func newID(token []byte) ID {
	id := ID{token: string(token)}
	id.decode()
	return id
}

// decode keeps the decoded form with the token. Comparing an id with thousands of
// stored ones must not decode each of them again.
func (i *ID) decode() {
	if strings.IndexByte(i.token, '\\') < 0 {
		i.text = i.token[1 : len(i.token)-1]
		return
	}
	i.text = bus.Unquote([]byte(i.token))
}

// is reports whether the id stands for text.
func (i ID) is(text []byte) bool { return i.text == string(text) }

// MarshalText returns the token.
func (i ID) MarshalText() ([]byte, error) { return []byte(i.token), nil }

// UnmarshalText reads what MarshalText returned. The error wraps [ErrEncoding].
func (i *ID) UnmarshalText(token []byte) error {
	if !isCompact(string(token), '"') {
		return fmt.Errorf("%w: an id is not a JSON string", ErrEncoding)
	}
	*i = newID(token)
	return nil
}
