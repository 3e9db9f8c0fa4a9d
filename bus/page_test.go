package bus_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

var (
	genesis = strings.Repeat("0", 64)
	someHex = strings.Repeat("ab", 32)
)

// relayEvent returns a relay event without a right digest: a page's shape does
// not depend on it.
func relayEvent(ordinal int64) string {
	return fmt.Sprintf(`{"ordinal":%d,"digest":"d","recorded_at_ms":1,"observation":{}}`, ordinal)
}

func page(events ...string) string { return `{"events":[` + strings.Join(events, ",") + `]}` }

func run(first, n int64) (events []string) {
	for i := range n {
		events = append(events, relayEvent(first+i))
	}
	return events
}

func TestParsePage(t *testing.T) {
	p, err := bus.ParsePage([]byte(`{"x":1,"after":{"ordinal":6,"digest":"` + someHex + `","x":0},"events":[` +
		`{"format":2,"ordinal":7,"previous_digest":"","digest":"` + someHex + `","recorded_at_ms":-5,"command_id":null,"observation":{"b":1.0},"x":[]},` +
		`{"observation":{"type":"t"},"command_id":"c\u0041","recorded_at_ms":2,"digest":"zz","previous_digest":"pp","ordinal":8}]}`))
	require.NoError(t, err)
	require.Equal(t, uint64(7), p.First())
	require.Equal(t, uint64(8), p.Last())
	require.Equal(t, uint64(6), p.After.Ordinal)
	require.Equal(t, someHex, p.After.Digest.String())
	require.Equal(t, []bus.RelayEvent{
		{Format: 2, Ordinal: 7, Previous: []byte{}, Digest: []byte(someHex), RecordedAt: -5, Observation: []byte(`{"b":1.0}`)},
		{Format: 1, Ordinal: 8, Previous: []byte("pp"), Digest: []byte("zz"), RecordedAt: 2, CommandID: []byte(`"c\u0041"`), Observation: []byte(`{"type":"t"}`)},
	}, p.Events)

	p, err = bus.ParsePage([]byte(page(run(1, bus.MaxPageEvents)...)))
	require.NoError(t, err)
	require.Nil(t, p.After)
	require.Len(t, p.Events, bus.MaxPageEvents)

	p, err = bus.ParsePage([]byte(`{"after":{"ordinal":0,"digest":"` + genesis + `"},` + page(run(1, 2)...)[1:]))
	require.NoError(t, err)
	require.Zero(t, *p.After)

	p, err = bus.ParsePage([]byte(page(relayEvent(1<<63 - 1))))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<63-1), p.Last())
}

func TestParsePage_Refuses(t *testing.T) {
	after := func(after string) string { return `{"after":` + after + `,` + page(relayEvent(7))[1:] }
	event := func(members string) string { return page(`{` + members + `}`) }
	for _, tc := range []struct {
		body   string
		reason bus.Reason
		field  string
	}{
		{`[]`, bus.ReasonBody, "body"},
		{`{}`, bus.ReasonBody, "events"},
		{`{"events":null}`, bus.ReasonBody, "events"},
		{`{"events":{}}`, bus.ReasonBody, "events"},
		{`{"events":[],"events":[]}`, bus.ReasonBody, "events"},
		{`{"events":[]}`, bus.ReasonPage, "events"},
		{page(run(1, bus.MaxPageEvents+1)...), bus.ReasonPage, "events"},
		{page("1"), bus.ReasonBody, "events"},
		{page(relayEvent(1), "null"), bus.ReasonBody, "events"},

		{page(relayEvent(0)), bus.ReasonPage, "ordinal"},
		{page(relayEvent(-1)), bus.ReasonPage, "ordinal"},
		{page(relayEvent(1), relayEvent(1)), bus.ReasonPage, "ordinal"},
		{page(relayEvent(1), relayEvent(3)), bus.ReasonPage, "ordinal"},
		{page(relayEvent(2), relayEvent(1)), bus.ReasonPage, "ordinal"},
		{event(`"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonPage, "ordinal"},
		{event(`"ordinal":1.0,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonPage, "ordinal"},
		{event(`"ordinal":"1","digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonPage, "ordinal"},
		{event(`"ordinal":9223372036854775808,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonPage, "ordinal"},
		{event(`"ordinal":1,"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "ordinal"},

		{event(`"ordinal":1,"recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "digest"},
		{event(`"ordinal":1,"digest":null,"recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "digest"},
		{event(`"ordinal":1,"digest":"d","observation":{}`), bus.ReasonBody, "recorded_at_ms"},
		{event(`"ordinal":1,"digest":"d","recorded_at_ms":null,"observation":{}`), bus.ReasonBody, "recorded_at_ms"},
		{event(`"ordinal":1,"digest":"d","recorded_at_ms":1.5,"observation":{}`), bus.ReasonBody, "recorded_at_ms"},
		{event(`"ordinal":1,"digest":"d","recorded_at_ms":1`), bus.ReasonBody, "observation"},
		{event(`"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":[]`), bus.ReasonBody, "observation"},
		{event(`"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":null`), bus.ReasonBody, "observation"},
		{event(`"format":3,"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "format"},
		{event(`"format":0,"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "format"},
		{event(`"format":"1","ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "format"},
		{event(`"previous_digest":null,"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "previous_digest"},
		{event(`"command_id":5,"ordinal":1,"digest":"d","recorded_at_ms":1,"observation":{}`), bus.ReasonBody, "command_id"},

		{after(`null`), bus.ReasonBody, "after"},
		{after(`[]`), bus.ReasonBody, "after"},
		{after(`{}`), bus.ReasonBody, "after.ordinal"},
		{after(`{"ordinal":-1,"digest":"` + someHex + `"}`), bus.ReasonBody, "after.ordinal"},
		{after(`{"ordinal":6}`), bus.ReasonBody, "after.digest"},
		{after(`{"ordinal":6,"digest":"ab"}`), bus.ReasonBody, "after.digest"},
		{after(`{"ordinal":6,"digest":"` + strings.ToUpper(someHex) + `"}`), bus.ReasonBody, "after.digest"},
		{after(`{"ordinal":5,"digest":"` + someHex + `"}`), bus.ReasonPage, "after.ordinal"},
		{after(`{"ordinal":7,"digest":"` + someHex + `"}`), bus.ReasonPage, "after.ordinal"},
		{after(`{"ordinal":6,"digest":"` + genesis + `"}`), bus.ReasonPage, "after"},
		{`{"after":{"ordinal":0,"digest":"` + someHex + `"},` + page(relayEvent(1))[1:], bus.ReasonPage, "after"},
	} {
		_, err := bus.ParsePage([]byte(tc.body))
		requireInvalid(t, err, tc.reason, tc.field, "%.200s", tc.body)
	}
}
