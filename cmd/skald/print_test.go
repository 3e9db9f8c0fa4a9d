//go:build unix

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// Nothing that a worker sent reaches a terminal as a command.
func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 日本 😀":          "plain é 日本 😀",
		"\x1b[2J\x07":           `\u001b[2J\u0007`,
		"\u009b31m":             `\u009b31m`,
		"a\u202eb\u2028c":       `a\u202eb\u2028c`,
		"a\tb\r\nc\x7f":         `a\u0009b\u000d\u000ac\u007f`,
		"bad \xff utf-8":        "bad \ufffd utf-8",
		"non-breaking\u00a0gap": `non-breaking\u00a0gap`,
	} {
		require.Equal(t, want, visible(in))
	}
	require.Equal(t, "abc", clip("abc", 3))
	require.Equal(t, "日…", clip("日本語", 2))
	require.Equal(t, "", clip("abc", 0))
	require.Equal(t, `''`, quote(""))
	require.Equal(t, `'it'\''s'`, quote("it's"))
	require.Equal(t, "/a-b_c.d:1=x@y%z", quote("/a-b_c.d:1=x@y%z"))
}

// What people see of events, sessions, status and rejects is one line each, cut to
// the width.
func TestPrint_ForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := env{stdout: &out}
	event := `{"seq":42,"session_id":"s\u001b","workspace_id":"w","recorded_at_ms":1789200000000,"stored_at_ms":1,"type":"error","data":{"message":"` + strings.Repeat("x", 200) + `"}}`
	people := &sink{e: e, most: fallbackWidth}
	require.NoError(t, people.write([]byte(event), bus.Cursor{}))
	require.True(t, strings.HasPrefix(out.String(), `42       2026-09-12T08:00:00.000Z  w/s\u001b  error  {"message":"xxx`), out.String())
	require.True(t, strings.HasSuffix(out.String(), "x…\n"))
	require.Len(t, []rune(out.String()), fallbackWidth+1)
	require.Error(t, people.write([]byte(`{}`), bus.Cursor{}))

	out.Reset()
	session := (&projection.State{}).AppendSession(nil, bus.Key{Workspace: "w", Session: "s"}, projection.SessionEvents{Count: 3, FirstSeq: 1, LastSeq: 9})
	require.NoError(t, printSessions(e, []target.Session{{JSON: session}}))
	require.Equal(t, "WORKSPACE  SESSION  STATE  EXECUTION  EVENTS  LAST  ACTIVE AT  TITLE\n"+
		"w          s        -      -          3       9     -          -\n", out.String())

	out.Reset()
	require.NoError(t, printStatus(e, []byte(`{"epoch":"e","latest_seq":5,"ingest":{"position":1,"lag":null}}`)))
	require.Equal(t, "epoch            e\nlatest_seq       5\ningest.position  1\ningest.lag       unknown\n", out.String())

	out.Reset()
	require.NoError(t, indented(&out, []byte(`{"a":[1,"\u001b"],"b":"`+"\u009b"+`"}`)))
	require.Equal(t, "{\n  \"a\": [\n    1,\n    \"\\u001b\"\n  ],\n  \"b\": \"\\u009b\"\n}\n", out.String())

	out.Reset()
	require.NoError(t, printRejects(e, []store.Reject{{ID: 1, Subject: "x"}}, true))
	require.True(t, strings.HasPrefix(out.String(), `{"id":1,"ingest_seq":0,"stored_at_ms":0,"workspace_id":null,"session_id":null,"subject":"x"`), out.String())
}

// One is not many.
func TestPageNote(t *testing.T) {
	t.Parallel()
	one := target.Page{Events: make([][]byte, 1), NextAfter: 3, Latest: 7}
	require.Equal(t, "1 event, newest is 7: --after-seq 3 goes on from here", pageNote(one, true))
	one.Latest = 3
	require.Equal(t, "1 event, at the newest: --after-seq 3 goes on from here", pageNote(one, true))
	require.Equal(t, []string{"0 entries", "1 entry", "2 entries"}, []string{count(0, "entry", "entries"), count(1, "entry", "entries"), count(2, "entry", "entries")})
}

// Output that can not be written is an error of its own.
func TestPrint_OutputFails(t *testing.T) {
	t.Parallel()
	full := writerFunc(func([]byte) (int, error) { return 0, errors.New("no space left on device") })
	require.ErrorIs(t, printLines(full, [][]byte{[]byte("x")}), errOutput)
	require.ErrorIs(t, table(full, [][]string{{"x"}}, 0), errOutput)
	require.ErrorIs(t, indented(full, []byte(`{}`)), errOutput)
	code := run([]string{"version"}, strings.NewReader(""), full, &bytes.Buffer{})
	require.Equal(t, exitFailed, code)
}
