package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

func ms(n int64) *int64 { return &n }

func token(s string) bus.Text { return bus.Text{Token: []byte(s)} }

func TestParseSession(t *testing.T) {
	for body, want := range map[string]bus.SessionRecord{
		`{"op":"save"}`: {},
		`{"op":"save","title":"t","state":null,"last_error":"\u00e9<","recorded_at_ms":-5}`: {
			Title: token(`"t"`), State: token("null"), LastError: token(`"\u00e9<"`), RecordedAt: ms(-5),
		},
		`{"unknown":{"title":1},"unknown":2,"\u006fp":"s\u0061ve"}`:  {},
		`{"op":"save","recorded_at_ms":9223372036854775807}`:         {RecordedAt: ms(1<<63 - 1)},
		`{"op":"save","title":"","Title":1,"titles":[],"STATE":"x"}`: {Title: token(`""`)},
	} {
		got, err := bus.ParseSession([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
	for body, field := range map[string]string{
		`[]`:                                  "body",
		`null`:                                "body",
		`"save"`:                              "body",
		`{}`:                                  "op",
		`{"op":null}`:                         "op",
		`{"op":"forget"}`:                     "op",
		`{"op":["save"]}`:                     "op",
		`{"op":"save","title":1}`:             "title",
		`{"op":"save","title":{}}`:            "title",
		`{"op":"save","state":true}`:          "state",
		`{"op":"save","last_error":[]}`:       "last_error",
		`{"op":"save","recorded_at_ms":"1"}`:  "recorded_at_ms",
		`{"op":"save","recorded_at_ms":1.0}`:  "recorded_at_ms",
		`{"op":"save","recorded_at_ms":1e3}`:  "recorded_at_ms",
		`{"op":"save","recorded_at_ms":null}`: "recorded_at_ms",
		`{"op":"save","recorded_at_ms":9223372036854775808}`:        "recorded_at_ms",
		`{"op":"save","op":"save"}`:                                 "op",
		`{"op":"save","title":"a","t\u0069tle":"b"}`:                "title",
		`{"op":"save","recorded_at_ms":1,"x":0,"recorded_at_ms":1}`: "recorded_at_ms",
	} {
		_, err := bus.ParseSession([]byte(body))
		requireInvalid(t, err, bus.ReasonBody, field, body)
	}
}

// Absent, null and a string are three things.
func TestText(t *testing.T) {
	r, err := bus.ParseSession([]byte(`{"op":"save","title":null,"state":"null"}`))
	require.NoError(t, err)
	require.True(t, r.Title.Set())
	require.True(t, r.Title.Null())
	require.True(t, r.State.Set())
	require.False(t, r.State.Null())
	require.False(t, r.LastError.Set())
	require.False(t, r.LastError.Null())
}

func TestParseActivity(t *testing.T) {
	a, err := bus.ParseActivity([]byte(`{"activity":{"b":1.0,"a":"\u2028<"},"recorded_at_ms":7,"more":0}`))
	require.NoError(t, err)
	require.Equal(t, `{"b":1.0,"a":"\u2028<"}`, string(a.Object))
	require.Equal(t, ms(7), a.RecordedAt)

	for body, field := range map[string]string{
		`1`:                                   "body",
		`{}`:                                  "activity",
		`{"activity":null}`:                   "activity",
		`{"activity":[]}`:                     "activity",
		`{"activity":"x"}`:                    "activity",
		`{"activity":{},"activity":{}}`:       "activity",
		`{"activity":{},"recorded_at_ms":[]}`: "recorded_at_ms",
	} {
		_, err := bus.ParseActivity([]byte(body))
		requireInvalid(t, err, bus.ReasonBody, field, body)
	}
}

func TestParseError(t *testing.T) {
	for body, want := range map[string]bus.ErrorReport{
		`{"message":""}`:                              {Message: []byte(`""`), CommandID: []byte("null")},
		`{"message":"m","command_id":null}`:           {Message: []byte(`"m"`), CommandID: []byte("null")},
		`{"message":"\/","command_id":"c\u0041"}`:     {Message: []byte(`"\/"`), CommandID: []byte(`"c\u0041"`)},
		`{"message":"m","recorded_at_ms":0,"x":null}`: {Message: []byte(`"m"`), CommandID: []byte("null"), RecordedAt: ms(0)},
	} {
		got, err := bus.ParseError([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
	for body, field := range map[string]string{
		`true`:                                 "body",
		`{}`:                                   "message",
		`{"message":null}`:                     "message",
		`{"message":1}`:                        "message",
		`{"message":"m","command_id":1}`:       "command_id",
		`{"message":"m","message":"m"}`:        "message",
		`{"message":"m","recorded_at_ms":1.5}`: "recorded_at_ms",
	} {
		_, err := bus.ParseError([]byte(body))
		requireInvalid(t, err, bus.ReasonBody, field, body)
	}
}

func TestParseControl(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	c, err := bus.ParseControl([]byte(`{"op":"forget","why":"asked"}`), false)
	require.NoError(t, err)
	require.Equal(t, bus.Control{Op: bus.OpForget}, c)

	for body, secure := range map[string]bool{`{"op":"forget","secure":true}`: true, `{"op":"forget","secure":false}`: false} {
		c, err = bus.ParseControl([]byte(body), false)
		require.NoError(t, err)
		require.Equal(t, bus.Control{Op: bus.OpForget, Secure: secure}, c)
	}

	c, err = bus.ParseControl([]byte(`{"digest":"`+digest+`","ordinal":9223372036854775807,"op":"resync"}`), false)
	require.NoError(t, err)
	require.Equal(t, bus.OpResync, c.Op)
	require.EqualValues(t, 1<<63-1, c.At.Ordinal)
	require.Equal(t, digest, c.At.Digest.String())

	c, err = bus.ParseControl([]byte(`{"op":"prune","before_seq":1}`), true)
	require.NoError(t, err)
	require.Equal(t, bus.Control{Op: bus.OpPrune, Before: 1}, c)

	refs := []bus.EntryRef{{Seq: 1<<63 - 1, Time: 1<<63 - 1, Reason: bus.ReasonBody}, {Reason: `a "reason" to come`}}
	c, err = bus.ParseControl(bus.AppendDiscard(nil, refs), true)
	require.NoError(t, err)
	require.Equal(t, bus.Control{Op: bus.OpDiscard, Entries: refs}, c)
	most := make([]bus.EntryRef, bus.MaxDiscard+1)
	_, err = bus.ParseControl(bus.AppendDiscard(nil, most[1:]), true)
	require.NoError(t, err)
	_, err = bus.ParseControl(bus.AppendDiscard(nil, most), true)
	requireInvalid(t, err, bus.ReasonBody, "entries")

	for _, tc := range []struct {
		body  string
		admin bool
		field string
	}{
		{`[]`, false, "body"},
		{`{}`, false, "op"},
		{`{}`, true, "op"},
		{`{"op":1}`, false, "op"},
		{`{"op":"save"}`, false, "op"},
		{`{"op":"forget","secure":1}`, false, "secure"}, // a wish that is not understood is not passed over
		{`{"op":"forget","secure":null}`, false, "secure"},
		{`{"op":"prune","before_seq":1}`, false, "op"}, // belongs to no session
		{`{"op":"forget"}`, true, "op"},                // belongs to a session
		{`{"op":"resync","ordinal":1,"digest":"` + digest + `"}`, true, "op"},
		{string(bus.AppendDiscard(nil, refs)), false, "op"}, // belongs to no session
		{`{"op":"discard"}`, true, "entries"},
		{`{"op":"discard","entries":[]}`, true, "entries"},
		{`{"op":"discard","entries":{}}`, true, "entries"},
		{`{"op":"discard","entries":[1]}`, true, "entries"},
		{`{"op":"discard","entries":[{"ingest_seq":-1,"ingest_time_ns":1,"reason":"r"}]}`, true, "entries"},
		{`{"op":"discard","entries":[{"ingest_seq":1,"ingest_time_ns":"1","reason":"r"}]}`, true, "entries"},
		{`{"op":"discard","entries":[{"ingest_seq":1,"ingest_time_ns":1,"reason":null}]}`, true, "entries"},
		{`{"op":"discard","entries":[{"ingest_seq":1,"ingest_seq":1,"ingest_time_ns":1,"reason":"r"}]}`, true, "ingest_seq"},
		{`{"op":"prune"}`, true, "before_seq"},
		{`{"op":"prune","before_seq":0}`, true, "before_seq"},
		{`{"op":"prune","before_seq":-1}`, true, "before_seq"},
		{`{"op":"prune","before_seq":"5"}`, true, "before_seq"},
		{`{"op":"prune","before_seq":5.0}`, true, "before_seq"},
		{`{"op":"resync","digest":"` + digest + `"}`, false, "ordinal"},
		{`{"op":"resync","ordinal":0,"digest":"` + digest + `"}`, false, "ordinal"},
		{`{"op":"resync","ordinal":9223372036854775808,"digest":"` + digest + `"}`, false, "ordinal"},
		{`{"op":"resync","ordinal":1}`, false, "digest"},
		{`{"op":"resync","ordinal":1,"digest":null}`, false, "digest"},
		{`{"op":"resync","ordinal":1,"digest":"` + strings.ToUpper(digest) + `"}`, false, "digest"},
		{`{"op":"resync","ordinal":1,"digest":"` + digest[1:] + `"}`, false, "digest"},
		{`{"op":"resync","ordinal":1,"digest":"` + digest + `0"}`, false, "digest"},
		{`{"op":"resync","ordinal":1,"ordinal":2,"digest":"` + digest + `"}`, false, "ordinal"},
	} {
		_, err := bus.ParseControl([]byte(tc.body), tc.admin)
		requireInvalid(t, err, bus.ReasonBody, tc.field, tc.body)
	}
}

func TestClass_Known(t *testing.T) {
	for _, c := range []bus.Class{"", "Session", "session ", "news", "void"} {
		require.False(t, c.Known(), c)
	}
}

// No body, however odd, makes a parser panic, and what is refused is refused as a body.
func FuzzBodies(f *testing.F) {
	for _, s := range []string{
		`{"op":"save","title":null}`, `{"activity":{}}`, `{"message":"m"}`, `{"op":"prune","before_seq":1}`,
		`{"op":"resync","ordinal":1,"digest":"` + strings.Repeat("0", 64) + `"}`,
		`{"after":{"ordinal":0,"digest":"` + strings.Repeat("0", 64) + `"},"events":[{"ordinal":1,"digest":"","recorded_at_ms":1,"observation":{}}]}`,
		`{"seq":1,"session_id":"s","workspace_id":"w","recorded_at_ms":1,"stored_at_ms":1,"type":"t","data":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		body, err := bus.Compact(src)
		if err != nil {
			return
		}
		refused := func(err error) {
			if err != nil {
				var invalid *bus.InvalidError
				require.ErrorAs(t, err, &invalid)
				require.NotEmpty(t, invalid.Error())
			}
		}
		_, err = bus.ParseSession(body)
		refused(err)
		_, err = bus.ParseActivity(body)
		refused(err)
		_, err = bus.ParseError(body)
		refused(err)
		_, err = bus.ParseControl(body, true)
		refused(err)
		_, err = bus.ParseControl(body, false)
		refused(err)
		p, err := bus.ParsePage(body)
		refused(err)
		if err == nil {
			require.Equal(t, uint64(len(p.Events)), p.Last()-p.First()+1)
		}
		_, err = bus.ParseEvent(body)
		refused(err)
	})
}
