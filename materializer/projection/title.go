package projection

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skaldbus/skald/bus"
)

// sessionUpdate reads what the harness says of its session: of all updates only a
// new title counts. Null clears it, as does one of nothing but white space.
func (t *step) sessionUpdate(data []byte) bool {
	if isOtherUpdate(data) {
		return true
	}
	var update []byte
	ok := members(data, func(name string) *[]byte {
		if name == "update" {
			return &update
		}
		return nil
	})
	if !ok {
		return false
	}
	var kind, title []byte
	twice := false // a second title only matters in an update that has one
	ok = members(update, func(name string) *[]byte {
		switch name {
		case "sessionUpdate":
			return &kind
		case "title":
			twice = twice || title != nil
			title = nil
			return &title
		}
		return nil
	})
	if !ok || !bus.IsString(kind) {
		return false
	}
	if string(decoded(kind)) != "session_info_update" || title == nil {
		return true
	}
	next := ""
	switch {
	case twice, !bus.IsString(title) && !bus.IsNull(title):
		return false
	case bus.IsString(title):
		next = titleToken(normalize(string(decoded(title)), 0))
	}
	if t.View.ProjectedTitle != next {
		t.View.ProjectedTitle = next
		t.Changed |= PartView
	}
	return true
}

// isOtherUpdate reports whether data is in the usual form and surely of another
// kind, without walking it: what an agent says piece by piece is most of every
// journal. Only the escape of a code point can spell the name's letters differently.
func isOtherUpdate(data []byte) bool {
	return bytes.HasPrefix(data, []byte(`{"update":{"sessionUpdate":"`)) &&
		!bytes.Contains(data, []byte("session_info_update")) && !bytes.Contains(data, []byte(`\u`))
}

// promptTitle returns the token of the title that a queued prompt gives, "" if
// none. content is the command's data. It takes what text it finds: a prompt
// without usable text is queued all the same.
func promptTitle(content []byte) string {
	var blocks []byte
	ok := members(content, func(name string) *[]byte {
		if name == "prompt" {
			return &blocks
		}
		return nil
	})
	if !ok {
		return ""
	}
	var text []byte
	bus.Elements(blocks, func(block []byte) error {
		var kind, part []byte
		ok := members(block, func(name string) *[]byte {
			switch name {
			case "type":
				return &kind
			case "text":
				return &part
			}
			return nil
		})
		if ok && bus.IsString(kind) && string(decoded(kind)) == "text" && bus.IsString(part) {
			text = append(append(text, decoded(part)...), '\n')
		}
		return nil
	})
	return titleToken(normalize(string(text), MaxPromptTitle))
}

// titleToken returns the title as a JSON string token, "" if it is empty.
func titleToken(title string) string {
	if title == "" {
		return ""
	}
	return string(bus.AppendQuoted(nil, title))
}

// normalize takes leading reserved blocks off and makes each run of white space
// one space, none at the ends. A text of more than limit code points is cut at the
// last space before that and ends in an ellipsis; limit 0 is none.
func normalize(text string, limit int) string {
	text = skipReserved(text)
	var b strings.Builder
	points := 0
	for len(text) > 0 {
		c, n := utf8.DecodeRuneInString(text)
		part, rest := text[:n], text[n:]
		if unicode.IsSpace(c) {
			if rest = strings.TrimLeftFunc(rest, unicode.IsSpace); rest == "" {
				break
			}
			part = " "
		}
		if points == limit && limit > 0 {
			return ellipsis(b.String())
		}
		b.WriteString(part)
		text = rest
		points++
	}
	return b.String()
}

// ellipsis cuts a text that is one code point too long for an ellipsis.
func ellipsis(text string) string {
	_, n := utf8.DecodeLastRuneInString(text)
	text = text[:len(text)-n]
	if space := strings.LastIndexByte(text, ' '); space > 0 {
		text = text[:space]
	}
	return text + "…"
}

// skipReserved takes white space and blocks of reserved tags off the beginning:
// what programs put before the words of a person.
func skipReserved(text string) string {
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		name := reservedTag(text)
		if name == "" {
			return text
		}
		end := "</" + name + ">"
		i := strings.Index(text, end)
		if i < 0 {
			return text
		}
		text = text[i+len(end):]
	}
}

// reservedTag returns the name of the reserved tag that text begins with, or "".
func reservedTag(text string) string {
	if text == "" || text[0] != '<' {
		return ""
	}
	i := strings.IndexFunc(text[1:], func(r rune) bool { return r == '>' || unicode.IsSpace(r) })
	if i < 0 {
		return ""
	}
	name := text[1 : 1+i]
	if strings.HasPrefix(name, "hel-") || strings.HasPrefix(name, "mj-") || name == "user_shell_command" {
		return name
	}
	return ""
}
