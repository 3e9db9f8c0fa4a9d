package projection_test

import (
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// Messages without a chain, one after the other in one session: their facts, and
// what the session then shows.
func TestRecord(t *testing.T) {
	type step struct {
		class bus.Class
		body  string
		facts []string
		at    int64 // recorded time of the facts, ms
	}
	rows := []struct {
		name  string
		steps []step
		view  map[string]string
	}{
		{"error", []step{
			{bus.ClassError, ` { "message" : "\u006d<&>" , "command_id" : "c", "recorded_at_ms": 7, "more": {} } `, []string{`error {"message":"\u006d<&>","command_id":"c"}`}, 7},
			{bus.ClassError, `{"message":"m","recorded_at_ms":-3}`, []string{`error {"message":"m","command_id":null}`}, -3},
			{bus.ClassError, `{"message":"m","command_id":null}`, []string{`error {"message":"m","command_id":null}`}, ingestTime(3) / 1e6},
		}, map[string]string{"last_error": `null`, "last_activity_at_ms": fmt.Sprint(ingestTime(3) / 1e6)}},

		{"activity says what changed, by its bytes", []step{
			{bus.ClassActivity, `{"recorded_at_ms":1,"activity":{"state":"a","n":1.0}}`, []string{`activity_changed {"activity":{"state":"a","n":1.0}}`}, 1},
			{bus.ClassActivity, `{"recorded_at_ms":2,"activity": {"state": "a", "n": 1.0}}`, nil, 0},
			{bus.ClassActivity, `{"recorded_at_ms":3,"activity":{"state":"a","n":1}}`, []string{`activity_changed {"activity":{"state":"a","n":1}}`}, 3},
			{bus.ClassActivity, `{"recorded_at_ms":2,"activity":{}}`, []string{`activity_changed {"activity":{}}`}, 2},
		}, map[string]string{"activity": `{}`, "last_activity_at_ms": `3`}},

		{"record: absent stays, null clears", []step{
			{bus.ClassSession, `{"op":"save","title":"t","state":"s","recorded_at_ms":5}`, nil, 0},
			{bus.ClassSession, `{"op":"save","state":null,"recorded_at_ms":4}`, nil, 0},
		}, map[string]string{"title": `"t"`, "state": `null`, "last_error": `null`, "last_activity_at_ms": `5`}},

		{"last_error: an error for each new one", []step{
			{bus.ClassSession, `{"op":"save","last_error":"x","recorded_at_ms":1}`, []string{`error {"message":"x","command_id":null}`}, 1},
			{bus.ClassSession, `{"op":"save","last_error":"x","recorded_at_ms":2}`, nil, 0},
			{bus.ClassSession, `{"op":"save","last_error":"\u0078","recorded_at_ms":3}`, nil, 0},
			{bus.ClassSession, `{"op":"save","title":"t"}`, nil, 0},
			{bus.ClassSession, `{"op":"save","last_error":"\u0079","recorded_at_ms":4}`, []string{`error {"message":"\u0079","command_id":null}`}, 4},
			{bus.ClassSession, `{"op":"save","last_error":null}`, nil, 0},
			{bus.ClassSession, `{"op":"save","last_error":"y","recorded_at_ms":6}`, []string{`error {"message":"y","command_id":null}`}, 6},
		}, map[string]string{"last_error": `"y"`}},

		{"an empty last_error is one", []step{
			{bus.ClassSession, `{"op":"save","last_error":"","recorded_at_ms":1}`, []string{`error {"message":"","command_id":null}`}, 1},
			{bus.ClassSession, `{"op":"save","last_error":"","recorded_at_ms":2}`, nil, 0},
		}, map[string]string{"last_error": `""`}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newSession(t)
			for i, step := range row.steps {
				r := s.mustApply(step.class, step.body)
				require.Equal(t, append([]string{}, step.facts...), facts(r), "step %d", i)
				for _, f := range r.Facts {
					require.Equal(t, step.at, f.RecordedAt)
					require.Zero(t, f.Source, "neither a count nor an id")
				}
			}
			require.True(t, s.state.Exists)
			for member, want := range row.view {
				require.Equal(t, want, string(s.view()[member]), member)
			}
		})
	}
}

