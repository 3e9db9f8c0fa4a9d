package bus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

type member struct{ name, value string }

func walkMembers(t *testing.T, obj string) (list []member, ok bool) {
	t.Helper()
	ok, err := bus.Members([]byte(obj), func(name string, v []byte) error {
		list = append(list, member{name, string(v)})
		return nil
	})
	require.NoError(t, err)
	return list, ok
}

func TestMembers(t *testing.T) {
	for obj, want := range map[string][]member{
		`{}`:                               nil,
		`{"a":1}`:                          {{"a", "1"}},
		`{"a":1,"b":"x","a":2}`:            {{"a", "1"}, {"b", `"x"`}, {"a", "2"}},
		`{"a":{"b":[1,{"c":"}"}]},"d":[]}`: {{"a", `{"b":[1,{"c":"}"}]}`}, {"d", "[]"}},
		`{"\u006fp":null,"":true}`:         {{"op", "null"}, {"", "true"}},
		`{"a":"\\","b":"\"","c":"\\\""}`:   {{"a", `"\\"`}, {"b", `"\""`}, {"c", `"\\\""`}},
		`{"a,b":"{[,:]}","c":-1.5e-3}`:     {{"a,b", `"{[,:]}"`}, {"c", "-1.5e-3"}},
	} {
		got, ok := walkMembers(t, obj)
		require.True(t, ok, obj)
		require.Equal(t, want, got, obj)
	}
	for _, other := range []string{`[]`, `1`, `"{}"`, `null`, `true`} {
		got, ok := walkMembers(t, other)
		require.False(t, ok, other)
		require.Empty(t, got)
	}
	stop := errors.New("stop")
	calls := 0
	ok, err := bus.Members([]byte(`{"a":1,"b":2}`), func(string, []byte) error { calls++; return stop })
	require.True(t, ok)
	require.Equal(t, stop, err)
	require.Equal(t, 1, calls)
}

func TestElements(t *testing.T) {
	for arr, want := range map[string][]string{
		`[]`:                      nil,
		`[1]`:                     {"1"},
		`[1,"a,]",[2,[3]],{},-4]`: {"1", `"a,]"`, `[2,[3]]`, `{}`, "-4"},
		`[null,true,"\\"]`:        {"null", "true", `"\\"`},
	} {
		var got []string
		ok, err := bus.Elements([]byte(arr), func(v []byte) error { got = append(got, string(v)); return nil })
		require.NoError(t, err)
		require.True(t, ok, arr)
		require.Equal(t, want, got, arr)
	}
	for _, other := range []string{`{}`, `1`, `"[]"`, `null`} {
		ok, err := bus.Elements([]byte(other), func([]byte) error { return errors.New("called") })
		require.NoError(t, err)
		require.False(t, ok, other)
	}
	stop := errors.New("stop")
	ok, err := bus.Elements([]byte(`[1,2]`), func([]byte) error { return stop })
	require.True(t, ok)
	require.Equal(t, stop, err)
}

// Walking finds what the standard library finds, in the same order.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{"c":"\\\""}],"a":{}}`, `[1,"x",[],{"a":[]}]`, `{"\u0061":"\ud83d\ude00"}`, `[[[]],[{}]]`, `"x"`, `{"":""}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		compact, err := bus.Compact(src)
		if err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(compact))
		d.UseNumber()
		open, err := d.Token()
		require.NoError(t, err)
		isObject, isArray := open == json.Delim('{'), open == json.Delim('[')
		var names []string
		var values []json.RawMessage
		for (isObject || isArray) && d.More() {
			if isObject {
				name, err := d.Token()
				require.NoError(t, err)
				names = append(names, name.(string))
			}
			var v json.RawMessage
			require.NoError(t, d.Decode(&v))
			values = append(values, v)
		}
		i := 0
		ok, err := bus.Members(compact, func(name string, v []byte) error {
			require.Equal(t, names[i], toValid(name))
			require.Equal(t, string(values[i]), string(v))
			i++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, isObject, ok)
		ok, err = bus.Elements(compact, func(v []byte) error {
			require.Equal(t, string(values[i]), string(v))
			i++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, isArray, ok)
		require.Len(t, values, i)
	})
}

