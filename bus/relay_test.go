package bus_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

type vector struct {
	Format       int
	Ordinal      uint64
	Previous     string  `json:"previous_digest"`
	RecordedAt   int64   `json:"recorded_at_ms"`
	CommandID    *string `json:"command_id"`
	Observation  string  `json:"observation_bytes"`
	Digest       string
	AlsoAccepted []string `json:"also_accepted"`
}

func vectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("../internal/contract/digest-vectors.json")
	require.NoError(t, err)
	var file struct{ Vectors []vector }
	require.NoError(t, json.Unmarshal(b, &file))
	require.NotEmpty(t, file.Vectors)
	return file.Vectors
}

// event returns the vector as a relay event, read from a page as a message holds it.
func (v vector) event(t *testing.T, digest string) (bus.RelayEvent, bus.Digest) {
	t.Helper()
	b := []byte(`{"events":[{"format":`)
	b = append(b, byte('0'+v.Format))
	b = append(b, `,"ordinal":`...)
	b = append(b, jsonOf(t, v.Ordinal)...)
	b = append(b, `,"previous_digest":`...)
	b = append(b, jsonOf(t, v.Previous)...)
	b = append(b, `,"digest":`...)
	b = append(b, jsonOf(t, digest)...)
	b = append(b, `,"recorded_at_ms":`...)
	b = append(b, jsonOf(t, v.RecordedAt)...)
	b = append(b, `,"command_id":`...)
	b = append(b, jsonOf(t, v.CommandID)...)
	b = append(b, `,"observation":`...)
	b = append(b, v.Observation...)
	b = append(b, `}]}`...)
	b, err := bus.Compact(b)
	require.NoError(t, err)
	p, err := bus.ParsePage(b)
	require.NoError(t, err)
	var previous bus.Digest
	if v.Format == bus.FormatChained {
		var ok bool
		previous, ok = bus.ParseDigest([]byte(v.Previous))
		require.True(t, ok)
	}
	return p.Events[0], previous
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// The recorded digests come out of the bytes as received, and with any other byte
// they do not.
func TestVerify_Vectors(t *testing.T) {
	for _, v := range vectors(t) {
		e, previous := v.event(t, v.Digest)
		computed, buf := e.ComputeDigest(previous, nil)
		require.Equal(t, v.Digest, computed.String())
		got, buf, err := e.Verify(previous, buf)
		require.NoError(t, err)
		require.Equal(t, v.Digest, got.String())

		for _, also := range v.AlsoAccepted {
			e, previous := v.event(t, also)
			got, _, err := e.Verify(previous, buf)
			require.NoError(t, err)
			require.Equal(t, also, got.String())
		}

		changes := map[string]func(*bus.RelayEvent){
			"ordinal":  func(e *bus.RelayEvent) { e.Ordinal++ },
			"recorded": func(e *bus.RelayEvent) { e.RecordedAt++ },
			"command":  func(e *bus.RelayEvent) { e.CommandID = []byte(`"other"`) },
			"observation": func(e *bus.RelayEvent) {
				e.Observation = append(bytes.Clone(e.Observation[:len(e.Observation)-1]), `,"x":1}`...)
			},
			"digest": func(e *bus.RelayEvent) { e.Digest = []byte(strings.Repeat("0", 64)) },
		}
		for name, change := range changes {
			e, previous := v.event(t, v.Digest)
			change(&e)
			_, _, err := e.Verify(previous, nil)
			requireInvalid(t, err, bus.ReasonChain, "digest", name)
		}
	}
}

// White space between tokens is not part of the digest; everything else is.
func TestVerify_Bytes(t *testing.T) {
	const payload = `{"type":"notice","data":{"m":"<é\u2028>","n":[1.0,1e2]}}`
	e := bus.RelayEvent{Format: bus.FormatStandalone, Ordinal: 1, Observation: []byte(payload)}
	digest, _ := e.ComputeDigest(bus.Digest{}, nil)
	verify := func(observation string) error {
		v := vector{Format: 2, Ordinal: 1, Observation: observation}
		e, _ := v.event(t, digest.String())
		_, _, err := e.Verify(bus.Digest{}, nil)
		return err
	}
	require.NoError(t, verify(payload))
	require.NoError(t, verify("{ \"type\" : \"notice\",\n\t\"data\": {\"m\":\"<é\\u2028>\",\"n\":[ 1.0, 1e2 ]} }"))
	for _, other := range []string{
		`{"type":"notice","data":{"m":"<é` + "\u2028" + `>","n":[1.0,1e2]}}`,
		`{"type":"notice","data":{"m":"\u003cé\u2028>","n":[1.0,1e2]}}`,
		`{"type":"notice","data":{"m":"<é\u2028>","n":[1,1e2]}}`,
		`{"type":"notice","data":{"m":"<é\u2028>","n":[1.0,100]}}`,
		`{"data":{"m":"<é\u2028>","n":[1.0,1e2]},"type":"notice"}`,
	} {
		requireInvalid(t, verify(other), bus.ReasonChain, "digest", other)
	}
}

// What must precede an event depends on its format.
func TestVerify_Previous(t *testing.T) {
	at := bus.Digest{0xAB}
	chained := bus.RelayEvent{Format: bus.FormatChained, Ordinal: 2, Previous: []byte(at.String()), Observation: []byte(`{}`)}
	digest, _ := chained.ComputeDigest(at, nil)
	chained.Digest = []byte(digest.String())
	got, _, err := chained.Verify(at, nil)
	require.NoError(t, err)
	require.Equal(t, digest, got)
	_, _, err = chained.Verify(bus.Digest{2}, nil)
	requireInvalid(t, err, bus.ReasonChain, "previous_digest")
	for _, previous := range []string{"", "ab", strings.ToUpper(at.String()), at.String() + "0"} {
		chained.Previous = []byte(previous)
		_, _, err = chained.Verify(at, nil)
		requireInvalid(t, err, bus.ReasonChain, "previous_digest", previous)
	}

	standalone := bus.RelayEvent{Format: bus.FormatStandalone, Ordinal: 2, Observation: []byte(`{}`)}
	digest, _ = standalone.ComputeDigest(bus.Digest{}, nil)
	standalone.Digest = []byte(digest.String())
	_, _, err = standalone.Verify(bus.Digest{9}, nil) // continuity is the ordinal's
	require.NoError(t, err)
	standalone.Previous = []byte(at.String())
	_, _, err = standalone.Verify(at, nil)
	requireInvalid(t, err, bus.ReasonChain, "previous_digest")

	for _, bad := range []string{"", "ab", strings.ToUpper(digest.String())} {
		standalone.Previous, standalone.Digest = nil, []byte(bad)
		_, _, err = standalone.Verify(at, nil)
		requireInvalid(t, err, bus.ReasonChain, "digest", bad)
	}
}

// The legacy exception holds for session_opened without the member, and for
// nothing else.
func TestVerify_Legacy(t *testing.T) {
	legacyDigest := func(observation string) string {
		e := bus.RelayEvent{Format: bus.FormatStandalone, Ordinal: 1, Observation: []byte(observation)}
		d, _ := e.ComputeDigest(bus.Digest{}, nil)
		return d.String()
	}
	verify := func(observation, digest string) error {
		e := bus.RelayEvent{Format: bus.FormatStandalone, Ordinal: 1, Observation: []byte(observation), Digest: []byte(digest)}
		_, _, err := e.Verify(bus.Digest{}, nil)
		return err
	}
	require.NoError(t, verify(`{"type":"session_opened","data":{"a":1}}`, legacyDigest(`{"type":"session_opened","data":{"a":1,"native_continuity_lost":false}}`)))
	require.NoError(t, verify(`{"type":"session_opened","data":{}}`, legacyDigest(`{"type":"session_opened","data":{"native_continuity_lost":false}}`)))
	for _, tc := range [][2]string{
		{`{"type":"session_opened","data":{"a":1}}`, `{"type":"session_opened","data":{"a":1,"native_continuity_lost":true}}`},
		{`{"type":"session_opened","data":{"a":1}}`, `{"type":"session_opened","data":{"native_continuity_lost":false,"a":1}}`},
		{`{"type":"session_opened","data":{"native_continuity_lost":true}}`, `{"type":"session_opened","data":{"native_continuity_lost":true,"native_continuity_lost":false}}`},
		{`{"type":"session_closed","data":{"a":1}}`, `{"type":"session_closed","data":{"a":1,"native_continuity_lost":false}}`},
	} {
		requireInvalid(t, verify(tc[0], legacyDigest(tc[1])), bus.ReasonChain, "digest", tc[0])
	}
}

func TestParseDigest(t *testing.T) {
	d, ok := bus.ParseDigest([]byte(someHex))
	require.True(t, ok)
	require.Equal(t, someHex, d.String())
	require.Equal(t, genesis, bus.Digest{}.String())
	for _, text := range []string{"", someHex[1:], someHex + "a", strings.ToUpper(someHex), strings.Repeat("g", 64), strings.Repeat(" ", 64), someHex[:62] + "\\u"} {
		d, ok := bus.ParseDigest([]byte(text))
		require.False(t, ok, text)
		require.Zero(t, d)
	}
}