// Each message that is wrong is rejected with its reason, its payload as received
// and its numbers, and creates nothing.
func TestApply_Rejects(t *testing.T) {
	rows := []struct {
		class  bus.Class
		body   string
		reason bus.Reason
	}{
		{"nonsense", `{}`, bus.ReasonClass},
		{"", `{}`, bus.ReasonClass},
		{"nonsense", `not JSON`, bus.ReasonClass},
		{bus.ClassError, ``, bus.ReasonBody},
		{bus.ClassError, `{"message":"cut`, bus.ReasonBody},
		{bus.ClassError, "{\"message\":\"\xff\"}", bus.ReasonBody},
		{bus.ClassError, `{"message":"m"} x`, bus.ReasonBody},
		{bus.ClassError, `{}`, bus.ReasonBody},
		{bus.ClassError, `null`, bus.ReasonBody},
		{bus.ClassError, `{"message":"m","message":"n"}`, bus.ReasonBody},
		{bus.ClassError, `{"message":"m","recorded_at_ms":1.5}`, bus.ReasonBody},
		{bus.ClassError, `{"message":"m","recorded_at_ms":9223372036854775808}`, bus.ReasonBody},
		{bus.ClassActivity, `{"activity":null}`, bus.ReasonBody},
		{bus.ClassActivity, `[1]`, bus.ReasonBody},
		{bus.ClassSession, `{"op":"erase"}`, bus.ReasonBody},
		{bus.ClassSession, `{"op":"save","title":7}`, bus.ReasonBody},
		{bus.ClassControl, `{"op":"explode"}`, bus.ReasonBody},
		{bus.ClassControl, `{"op":"prune","before_seq":1}`, bus.ReasonBody},
		{bus.ClassControl, `{"op":"resync","ordinal":0,"digest":"` + bus.Digest{}.String() + `"}`, bus.ReasonBody},
		{bus.ClassProjection, `{}`, bus.ReasonBody},
		{bus.ClassProjection, `{"events":[]}`, bus.ReasonPage},
		{bus.ClassProjection, `{"events":[{"ordinal":0,"digest":"","recorded_at_ms":1,"observation":{}}]}`, bus.ReasonPage},
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s/%.40q", row.class, row.body), func(t *testing.T) {
			s := newSession(t)
			r := s.apply(row.class, bus.Identity{EventID: "e"}, row.body)
			require.Equal(t, projection.Rejected, r.Outcome)
			require.Equal(t, row.reason, r.Reason)
			require.NotEmpty(t, r.Detail)
			require.False(t, r.Remember)
			require.Empty(t, r.Facts)
			require.Len(t, r.Rejects, 1)
			e := r.Rejects[0]
			require.Equal(t, row.body, string(e.Payload))
			require.NotNil(t, e.Payload)
			require.Equal(t, len(row.body), e.Size)
			require.Equal(t, []any{uint64(1), ingestTime(1), row.class, row.reason, r.Detail}, []any{e.Seq, e.Time, e.Class, e.Reason, e.Detail})
			require.Equal(t, projection.State{}, *s.state)
		})
	}
}

