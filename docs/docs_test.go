package docs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/constant"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// page is contract.md.
type page struct {
	t    *testing.T
	text string
}

func open(t *testing.T) page {
	t.Helper()
	b, err := os.ReadFile("contract.md")
	require.NoError(t, err)
	return page{t: t, text: string(b)}
}

// section returns what stands under a heading, up to the next of any level.
func (p page) section(heading string) string {
	p.t.Helper()
	_, rest, ok := strings.Cut(p.text, "\n"+heading+"\n")
	require.True(p.t, ok, heading)
	body, _, _ := strings.Cut(rest, "\n#")
	return body
}

// lines returns the JSON texts of the fenced blocks of a section, one a line.
func (p page) lines(heading string) []string {
	p.t.Helper()
	var out []string
	inside := false
	for line := range strings.SplitSeq(p.section(heading), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case inside:
			out = append(out, line)
		}
	}
	require.False(p.t, inside, "a block under %s is not closed", heading)
	return out
}

// row returns the cells of the one table row of a section whose given cell names
// the word as code, perhaps beside others.
func (p page) row(heading string, cell int, word string) []string {
	p.t.Helper()
	var found []string
	for line := range strings.SplitSeq(p.section(heading), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if cell < len(cells) && strings.Contains(cells[cell], "`"+word+"`") {
			require.Nil(p.t, found, "%s has two rows under %s", word, heading)
			for _, c := range cells {
				found = append(found, strings.TrimSpace(c))
			}
		}
	}
	require.NotNil(p.t, found, "%s has no row under %s", word, heading)
	return found
}

var code = regexp.MustCompile("`([^`\n]+)`")

// example returns the JSON text that stands as code in a cell.
func (p page) example(cell string) string {
	p.t.Helper()
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		if strings.HasPrefix(m[1], "{") {
			return m[1]
		}
	}
	require.Fail(p.t, "no example", cell)
	return ""
}

// Everything on the page that looks like JSON is JSON, without white space between
// tokens as Skald writes it.
func TestExamples_Parse(t *testing.T) {
	p := open(t)
	n := 0
	check := func(text string) {
		compact, err := bus.CompactWire([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, text, string(compact))
		n++
	}
	inside := false
	for line := range strings.SplitSeq(p.text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		if inside {
			check(line)
			continue
		}
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(m[1], "{") && !strings.HasPrefix(m[1], "{id}") {
				check(m[1])
			}
		}
	}
	require.False(t, inside)
	require.Greater(t, n, 25)
}

// Ids and tokens of the page are each other's escape, and the subjects are those
// of the code.
func TestSubjects(t *testing.T) {
	p := open(t)
	pairs := regexp.MustCompile("`([^`]+)` → `([^`]+)`").FindAllStringSubmatch(p.text, -1)
	require.GreaterOrEqual(t, len(pairs), 5)
	for _, m := range pairs {
		require.Equal(t, m[2], bus.Escape(m[1]))
		id, err := bus.Unescape("id", m[2])
		require.NoError(t, err)
		require.Equal(t, m[1], id)
	}
	require.Contains(t, p.text, "`my job v1.2` → `my=20job=20v1=2E2`")
	s, err := bus.NewSubjects("")
	require.NoError(t, err)
	k := bus.Key{Workspace: "acme", Session: "my job v1.2"}
	for _, subject := range []string{
		s.IngestStream(), s.EventsStream(), s.IngestAdmin(), s.Void(), s.Event(k, "*"),
		strings.Replace(s.Done(k), ".acme."+bus.Escape(k.Session), ".<workspace>.<session>", 1),
		"skald.api.acme.position." + bus.Escape(k.Session), "skald.api.acme.outcome." + bus.Escape(k.Session),
	} {
		require.Contains(t, p.text, "`"+subject+"`")
	}
}

// Other systems are named only where the page says whose journals it reads.
func TestOtherNames(t *testing.T) {
	p := open(t)
	const name = "Mjolnir"
	require.Equal(t, 1, strings.Count(p.section("### Journals"), name))
	require.Equal(t, 1, strings.Count(p.text, name))
}

