package bus

import (
	"encoding/binary"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects of a body may nest. It stands below
// the limits of the JSON readers that will meet a fact (SQLite's functions stop
// at 1,000 levels, Go's decoder at 10,000), with room for the levels that the
// wire form adds.
const MaxDepth = 512

// wireLevels is more than the levels that the wire form adds around a body's: the
// event, and the list and the page in which it stands.
const wireLevels = 8

// Compact checks that src is exactly one JSON text (RFC 8259, valid UTF-8, no
// byte order mark, at most [MaxDepth] levels) and returns it without the white
// space between its tokens. Nothing else changes: digits, escapes, the order of
// members and duplicate members stay as they are, a lone surrogate's escape
// included. The result is src itself if there was nothing to take out, else a
// new slice. The error is an *[InvalidError] with [ReasonBody] that names the
// offset of the first fault.
func Compact(src []byte) ([]byte, error) { return compact(src, MaxDepth) }

// CompactWire is [Compact] for what Skald has made of bodies: events, pages and
// other answers, and lines that hold a body. What stands around a body may nest a
// few levels more, so that no body is accepted whose fact could not be read.
func CompactWire(src []byte) ([]byte, error) { return compact(src, MaxDepth+wireLevels) }

func compact(src []byte, most int) ([]byte, error) {
	if len(src) == 0 {
		return nil, invalid(ReasonBody, "body", "must not be empty")
	}
	if !utf8.Valid(src) {
		return nil, invalid(ReasonBody, "body", "must be valid UTF-8, byte %d is not", invalidUTF8At(src))
	}
	s := scanner{src: src, most: most}
	if err := s.scan(); err != nil {
		return nil, err
	}
	if s.out == nil {
		return src, nil
	}
	return append(s.out, src[s.kept:]...), nil
}

func invalidUTF8At(b []byte) int {
	at := 0
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return at
}

// scanner walks one JSON text without recursion, so that nesting costs a bit a
// level and no stack.
type scanner struct {
	src   []byte
	i     int
	out   []byte // the text so far without white space; nil while there was none
	kept  int    // src up to here is in out, or was white space
	most  int    // levels
	depth int
	open  [MaxDepth + wireLevels]byte // '{' or '[' for each open level
}

func (s *scanner) fail(rule string) error {
	if s.i >= len(s.src) {
		return invalid(ReasonBody, "body", "is cut off after %d bytes", len(s.src))
	}
	return invalid(ReasonBody, "body", "is not JSON at byte %d: %s", s.i, rule)
}

// space passes white space and takes it out of the output.
func (s *scanner) space() {
	if s.i < len(s.src) && s.src[s.i] > ' ' {
		return
	}
	start := s.i
	for s.i < len(s.src) {
		switch s.src[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
			continue
		}
		break
	}
	if s.i > start {
		if s.out == nil {
			s.out = make([]byte, 0, len(s.src))
		}
		s.out = append(s.out, s.src[s.kept:start]...)
		s.kept = s.i
	}
}

func (s *scanner) scan() error {
	for {
		// A value begins here.
		s.space()
		if s.i >= len(s.src) {
			return s.fail("")
		}
		switch c := s.src[s.i]; c {
		case '{', '[':
			if s.depth == s.most {
				return invalid(ReasonBody, "body", "nests deeper than %d levels at byte %d", s.most, s.i)
			}
			s.open[s.depth] = c
			s.depth++
			s.i++
			s.space()
			if s.i < len(s.src) && s.src[s.i] == c+2 { // '{'+2 is '}', '['+2 is ']'
				s.i++
				s.depth--
				break
			}
			if c == '{' {
				if err := s.key(); err != nil {
					return err
				}
			}
			continue
		case '"':
			if err := s.str(); err != nil {
				return err
			}
		case 't':
			if err := s.literal("true"); err != nil {
				return err
			}
		case 'f':
			if err := s.literal("false"); err != nil {
				return err
			}
		case 'n':
			if err := s.literal("null"); err != nil {
				return err
			}
		default:
			if err := s.number(); err != nil {
				return err
			}
		}
		// A value ended here: close levels until one goes on.
		for {
			s.space()
			if s.depth == 0 {
				if s.i != len(s.src) {
					return s.fail("there is more after the value")
				}
				return nil
			}
			if s.i >= len(s.src) {
				return s.fail("")
			}
			level := s.open[s.depth-1]
			if s.src[s.i] == level+2 {
				s.i++
				s.depth--
				continue
			}
			if s.src[s.i] != ',' {
				return s.fail("a comma or the end of the object or array must follow")
			}
			s.i++
			if level == '{' {
				s.space()
				if err := s.key(); err != nil {
					return err
				}
			}
			break
		}
	}
}

// key passes a member's name and its colon.
func (s *scanner) key() error {
	if s.i >= len(s.src) || s.src[s.i] != '"' {
		return s.fail("a member name must follow")
	}
	if err := s.str(); err != nil {
		return err
	}
	s.space()
	if s.i >= len(s.src) || s.src[s.i] != ':' {
		return s.fail("a colon must follow")
	}
	s.i++
	return nil
}

// str passes a string that begins at i.
func (s *scanner) str() error {
	src := s.src
	for i := s.i + 1; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			s.i = i + 1
			return nil
		case c == '\\':
			if i+1 >= len(src) {
				s.i = len(src)
				return s.fail("")
			}
			switch src[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				for k := i + 2; k < i+6; k++ {
					if k >= len(src) || hexDigit(src[k]) < 0 {
						s.i = k
						return s.fail("four hex digits must follow \\u")
					}
				}
				i += 6
			default:
				s.i = i
				return s.fail("unknown escape")
			}
		case c < 0x20:
			s.i = i
			return s.fail("a control character in a string must be escaped")
		default:
			i++
			// Most of a body is plain text: pass eight bytes at a time.
			for i+8 <= len(src) && !special(binary.LittleEndian.Uint64(src[i:])) {
				i += 8
			}
		}
	}
	s.i = len(src)
	return s.fail("")
}

// special reports whether one of eight bytes may be a quote, a backslash or a
// control character, by arithmetic on all of them at once: subtracting borrows
// into a byte's high bit only where the byte was smaller.
func special(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, backslash := w^(ones*'"'), w^(ones*'\\')
	below := (w - ones*0x20) & ^w
	return (below|(quote-ones)&^quote|(backslash-ones)&^backslash)&highs != 0
}

func (s *scanner) literal(word string) error {
	if len(s.src)-s.i < len(word) || string(s.src[s.i:s.i+len(word)]) != word {
		return s.fail("a value must follow")
	}
	s.i += len(word)
	return nil
}

func (s *scanner) number() error {
	src, i := s.src, s.i
	digits := func() bool {
		start := i
		for i < len(src) && '0' <= src[i] && src[i] <= '9' {
			i++
		}
		return i > start
	}
	if src[i] == '-' {
		i++
	}
	if i < len(src) && src[i] == '0' {
		i++
	} else if !digits() {
		return s.fail("a value must follow")
	}
	if i < len(src) && src[i] == '.' {
		i++
		if !digits() {
			s.i = i
			return s.fail("a digit must follow the point")
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if !digits() {
			s.i = i
			return s.fail("a digit must follow the exponent")
		}
	}
	s.i = i
	return nil
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
