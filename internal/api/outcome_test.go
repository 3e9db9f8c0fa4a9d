package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/store"
)

type outcomeBody struct {
	Outcome  string     `json:"outcome"`
	Reason   bus.Reason `json:"reason"`
	Detail   string     `json:"detail"`
	Position uint64     `json:"ingest_position"`
}

func (w *world) outcome(k bus.Key, p api.Params) outcomeBody {
	w.t.Helper()
	body, err := w.api.Outcome(context.Background(), k, p)
	require.NoError(w.t, err)
	o := decode[outcomeBody](w.t, body)
	require.Equal(w.t, w.pos.IngestSeq, o.Position)
	return o
}

func count(publisher string, n int) api.Params {
	return api.Params{"publisher": {publisher}, "publisher_seq": {fmt.Sprint(n)}}
}

func eventID(id string) api.Params { return api.Params{"event_id": {id}} }

// What became of a message with a count: the first one that used it decides, also
// after later ones claimed it.
func TestOutcome_OfACount(t *testing.T) {
	w := newWorld(t, api.Options{})
	k := key("a", "s")
	send := func(n int, body string) {
		w.publish(k, bus.ClassError, body, bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(n))
	}
	require.Equal(t, api.OutcomeUnknown, w.outcome(k, count("p", 1)).Outcome)
	send(1, errorBody("one"))
	send(3, errorBody("three"))
	require.Equal(t, api.OutcomeApplied, w.outcome(k, count("p", 1)).Outcome)
	require.Equal(t, api.OutcomeMissing, w.outcome(k, count("p", 2)).Outcome)
	require.Equal(t, api.OutcomeApplied, w.outcome(k, count("p", 3)).Outcome)
	require.Equal(t, api.OutcomeUnknown, w.outcome(k, count("p", 4)).Outcome)
	require.Equal(t, api.OutcomeUnknown, w.outcome(k, count("q", 1)).Outcome)
	require.Equal(t, api.OutcomeUnknown, w.outcome(key("b", "s"), count("p", 1)).Outcome)
	send(2, errorBody("two"))
	require.Equal(t, api.OutcomeApplied, w.outcome(k, count("p", 2)).Outcome)

	send(4, `{}`)
	o := w.outcome(k, count("p", 4))
	require.Equal(t, api.OutcomeRejected, o.Outcome)
	require.Equal(t, bus.ReasonBody, o.Reason)
	require.Contains(t, o.Detail, "message")

	// Two later messages claim counts that are used: the first stands.
	send(1, errorBody("another"))
	require.Equal(t, api.OutcomeApplied, w.outcome(k, count("p", 1)).Outcome)
	send(4, errorBody("another"))
	o = w.outcome(k, count("p", 4))
	require.Equal(t, api.OutcomeRejected, o.Outcome)
	require.Equal(t, bus.ReasonBody, o.Reason)
}

// A count that is ahead is rejected, until it is sent again and accepted.
func TestOutcome_OfACountAhead(t *testing.T) {
	w := newWorld(t, api.Options{})
	k := key("a", "s")
	send := func(n int) {
		w.publish(k, bus.ClassError, errorBody(fmt.Sprint(n)), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(n))
	}
	for n := 2; n <= 130; n += 2 { // 65 gaps, one more than a session keeps
		send(n)
	}
	o := w.outcome(k, count("p", 130))
	require.Equal(t, api.OutcomeRejected, o.Outcome)
	require.Equal(t, bus.ReasonAhead, o.Reason)
	send(127)
	send(129)
	send(130)
	require.Equal(t, api.OutcomeApplied, w.outcome(k, count("p", 130)).Outcome)
}

// What became of a message with an event id, also of an operator's.
func TestOutcome_OfAnEventID(t *testing.T) {
	w := newWorld(t, api.Options{Horizon: time.Minute})
	k := key("a", "s")
	w.publish(k, bus.ClassError, errorBody("x"), bus.HeaderEventID, "good")
	w.publish(k, bus.ClassError, errorBody("z"), bus.HeaderEventID, "old")
	w.publish(k, bus.ClassError, `{}`, bus.HeaderEventID, "bad")
	w.publish(k, bus.ClassError, errorBody("y"), bus.HeaderEventID, "good")
	require.Equal(t, api.OutcomeApplied, w.outcome(k, eventID("good")).Outcome, "the first stands")
	require.Equal(t, api.OutcomeRejected, w.outcome(k, eventID("bad")).Outcome)
	require.Equal(t, api.OutcomeUnknown, w.outcome(k, eventID("other")).Outcome)

	digest := strings.Repeat("a", 64)
	w.publish(k, bus.ClassControl, `{"op":"resync","ordinal":9,"digest":"`+digest+`"}`, bus.HeaderEventID, "r1")
	require.Equal(t, api.OutcomeApplied, w.outcome(k, eventID("r1")).Outcome)
	w.publish(k, bus.ClassControl, `{"op":"resync","ordinal":8,"digest":"`+digest+`"}`, bus.HeaderEventID, "r2")
	o := w.outcome(k, eventID("r2"))
	require.Equal(t, api.OutcomeRejected, o.Outcome)
	require.Equal(t, bus.ReasonChain, o.Reason)

	require.Equal(t, api.OutcomeApplied, w.outcome(k, eventID("old")).Outcome)
	require.Equal(t, api.OutcomeUnknown, w.outcome(key("a", "t"), eventID("old")).Outcome, "ids are the session's own")
	// Beyond the horizon an id is not known any more; the resync's note is.
	w.pos.IngestSeq += uint64(time.Hour / time.Millisecond)
	w.publish(k, bus.ClassError, errorBody("later"))
	require.Equal(t, api.OutcomeUnknown, w.outcome(k, eventID("old")).Outcome)
	require.Equal(t, api.OutcomeApplied, w.outcome(k, eventID("r1")).Outcome)

	w.publish(k, bus.ClassControl, `{"op":"forget"}`, bus.HeaderEventID, "f")
	for _, id := range []string{"f", "good", "bad", "other"} {
		require.Equal(t, api.OutcomeDropped, w.outcome(k, eventID(id)).Outcome)
	}
}

