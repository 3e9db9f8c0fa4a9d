package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/api"
)

// A request's body gives the same parameters as a URL's query; numbers may be
// numbers.
func TestParseJSON(t *testing.T) {
	for _, c := range []struct {
		body string
		want api.Params
	}{
		{"", api.Params{}},
		{"{}", api.Params{}},
		{" { } ", api.Params{}},
		{`{"after_seq":5}`, api.Params{"after_seq": {"5"}}},
		{`{"after_seq":"e:5","limit":"7"}`, api.Params{"after_seq": {"e:5"}, "limit": {"7"}}},
		{`{"after_seq":1e3}`, api.Params{"after_seq": {"1e3"}}}, // refused where it is read
		{`{"session_id":"\u0061\n"}`, api.Params{"session_id": {"a\n"}}},
		{`{"limit":1,"limit":2}`, api.Params{"limit": {"1", "2"}}},
		{`{"other":"x"}`, api.Params{"other": {"x"}}},
	} {
		p, err := api.ParseJSON([]byte(c.body))
		require.NoError(t, err, c.body)
		require.Equal(t, c.want, p, c.body)
	}
	for _, c := range []struct{ parameter, body string }{
		{"request", "["},
		{"request", "[]"},
		{"request", "5"},
		{"request", "null"},
		{"request", "{}{}"},
		{"request", "\xff"},
		{"request", " "},
		{"session_id", `{"session_id":5}`},
		{"session_id", `{"session_id":null}`},
		{"session_id", `{"session_id":["a"]}`},
		{"after_seq", `{"after_seq":null}`},
		{"after_seq", `{"after_seq":true}`},
		{"limit", `{"limit":{}}`},
	} {
		_, err := api.ParseJSON([]byte(c.body))
		require.Equal(t, c.parameter, parameterOf(t, err), c.body)
	}
}

// What AppendJSON writes, ParseJSON reads.
func TestParams_RoundTrip(t *testing.T) {
	p := api.Params{"after_seq": {"5"}, "session_id": {"日本 \"x\"\u2028"}, "limit": {"1", "2"}}
	got, err := api.ParseJSON(p.AppendJSON(nil))
	require.NoError(t, err)
	require.Equal(t, p, got)
	require.Equal(t, "{}", string(api.Params(nil).AppendJSON(nil)))
}

// The address of a request decides, and a parameter beside it must agree.
func TestParams_Fix(t *testing.T) {
	p := api.Params{}
	require.NoError(t, p.Fix("workspace_id", "a"))
	require.NoError(t, p.Fix("workspace_id", "a"))
	require.Equal(t, "workspace_id", parameterOf(t, p.Fix("workspace_id", "b")))
	require.Equal(t, api.Params{"workspace_id": {"a"}}, p)
}

// An error gives back only the beginning of what a caller sent.
func TestParameterError_IsShort(t *testing.T) {
	w := newWorld(t, api.Options{})
	f := w.fails(strings.Repeat("x", 100_000) + "=1")
	require.Less(t, len(f.AppendJSON(nil)), 600)
}