// Every name of the contract stands on the page, exactly as the code writes it.
func TestNames(t *testing.T) {
	p := open(t)
	section := map[string]string{"Reason": "## Rejects", "Class": "## Classes", "Op": "## Control", "Code": "## Errors"}
	cell := map[string]int{"Code": 1}
	seen := map[string]int{}
	for _, c := range append(constants(t, "../bus"), constants(t, "../internal/api")...) {
		if c.val.Kind() != constant.String {
			continue
		}
		word := constant.StringVal(c.val)
		kind := c.typ
		switch {
		case section[kind] != "":
			p.row(section[kind], cell[kind], word)
		case strings.HasPrefix(c.name, "Type"):
			kind = "Type"
			p.row("## Facts", 0, word)
		case strings.HasPrefix(c.name, "Outcome"):
			kind = "Outcome"
			_, answers, ok := strings.Cut(p.section("## Outcomes"), "\nIt answers ")
			require.True(t, ok)
			require.Contains(t, answers, "`"+word+"`", c.name)
		case strings.HasPrefix(c.name, "Header"),
			strings.HasPrefix(c.name, "Param"), strings.HasPrefix(c.name, "Meta"):
			kind = regexp.MustCompile("^[A-Z][a-z]+").FindString(c.name)
			require.Contains(t, p.text, "`"+word+"`", c.name)
		case c.name == "AdminToken", c.name == "DefaultPrefix":
			require.Contains(t, p.text, "`"+word+"`", c.name)
		case c.name == "MinServerVersion":
			require.Contains(t, p.text, word+" or later (`bus."+c.name+"`)")
		default:
			require.Fail(t, "a new constant: does the page need it?", "%s = %q", c.name, word)
		}
		seen[kind]++
	}
	for kind, least := range map[string]int{"Reason": 10, "Class": 5, "Op": 3, "Code": 12, "Type": 7, "Outcome": 5, "Header": 9, "Param": 9, "Meta": 4} {
		require.GreaterOrEqual(t, seen[kind], least, kind)
	}
	for o := projection.Applied; o <= projection.Dropped; o++ {
		p.row("## Outcomes", 0, o.String())
	}
	for _, r := range constants(t, "../bus", "errors.go") {
		if r.typ != "Reason" {
			continue
		}
		final := p.row("## Rejects", 0, constant.StringVal(r.val))[1]
		switch bus.Reason(constant.StringVal(r.val)) {
		case bus.ReasonAhead:
			require.Equal(t, "**no**", final)
		case bus.ReasonResync, bus.ReasonIngestHole, bus.ReasonIngestTrimmed, bus.ReasonIngestRolledBack, bus.ReasonIngestRecreated:
			require.Equal(t, "–", final)
		default:
			require.Equal(t, "yes", final, r.name)
		}
	}
}

// Every bound stands in the table of limits with its value.
func TestLimits(t *testing.T) {
	p := open(t)
	const heading = "## Limits"
	check := func(name string, value int64) {
		cells := p.row(heading, 0, name)
		names, values := strings.Split(cells[0], "; "), strings.Split(cells[1], "; ")
		require.Len(t, values, len(names), cells[0])
		for i := range names {
			if names[i] == "`"+name+"`" {
				require.Equal(t, grouped(value), values[i], name)
				return
			}
		}
		require.Fail(t, "not found", name)
	}
	n := 0
	for folder, of := range map[string]struct {
		prefix string
		files  []string
	}{
		"../bus":                     {prefix: "bus."},
		"../materializer/projection": {"projection.", []string{"limits.go"}},
		"../internal/api":            {prefix: "api."},
	} {
		for _, c := range constants(t, folder, of.files...) {
			value, isInt := constant.Int64Val(constant.ToInt(c.val))
			if c.val.Kind() != constant.Int || !isInt {
				continue
			}
			n++
			switch c.name {
			case "Contract":
				require.Contains(t, p.text, fmt.Sprintf("Contract version: %d (`bus.Contract`)", value))
			case "FormatChained":
				require.Contains(t, p.text, fmt.Sprintf("`format` (%d, the default, or %d)", value, bus.FormatStandalone))
			case "FormatStandalone": // beside the other
			default:
				if c.typ == "time.Duration" {
					value /= int64(time.Millisecond)
				}
				check(of.prefix+c.name, value)
			}
		}
	}
	require.Greater(t, n, 24)
	check("store.MaxPageBytes", store.MaxPageBytes)
	check("store.MaxRejectBytes", store.MaxRejectBytes)
}

// grouped writes n with a comma at each three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The table of errors gives each code the status that the doors give it.
func TestErrors(t *testing.T) {
	p := open(t)
	for _, err := range []error{
		&api.ParameterError{Parameter: "limit"}, bus.ErrNotFound, &store.CursorError{Err: bus.ErrCursorAhead, Epoch: "e"},
		&store.CursorError{Err: bus.ErrCursorGone, Epoch: "e"}, &store.CursorError{Err: bus.ErrOtherEpoch, Epoch: "e"},
		&store.AmbiguousError{Workspaces: []string{"a", "b"}}, bus.ErrBehind, bus.ErrUnavailable, os.ErrInvalid,
	} {
		f := api.FailureOf(err)
		require.Equal(t, fmt.Sprint(f.Status), p.row("## Errors", 1, string(f.Code))[0], f.Code)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(f.AppendJSON(nil), &members))
		for name := range members {
			if name != "error" && name != "code" {
				require.Contains(t, p.row("## Errors", 1, string(f.Code))[2], "`"+name+"`")
			}
		}
	}
	text := p.lines("## Errors")[0]
	f, ok := api.ParseFailure(410, []byte(text))
	require.True(t, ok)
	require.Equal(t, text, string(f.AppendJSON(nil)))
}

// The worked digest is that of the bytes shown, and one of the agreed vectors.
func TestDigest(t *testing.T) {
	p := open(t)
	digested := p.lines("## Projection pages")[1]
	sum := sha256.Sum256([]byte("hel-relay-event-v1\x00" + digested))
	require.Contains(t, p.text, "`hel-relay-event-v1`")
	require.Contains(t, p.text, "the digest is `"+hex.EncodeToString(sum[:])+"`")
	b, err := os.ReadFile("../internal/contract/digest-vectors.json")
	require.NoError(t, err)
	var v struct {
		Vectors []struct {
			Observation string `json:"observation_bytes"`
			Digest      string
		}
	}
	require.NoError(t, json.Unmarshal(b, &v))
	found := false
	for _, e := range v.Vectors {
		found = found || e.Digest == hex.EncodeToString(sum[:]) && strings.HasSuffix(digested, `"observation":`+e.Observation+"}")
	}
	require.True(t, found, "no vector has this digest and observation")
}
