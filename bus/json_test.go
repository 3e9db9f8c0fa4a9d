package bus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

// White space between tokens goes; every other byte stays.
func TestCompact(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                      `{}`,
		" {\t}\r\n":               `{}`,
		`[ ]`:                     `[]`,
		` [ 1 , 2 ] `:             `[1,2]`,
		`{ "a" : 1 , "b" : [ ] }`: `{"a":1,"b":[]}`,
		`"a b"`:                   `"a b"`,
		` " a " `:                 `" a "`,
		`null`:                    `null`,
		" true ":                  `true`,
		`false`:                   `false`,
		// Digits as sent: no float, no rounding, no overflow.
		`[0,-0,1.0,1.50,1e400,1E+2,-1e-9,12345678901234567890123,9007199254740993]`: `[0,-0,1.0,1.50,1e400,1E+2,-1e-9,12345678901234567890123,9007199254740993]`,
		// Escapes as sent, and characters that encoders like to escape.
		`"\u00e9\/\b\f\n\r\t\"\\é<>&` + "\u2028\u2029\x7f" + `"`: `"\u00e9\/\b\f\n\r\t\"\\é<>&` + "\u2028\u2029\x7f" + `"`,
		// A lone surrogate's escape is JSON, if not a character.
		`"\ud800"`: `"\ud800"`,
		// Order and repetition of members are the sender's.
		`{"b":1, "a":2, "b":3}`: `{"b":1,"a":2,"b":3}`,
		nested(bus.MaxDepth):    nested(bus.MaxDepth),
	} {
		src := []byte(in)
		got, err := bus.Compact(src)
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
		require.Equal(t, in, string(src), "the input was changed")
		if in == want {
			require.Same(t, &src[0], &got[0], "copied without need: %s", in)
		}
	}
}

func TestCompact_Refuses(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `}`, `[`, `]`, `{]`, `[}`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `{'a':1}`, `{1:1}`, `{"a" 1}`,
		`[1,]`, `[,1]`, `[1 2]`, `[1,,2]`, `1 2`, `{}{}`, `{} x`, `nul`, `nulll`, `True`, `TRUE`, `NaN`, `Infinity`, `undefined`,
		`01`, `-`, `+1`, `.5`, `1.`, `1.e3`, `1e`, `1e+`, `0x10`, `--1`, `-01`, `1_000`,
		`"`, `"a`, `"\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u123`, `"\`, "\"a\nb\"", "\"\x00\"", "\"\t\"",
		"\ufeff{}", "{}\x00", "\u00a0{}", "{\u2028}", "\v1", `/* */ 1`, "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\xff",
		nested(bus.MaxDepth + 1), strings.Repeat(`{"a":`, bus.MaxDepth+1) + "1" + strings.Repeat("}", bus.MaxDepth+1),
		strings.Repeat("[", 1<<20),
	} {
		got, err := bus.Compact([]byte(in))
		requireInvalid(t, err, bus.ReasonBody, "body", "%.40q", in)
		require.Nil(t, got)
	}
}

// The error says where the fault is.
func TestCompact_Offset(t *testing.T) {
	for in, text := range map[string]string{
		`{"a": x}`:   "byte 6",
		`[1, 2`:      "cut off after 5 bytes",
		"\"ab\xffc":  "byte 3",
		`{"a":1} {}`: "byte 8",
		`["\q"]`:     "byte 2",
	} {
		_, err := bus.Compact([]byte(in))
		require.ErrorContains(t, err, text, in)
	}
}

// depth returns how deep a valid JSON text nests.
func depth(t *testing.T, b []byte) int {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	deepest, level := 0, 0
	for {
		tok, err := d.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			level++
			deepest = max(deepest, level)
		case json.Delim('}'), json.Delim(']'):
			level--
		}
	}
}

// The scanner takes what the standard library takes, if it is UTF-8 and not too
// deep, and makes of it what the standard library makes of it.
func FuzzCompact(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5e-3,"\u00e9\\"],"b":{}}`, ` [ true , null ] `, `"\ud800"`, `1e400`, "\ufeff1", "\"\u2028\"", `{"a":1,}`, `"\u12`, "[\x00]", `-0.0`,
		nested(bus.MaxDepth), nested(bus.MaxDepth + 1), "\"\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		got, err := bus.Compact(src)
		require.Equal(t, before, src)
		want := json.Valid(src) && utf8.Valid(src) && depth(t, src) <= bus.MaxDepth
		if !want {
			var invalid *bus.InvalidError
			require.True(t, errors.As(err, &invalid), "%q was accepted", src)
			require.Equal(t, bus.ReasonBody, invalid.Reason)
			return
		}
		require.NoError(t, err, "%q", src)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, src))
		require.Equal(t, compact.String(), string(got))
		again, err := bus.Compact(got)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	})
}
