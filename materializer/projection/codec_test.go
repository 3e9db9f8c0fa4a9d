package projection_test

import (
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// encode returns the three parts of a state.
func encode(t require.TestingT, s *projection.State) (chain, publishers, view []byte) {
	view, err := s.AppendView(nil)
	require.NoError(t, err)
	return s.AppendChain(nil), s.AppendPublishers(nil), view
}

// reload returns the state as a store would hand it out after a restart.
func reload(t require.TestingT, s *projection.State) *projection.State {
	loaded, err := projection.Decode(encode(t, s))
	require.NoError(t, err)
	loaded.Exists, loaded.Forgotten, loaded.Held = s.Exists, s.Forgotten, append([]projection.HeldPage(nil), s.Held...)
	return loaded
}

// randomMessage draws a message; most of them are applied.
func randomMessage(rt *rapid.T, j *journal) (bus.Class, bus.Identity, string) {
	var id bus.Identity
	switch rapid.IntRange(0, 2).Draw(rt, "identity") {
	case 0:
		id = counted(fmt.Sprint("p", rapid.IntRange(0, 2).Draw(rt, "publisher")), rapid.Uint64Range(1, 30).Draw(rt, "count"))
	case 1:
		id.EventID = fmt.Sprint("e", rapid.IntRange(0, 20).Draw(rt, "id"))
	}
	// Strings as awkward as JSON has them, as tokens.
	token := func() string {
		return rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `""`, "\"\u2028<&>\"", `"\ud800\n\"\\"`, `"日本"`, "\"\u007f\""}).Draw(rt, "token")
	}
	switch rapid.IntRange(0, 5).Draw(rt, "class") {
	case 0:
		return bus.ClassError, id, `{"message":` + token() + `}`
	case 1:
		return bus.ClassActivity, id, `{"activity":{"s":` + token() + `,"n":1.00e+2},"recorded_at_ms":` + fmt.Sprint(rapid.Int64().Draw(rt, "time")) + `}`
	case 2:
		member := rapid.SampledFrom([]string{"title", "state", "last_error"}).Draw(rt, "member")
		value := rapid.SampledFrom([]string{token(), "null"}).Draw(rt, "value")
		return bus.ClassSession, id, `{"op":"save","` + member + `":` + value + `}`
	}
	observation := rapid.SampledFrom([]string{
		`{"type":"command_queued","data":{"command_id":` + token() + `,"command":{"type":"prompt","data":{"prompt":[{"type":"text","text":` + token() + `}]}},"created_at_ms":1}}`,
		`{"type":"command_started","data":{"command_id":` + token() + `,"started_at_ms":-2}}`,
		`{"type":"command_completed","data":{"command_id":` + token() + `,"outcome":{"type":"prompt","data":{"stop_reason":` + token() + `,"usage":{"n":1.0}}}}}`,
		`{"type":"command_completed","data":{"command_id":"s","outcome":{"type":"steered","data":{"queued_command_id":` + token() + `}}}}`,
		`{"type":"command_rejected","data":{"command_id":` + token() + `,"command":"prompt","message":` + token() + `}}`,
		`{"type":"elicitation_requested","data":{"request":{"id":` + token() + `,"message":` + token() + `,"fields":[]}}}`,
		`{"type":"elicitation_resolved","data":{"elicitation_id":` + token() + `,"action":` + token() + `}}`,
		`{"type":"agent_initialized","data":{"runtime":{"id":` + token() + `}}}`,
		`{"type":"session_update","data":{"update":{"sessionUpdate":"session_info_update","title":` + token() + `}}}`,
		opened, restarted, closing, closed, harness, settled,
	}).Draw(rt, "observation")
	if rapid.IntRange(0, 9).Draw(rt, "gap") == 0 {
		j.add(restarted) // is never sent: what follows is held
	}
	e := j.addAt(observation, rapid.Int64().Draw(rt, "time"))
	return bus.ClassProjection, bus.Identity{}, `{"events":[` + e.json + `]}`
}

// Whatever a session has been through: its encoding reads back as the same state,
// encodes to the same bytes, shows the same to readers, and goes on the same way.
func TestCodec_RoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		live, stored := newSession(t), newSession(t)
		j := &journal{format: rapid.SampledFrom([]int{bus.FormatChained, bus.FormatStandalone}).Draw(rt, "format")}
		for range rapid.IntRange(1, 40).Draw(rt, "messages") {
			class, id, body := randomMessage(rt, j)
			r := live.apply(class, id, body)
			require.Equal(rt, r, stored.apply(class, id, body))

			chain, publishers, view := encode(rt, live.state)
			stored.state = reload(rt, live.state)
			c, p, v := encode(rt, stored.state)
			require.Equal(rt, chain, c)
			require.Equal(rt, publishers, p)
			require.Equal(rt, string(view), string(v))
			key := bus.Key{Workspace: "w", Session: "s"}
			require.Equal(rt, string(live.state.AppendSession(nil, key, projection.SessionEvents{})), string(stored.state.AppendSession(nil, key, projection.SessionEvents{})))
			require.Equal(rt, string(live.state.AppendPosition(nil, key, 1, "e")), string(stored.state.AppendPosition(nil, key, 1, "e")))
		}
	})
}

