package bus_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// The wire form is as the contract shows it.
func TestEvent_AppendJSON(t *testing.T) {
	e := bus.Event{
		Seq: 42, Session: "S", Workspace: "W", RecordedAt: 1789200000000, StoredAt: 1789200000003,
		Type: bus.TypeInputResolved, Data: []byte(`{"turn_id":null}`),
	}
	require.Equal(t,
		`x{"seq":42,"session_id":"S","workspace_id":"W","recorded_at_ms":1789200000000,"stored_at_ms":1789200000003,"type":"input_resolved","data":{"turn_id":null}}`,
		string(e.AppendJSON([]byte("x"))))
	require.Equal(t, bus.Key{Workspace: "W", Session: "S"}, e.Key())
}

// Data goes through unchanged, whatever encoders like to do to it.
func TestEvent_RoundTrip(t *testing.T) {
	for _, e := range []bus.Event{
		{Seq: 1, Session: "s", Workspace: "w", Type: "error", Data: []byte(`{}`)},
		{Seq: math.MaxInt64, Session: "a\"b\\<>&\u2028é😀", Workspace: "日本 ", RecordedAt: math.MinInt64, StoredAt: math.MaxInt64, Type: "new_type", Data: []byte(`{"a":1}`)},
		{Seq: 2, Session: "s", Workspace: "w", RecordedAt: -1, Type: "error", Data: []byte(
			`{"big":[9007199254740993,12345678901234567890123,1e400,1.0,-0,1E+2],"html":"<b>&</b>","esc":"\u003c\/\ud800\u2028","raw":"` + "\u2028\u2029\x7fé" + `","b":1,"a":2,"b":3}`)},
		// As deep as a body may be, which stands in an event.
		{Seq: 3, Session: "s", Workspace: "w", Type: "error", Data: []byte(`{"v":` + nested(bus.MaxDepth-1) + `}`)},
	} {
		b := e.AppendJSON(nil)
		require.True(t, json.Valid(b))
		got, err := bus.ParseEvent(b)
		require.NoError(t, err)
		require.Equal(t, e, got)
		page := []byte(`{"events":[` + string(b) + `]}`)
		compact, err := bus.CompactWire(page)
		require.NoError(t, err)
		require.Equal(t, page, compact)
	}
}

// White space and unknown members do not matter, order neither.
func TestParseEvent_Tolerant(t *testing.T) {
	e, err := bus.ParseEvent([]byte(`{ "new" : { "seq" : 9 }, "data" : { "a" : [ 1.0 ] } , "type":"t", "stored_at_ms":2,"recorded_at_ms":1,` + "\n" + `"workspace_id":"w","session_id":"\u0073","seq":0 }`))
	require.NoError(t, err)
	require.Equal(t, bus.Event{Session: "s", Workspace: "w", RecordedAt: 1, StoredAt: 2, Type: "t", Data: []byte(`{"a":[1.0]}`)}, e)
}

func TestParseEvent_Refuses(t *testing.T) {
	members := map[string]string{
		"seq": "1", "session_id": `"s"`, "workspace_id": `"w"`, "recorded_at_ms": "1", "stored_at_ms": "1", "type": `"t"`, "data": "{}",
	}
	build := func(change, value string) []byte {
		var parts []string
		for name, v := range members {
			if name == change {
				if v = value; v == "" {
					continue
				}
			}
			parts = append(parts, `"`+name+`":`+v)
		}
		return []byte("{" + strings.Join(parts, ",") + "}")
	}
	_, err := bus.ParseEvent(build("", ""))
	require.NoError(t, err)
	for name := range members {
		_, err := bus.ParseEvent(build(name, ""))
		requireInvalid(t, err, "", "event", "without %s", name)
	}
	for name, bad := range map[string][]string{
		"seq":            {"-1", "1.0", `"1"`, "null", "9223372036854775808"},
		"session_id":     {"1", "null", "{}"},
		"workspace_id":   {"1", "null"},
		"recorded_at_ms": {`"1"`, "1.5", "null"},
		"stored_at_ms":   {"1e3", "null"},
		"type":           {"null", "[]"},
		"data":           {"null", "[]", `"{}"`, "1"},
	} {
		for _, v := range bad {
			_, err := bus.ParseEvent(build(name, v))
			requireInvalid(t, err, "", name, "%s: %s", name, v)
		}
	}
	for _, text := range []string{"", "{", "[]", "null", "{}x", "\xff"} {
		_, err := bus.ParseEvent([]byte(text))
		var invalid *bus.InvalidError
		require.ErrorAs(t, err, &invalid, text)
	}
	twice := append(build("", "")[:len(build("", ""))-1], `,"seq":1}`...)
	_, err = bus.ParseEvent(twice)
	requireInvalid(t, err, bus.ReasonBody, "seq")
}
