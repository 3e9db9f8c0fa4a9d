package target_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/target"
)

var errDone = errors.New("done")

// script is a gateway of which each request for a stream is answered by the next of
// these, or again by the last; pages end at number 3.
func script(t *testing.T, answers ...http.HandlerFunc) target.Target {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			answers[min(int(asked.Add(1)), len(answers))-1](w, r)
			return
		}
		switch after := r.URL.Query().Get("after_seq"); after {
		case "", "e1:3":
			fmt.Fprint(w, `{"events":[],"next_after_seq":3,"latest_seq":3,"oldest_seq":1,"epoch":"e1"}`)
		case "e1:2", "2":
			fmt.Fprintf(w, `{"events":[%s],"next_after_seq":3,"latest_seq":3,"oldest_seq":1,"epoch":"e1"}`, event(3))
		default:
			t.Errorf("asked behind %q", after)
		}
	}))
	t.Cleanup(server.Close)
	d, err := target.Open(t.Context(), target.Options{URL: server.URL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func event(seq int) string {
	return fmt.Sprintf(`{"seq":%d,"session_id":"s","workspace_id":"w","recorded_at_ms":1,"stored_at_ms":1,"type":"error","data":{}}`, seq)
}

// sends answers with a stream of events, behind what the request says, and ends it.
func sends(t *testing.T, behind string, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Last-Event-ID") + r.URL.Query().Get("after_seq"); got != behind {
			t.Errorf("a stream behind %q instead of %q", got, behind)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Skald-Epoch", "e1")
		fmt.Fprint(w, "retry: 10\n: connected\n\n")
		for _, e := range events {
			fmt.Fprint(w, e)
		}
	}
}

func frame(seq int) string { return fmt.Sprintf("id: %d\nevent: error\ndata: %s\n\n", seq, event(seq)) }

// collect follows until the event of that number has come, or it ends.
func collect(t *testing.T, d target.Target, p api.Params, last uint64) (got []uint64, at bus.Cursor, troubles int, err error) {
	t.Helper()
	return collectWithin(t, d, skaldtest.Timeout, p, last)
}

// collectWithin is collect where streams have to begin within so long.
func collectWithin(t *testing.T, d target.Target, begins time.Duration, p api.Params, last uint64) (got []uint64, at bus.Cursor, troubles int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), skaldtest.Timeout)
	defer cancel()
	at, err = target.FollowImpatiently(ctx, d, begins, p, func(_ []byte, at bus.Cursor) error {
		if got = append(got, at.Seq); at.Seq == last {
			return errDone
		}
		return nil
	}, func(err error) {
		if err != nil {
			troubles++
		}
	})
	return got, at, troubles, err
}

// A stream that is cut, within an event too, goes on behind the last whole one.
func TestFollow_Resumes(t *testing.T) {
	d := script(t,
		sends(t, "0", frame(1), frame(2)), sends(t, "e1:2", "id: 3\nda"), sends(t, "e1:2"), sends(t, "e1:2", frame(5), frame(8)))
	got, at, troubles, err := collect(t, d, api.Params{api.ParamAfterSeq: {"0"}}, 8)
	require.ErrorIs(t, err, errDone)
	require.Equal(t, []uint64{1, 2, 5, 8}, got)
	require.Equal(t, bus.Cursor{Epoch: "e1", Seq: 5}, at, "the last was not taken")
	require.Zero(t, troubles)
}

// Without a cursor it begins at the newest event, and is lost before another comes
// without losing what comes meanwhile.
func TestFollow_FromNow(t *testing.T) {
	d := script(t, sends(t, "e1:3"), sends(t, "e1:3", frame(4)))
	got, _, _, err := collect(t, d, api.Params{}, 4)
	require.ErrorIs(t, err, errDone)
	require.Equal(t, []uint64{4}, got)
}

// Where something in between holds a stream back, pages bring what there is, and a
// stream is tried again.
func TestFollow_HeldBack(t *testing.T) {
	held := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	d := script(t, held, held, sends(t, "e1:3", frame(4)))
	got, _, _, err := collectWithin(t, d, 200*time.Millisecond, api.Params{api.ParamAfterSeq: {"2"}}, 4)
	require.ErrorIs(t, err, errDone)
	require.Equal(t, []uint64{3, 4}, got)
}

// What passes is ridden over and told of; what does not, ends it with the failure.
func TestFollow_Refusals(t *testing.T) {
	says := func(code, more string) string {
		return "event: stream_error\ndata: {\"error\":\"text of " + code + "\",\"code\":\"" + code + "\"" + more + "}\n\n"
	}
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	from := api.Params{api.ParamAfterSeq: {"e1:2"}}
	d := script(t, sends(t, "e1:2", frame(3), says("unavailable", "")), status(503, `{"error":"x","code":"behind"}`), status(502, "<html>"), sends(t, "e1:3", frame(4)))
	got, _, troubles, err := collect(t, d, from, 4)
	require.ErrorIs(t, err, errDone)
	require.Equal(t, []uint64{3, 4}, got)
	require.Positive(t, troubles)

	for _, c := range []struct {
		answer http.HandlerFunc
		want   error
		text   string
	}{
		{status(410, `{"error":"older than kept","code":"cursor_gone","oldest_seq":9,"latest_seq":12}`), bus.ErrCursorGone, "older than kept"},
		{status(409, `{"error":"x","code":"other_epoch","epoch":"e2"}`), bus.ErrOtherEpoch, ""},
		{sends(t, "e1:3", says("cursor_gone", `,"oldest_seq":9`)), bus.ErrCursorGone, "text of cursor_gone"},
		{sends(t, "e1:3", says("unauthorized", "")), nil, "text of unauthorized"},
		{sends(t, "e1:3", "event: stream_error\ndata: what\n\n"), nil, "not an answer of skald's"},
		{sends(t, "e1:3", frame(3)), nil, "sends event 3 behind e1:3"},
		{sends(t, "e1:3", "data: x\n\n"), nil, ""},
		{status(200, "{}"), nil, "no stream of events"},
		{status(404, "<html>"), nil, "404"},
	} {
		got, at, _, err := collect(t, script(t, sends(t, "e1:2", frame(3)), c.answer), from, 0)
		require.Error(t, err)
		require.ErrorContains(t, err, c.text)
		if c.want != nil {
			require.ErrorIs(t, err, c.want)
		}
		require.Equal(t, []uint64{3}, got)
		require.Equal(t, bus.Cursor{Epoch: "e1", Seq: 3}, at, "from where to go on")
	}
}