// A store writes only the parts that are called changed. What it then reads is the
// live state, the time of activity included, which two parts hold.
func TestCodec_ChangedPartsSuffice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSession(t)
		j := &journal{}
		var chain, publishers, view []byte
		for range rapid.IntRange(1, 30).Draw(rt, "messages") {
			s.apply(randomMessage(rt, j))
			c, p, v := encode(rt, s.state)
			if s.state.Changed&projection.PartChain != 0 {
				chain = c
			}
			if s.state.Changed&projection.PartPublishers != 0 {
				publishers = p
			}
			if s.state.Changed&projection.PartView != 0 {
				view = v
			}
			s.state.Changed = 0
			loaded, err := projection.Decode(chain, publishers, view)
			require.NoError(rt, err)
			lc, lp, lv := encode(rt, loaded)
			require.Equal(rt, c, lc)
			require.Equal(rt, p, lp)
			require.Equal(rt, string(v), string(lv))
		}
	})
}

// Nothing stored is the zero state.
func TestCodec_Zero(t *testing.T) {
	s, err := projection.Decode(nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, &projection.State{}, s)
	require.Equal(t, &projection.State{}, reload(t, s))
}

// A damaged or newer part is an error that names it, never a panic or another state.
func TestCodec_Damaged(t *testing.T) {
	s := newSession(t)
	j := &journal{}
	for _, o := range []string{queued("p"), started("p"), queued("q"), asked("e", "?"), ended("p", "x")} {
		j.add(o)
	}
	s.mustApply(bus.ClassProjection, j.page(1, 5))
	s.mustApply(bus.ClassSession, `{"op":"save","title":"t"}`)
	for _, n := range []uint64{1, 2, 9} {
		s.send("p", n)
	}
	chain, publishers, view := encode(t, s.state)

	check := func(err error, part string) {
		t.Helper()
		require.ErrorIs(t, err, projection.ErrEncoding)
		require.Contains(t, err.Error(), part)
	}
	for n := 1; n < len(chain); n++ {
		_, err := projection.Decode(chain[:n], nil, nil)
		check(err, "chain")
	}
	for n := 1; n < len(publishers); n++ {
		_, err := projection.Decode(nil, publishers[:n], nil)
		check(err, "publishers")
	}
	for n := 1; n < len(view); n++ {
		_, err := projection.Decode(nil, nil, view[:n])
		check(err, "view")
	}
	_, err := projection.Decode(append(chain, 0), nil, nil)
	check(err, "more than expected")
	_, err = projection.Decode(append([]byte{2}, chain[1:]...), nil, nil)
	check(err, "form 2")
	for _, v := range []string{
		`{"form":2}`, `{}`, `7`, `{"form":1,"title":"no token"}`, `{"form":1,"activity":"[]"}`, `{"form":1,"activity":"{ }"}`,
		`{"form":1,"execution":{"kind":"asleep"}}`, `{"form":1,"active_turn":{}}`, `{"form":1,"started":[""]}`, `{"form":1,"started":[null]}`,
		`{"form":1,"queue":[{"command_id":"\"a\"","kind":"x"}]}`, `{"form":1,"queue":[{"kind":"prompt"}]}`,
		`{"form":1,"elicitations":[{"id":"\"a\"","request":""}]}`, `{"form":1,"elicitations":[{"request":"{}"}]}`,
	} {
		_, err := projection.Decode(nil, nil, []byte(v))
		check(err, "view")
	}
}

// Random bytes are an error or a state that encodes again.
func FuzzDecode(f *testing.F) {
	var zero projection.State
	c, p, v := encode(f, &zero)
	f.Add(c, p, v)
	s := &session{t: f, state: &zero, ids: map[string]projection.Hash{}}
	s.send("p", 3)
	s.mustApply(bus.ClassProjection, failing(2).page(1, 2))
	c, p, v = encode(f, &zero)
	f.Add(c, p, v)
	f.Fuzz(func(t *testing.T, chain, publishers, view []byte) {
		s, err := projection.Decode(chain, publishers, view)
		if err != nil {
			require.ErrorIs(t, err, projection.ErrEncoding)
			return
		}
		again, err := projection.Decode(encode(t, s))
		require.NoError(t, err)
		require.Equal(t, s.AppendSession(nil, bus.Key{}, projection.SessionEvents{}), again.AppendSession(nil, bus.Key{}, projection.SessionEvents{}))
	})
}
