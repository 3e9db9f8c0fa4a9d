package docs_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// The examples of what is read of an observation are usable, each behind those above it,
// and together they give every kind of fact that an observation can give.
func TestContract_Observations(t *testing.T) {
	var session projection.State
	var at bus.ChainPosition
	gave := map[string]bool{}
	for _, o := range open(t).lines("### Observations") {
		e := bus.RelayEvent{Format: bus.FormatChained, Ordinal: at.Ordinal + 1, RecordedAt: 1, Observation: []byte(o)}
		d, _ := e.ComputeDigest(at.Digest, nil)
		body := fmt.Sprintf(`{"events":[{"ordinal":%d,"previous_digest":"%s","digest":"%s","recorded_at_ms":1,"observation":%s}]}`, e.Ordinal, at.Digest, d, o)
		r := session.Apply(projection.Message{Class: bus.ClassProjection, Seq: e.Ordinal, Time: 1, Body: []byte(body)}, nil)
		require.Equal(t, projection.Applied, r.Outcome, "%s: %v", o, r.Rejects)
		require.Zero(t, r.Unprojected, o)
		for _, f := range r.Facts {
			gave[f.Type] = true
		}
		at = bus.ChainPosition{Ordinal: e.Ordinal, Digest: d}
	}
	for _, typ := range []string{bus.TypeTurnStarted, bus.TypeTurnEnded, bus.TypeError, bus.TypeInputRequired, bus.TypeInputResolved, bus.TypeRuntimeResolved} {
		require.True(t, gave[typ], typ)
	}
}