// A message is named in one of two ways, by the rules of its headers.
func TestOutcome_RefusesNonsense(t *testing.T) {
	w := newWorld(t, api.Options{})
	for _, c := range []struct {
		parameter string
		p         api.Params
	}{
		{"event_id", nil},
		{"event_id", api.Params{"event_id": {""}}},
		{"event_id", api.Params{"event_id": {"a b"}}},
		{"event_id", api.Params{"event_id": {strings.Repeat("x", 129)}}},
		{"event_id", api.Params{"event_id": {"a", "b"}}},
		{"publisher_seq", api.Params{"publisher": {"p"}}},
		{"publisher", api.Params{"publisher_seq": {"1"}}},
		{"publisher_seq", api.Params{"publisher": {"p"}, "publisher_seq": {"0"}}},
		{"publisher_seq", api.Params{"publisher": {"p"}, "publisher_seq": {"1.5"}}},
		{"publisher", api.Params{"publisher": {strings.Repeat("p", 65)}, "publisher_seq": {"1"}}},
		{"event_id", api.Params{"publisher": {"p"}, "publisher_seq": {"1"}, "event_id": {"a"}}},
		{"id", api.Params{"id": {"a"}}},
	} {
		_, err := w.api.Outcome(context.Background(), key("a", "s"), c.p)
		require.Equal(t, c.parameter, parameterOf(t, err), "%v", c.p)
	}
	_, err := w.api.Outcome(context.Background(), key("a", ""), eventID("x"))
	require.Equal(t, "session_id", parameterOf(t, err))
}

// A position holds what its INGEST position claims; an unknown session is at the
// beginning, a forgotten one is not there.
func TestPosition(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, api.Options{})
	k := key("a", "s")
	body, err := w.api.Position(ctx, k, nil, 0)
	require.NoError(t, err)
	require.Contains(t, string(body), `"frontier":{"ordinal":0,"digest":"`+strings.Repeat("0", 64)+`"}`)
	require.Contains(t, string(body), `"ingest_position":0,"epoch":"epoch1"`)

	w.publish(k, bus.ClassError, errorBody("x"), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "3")
	body, err = w.api.Position(ctx, k, nil, 0)
	require.NoError(t, err)
	require.Contains(t, string(body), `"publishers":[{"publisher":"p","count":3,"missing":[[1,2]]}]`)
	require.Contains(t, string(body), `"ingest_position":1,`)
	_, err = w.api.Position(ctx, k, nil, 10)
	require.Equal(t, api.CodeTooLarge, api.FailureOf(err).Code)
	_, err = w.api.Position(ctx, k, query(t, "limit=1"), 0)
	require.Equal(t, "limit", parameterOf(t, err))

	w.publish(k, bus.ClassControl, `{"op":"forget"}`)
	_, err = w.api.Position(ctx, k, nil, 0)
	require.ErrorIs(t, err, bus.ErrNotFound)
}

// An operator has dealt with rejects and discarded them: the messages were rejected all
// the same, and are not taken for applied.
func TestOutcome_OfDiscarded(t *testing.T) {
	w := newWorld(t, api.Options{})
	k := key("a", "s")
	w.publish(k, bus.ClassError, `{}`, bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
	w.publish(k, bus.ClassError, errorBody("another"), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1") // a conflict
	w.publish(k, bus.ClassError, `{}`, bus.HeaderEventID, "bad")
	list, err := w.store.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 3)
	before := []outcomeBody{w.outcome(k, count("p", 1)), w.outcome(k, eventID("bad"))}
	var refs []bus.EntryRef
	for _, r := range list {
		refs = append(refs, bus.EntryRef{Seq: r.Seq, Time: r.Time, Reason: r.Reason})
	}
	require.NoError(t, w.store.Commit(t.Context(), &store.Commit{Position: w.pos, Discards: refs}))
	left, err := w.store.Reader().Rejects(t.Context(), store.RejectsQuery{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, left)
	after := []outcomeBody{w.outcome(k, count("p", 1)), w.outcome(k, eventID("bad"))}
	require.Equal(t, before, after)
	for _, o := range after {
		require.Equal(t, api.OutcomeRejected, o.Outcome)
		require.Equal(t, bus.ReasonBody, o.Reason)
	}
}