// toValid replaces encoded surrogates as the standard library does, by one U+FFFD each.
func toValid(s string) string {
	var out []rune
	for len(s) > 0 {
		if len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 {
			out, s = append(out, utf8.RuneError), s[3:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		out, s = append(out, r), s[n:]
	}
	return string(out)
}

func TestUnquote(t *testing.T) {
	for token, want := range map[string]string{
		`""`:                         "",
		`"abc"`:                      "abc",
		`"a\"\\\/\b\f\n\r\t"`:        "a\"\\/\b\f\n\r\t",
		`"\u0041\u00E9\u65e5\u2028"`: "Aé日\u2028",
		`"\ud83d\ude00"`:             "😀",
		`"\ud83dx"`:                  "\xed\xa0\xbdx",
		`"\ude00\ud83d"`:             "\xed\xb8\x80\xed\xa0\xbd",
		`"\ud83d\u0041"`:             "\xed\xa0\xbdA",
		`"\ud83d\ud83d\ude00"`:       "\xed\xa0\xbd😀",
		`"é<>&"`:                     "é<>&",
	} {
		_, err := bus.Compact([]byte(token))
		require.NoError(t, err, token)
		require.Equal(t, want, bus.Unquote([]byte(token)), token)
	}
	// Different strings stay different, though neither is a character.
	require.NotEqual(t, bus.Unquote([]byte(`"\ud800"`)), bus.Unquote([]byte(`"\ud801"`)))
	require.NotEqual(t, bus.Unquote([]byte(`"\ud800"`)), bus.Unquote([]byte(`"\ufffd"`)))
}

// A string is decoded as by the standard library, but for lone surrogates.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`"\ud83d\ude00"`, `"\ud800\u0041"`, `"a\\\""`, `"\u2028"`, "\"\u2028\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		token, err := bus.Compact(src)
		if err != nil || !bus.IsString(token) {
			return
		}
		var want string
		require.NoError(t, json.Unmarshal(token, &want))
		require.Equal(t, want, toValid(bus.Unquote(token)))
	})
}

// What is quoted is one token that says the same, with no escape that JSON does
// not demand.
func FuzzAppendQuoted(f *testing.F) {
	for _, s := range []string{"", "a\"b\\c", "\x00\x1f\x7f", "\b\f", "<>&\u2028\u2029", "é日😀", "\xff", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := bus.AppendQuoted([]byte("x"), s)[1:]
		compact, err := bus.Compact(token)
		require.NoError(t, err)
		require.Equal(t, string(token), string(compact))
		var want string
		require.NoError(t, json.Unmarshal(token, &want))
		require.Equal(t, want, bus.Unquote(token))
		if !utf8.ValidString(s) {
			return
		}
		require.Equal(t, s, want)
		escapes := 0
		for _, c := range []byte(s) {
			switch {
			case c == '\\':
				escapes += 2
			case c == '"', c < 0x20:
				escapes++
			}
		}
		require.Equal(t, escapes, bytes.Count(token, []byte{'\\'}), "%s", token)
	})
}

func TestAppendQuoted_Raw(t *testing.T) {
	require.Equal(t, "\"<b>&\u2028é\\\"\\\\\\n\\r\\t\\u0000\\u001f\x7f\"", string(bus.AppendQuoted(nil, "<b>&\u2028é\"\\\n\r\t\x00\x1f\x7f")))
	require.Equal(t, "\"a\ufffdb\"", string(bus.AppendQuoted(nil, "a\xffb")))
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "-1": -1, "42": 42, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		got, ok := bus.Int([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "1.0", "1e3", "1E0", `"1"`, "null", "true", "[]", "{}", "9223372036854775808", "-9223372036854775809", "100000000000000000000000"} {
		_, ok := bus.Int([]byte(text))
		require.False(t, ok, text)
	}
}

func TestKinds(t *testing.T) {
	for text, kind := range map[string]string{`"a"`: "string", `{}`: "object", "null": "null", "[]": "", "1": "", "true": "", "": ""} {
		v := []byte(text)
		require.Equal(t, kind == "string", bus.IsString(v), text)
		require.Equal(t, kind == "object", bus.IsObject(v), text)
		require.Equal(t, kind == "null", bus.IsNull(v), text)
	}
}

// Scanning must keep up with the stream: this is what each message costs.
func BenchmarkCompact(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"events":[`)
	for i := range 128 {
		if i > 0 {
			body.WriteByte(',')
		}
		_, _ = io.WriteString(&body, `{"ordinal":`+strconv.Itoa(i+1)+`,"recorded_at_ms":100,"observation":{"type":"notice","data":{"message":"a line of text, and \"more\""}}}`)
	}
	body.WriteString(`]}`)
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bus.Compact(body.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}