// A malformed header is rejected before anything else is read, and uses no count.
func TestApply_BadHeader(t *testing.T) {
	bad := &bus.InvalidError{Reason: bus.ReasonHeader, Field: bus.HeaderPublisherSeq, Rule: "is missing"}
	s := newSession(t)
	r := s.state.Apply(projection.Message{Class: bus.ClassError, Seq: 1, Body: []byte(`no JSON`), IdentityErr: bad, Identity: bus.Identity{EventID: "e"}}, nil)
	require.Equal(t, projection.Rejected, r.Outcome)
	require.Equal(t, bus.ReasonHeader, r.Reason)
	require.Equal(t, bad.Error(), r.Detail)
	require.Equal(t, "e", r.Rejects[0].Identity.EventID)

	// Counts that ParseIdentity lets nobody have.
	for _, n := range []uint64{0, bus.MaxSeq + 1} {
		require.Equal(t, bus.ReasonHeader, s.apply(bus.ClassError, counted("p", n), `{"message":"m"}`).Reason)
	}
	require.Equal(t, projection.State{}, *s.state)

	// Of an unknown class the class is what is wrong.
	r = s.state.Apply(projection.Message{Class: "nonsense", Seq: 2, IdentityErr: bad}, nil)
	require.Equal(t, bus.ReasonClass, r.Reason)
}

// An event id that was applied is a duplicate with the same class and body, white
// space aside, and a conflict with another. Only what was applied is remembered.
func TestApply_EventID(t *testing.T) {
	id := bus.Identity{EventID: "e-1"}
	s := newSession(t)
	r := s.apply(bus.ClassError, id, `no JSON`)
	require.Equal(t, bus.ReasonBody, r.Reason)
	require.False(t, r.Remember)

	r = s.apply(bus.ClassError, id, `{"message":"m"}`)
	require.Equal(t, projection.Applied, r.Outcome, "a rejected message does not own its id")
	require.True(t, r.Remember)
	require.Equal(t, bus.Source{EventID: "e-1"}, r.Facts[0].Source)

	r = s.apply(bus.ClassError, id, ` {"message": "m"}`)
	require.Equal(t, projection.Duplicate, r.Outcome)
	require.Empty(t, r.Rejects)
	require.False(t, r.Remember)

	r = s.apply(bus.ClassError, id, `{"message":"other"}`)
	require.Equal(t, bus.ReasonConflict, r.Reason)
	require.Equal(t, `{"message":"other"}`, string(r.Rejects[0].Payload))
	r = s.apply(bus.ClassActivity, id, `{"message":"m"}`)
	require.Equal(t, bus.ReasonConflict, r.Reason, "the class counts too")

	// Where both are present the count decides.
	r = s.apply(bus.ClassError, bus.Identity{Publisher: "p", Count: 1, EventID: "e-1"}, `{"message":"other"}`)
	require.Equal(t, projection.Applied, r.Outcome)
	require.False(t, r.Remember)
	require.Equal(t, bus.Source{Publisher: "p", Count: 1}, r.Facts[0].Source)

	// On control ids are read, counts are not.
	forget := bus.Identity{Publisher: "p", Count: 1, EventID: "c-1"}
	to := fmt.Sprintf(`{"op":"resync","ordinal":9,"digest":"%064x"}`, 9)
	require.True(t, s.apply(bus.ClassControl, forget, to).Remember)
	require.Equal(t, projection.Duplicate, s.apply(bus.ClassControl, forget, to).Outcome)

	// On pages neither is.
	j := notices(1)
	r = newSession(t).apply(bus.ClassProjection, bus.Identity{Publisher: "p", Count: 7, EventID: "e-1"}, j.page(1, 1))
	require.Equal(t, projection.Applied, r.Outcome)
	require.False(t, r.Remember)
}

// The hash is over class and body: a body that would not fit the small buffer has
// the same kind of hash as one that does.
func TestApply_HashOfLargeBodies(t *testing.T) {
	for _, n := range []int{0, 900, 1000, 1100, 100_000} {
		s := newSession(t)
		body := fmt.Sprintf(`{"message":"%0*d"}`, n, 0)
		require.Equal(t, projection.Applied, s.apply(bus.ClassError, counted("p", 1), body).Outcome)
		require.Equal(t, projection.Duplicate, s.apply(bus.ClassError, counted("p", 1), body).Outcome)
		require.Equal(t, bus.ReasonConflict, s.apply(bus.ClassError, counted("p", 1), body[:len(body)-1]+" ,\"x\":1}").Reason)
	}
}
