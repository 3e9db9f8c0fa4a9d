package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

type sessionList struct {
	Sessions []struct {
		Session   string `json:"session_id"`
		Workspace string `json:"workspace_id"`
	} `json:"sessions"`
	Next *int64 `json:"next_after"`
}

func (l sessionList) names() []string {
	out := []string{}
	for _, s := range l.Sessions {
		out = append(out, s.Workspace+"/"+s.Session)
	}
	return out
}

func (w *world) sessions(raw string, maxBytes int) sessionList {
	w.t.Helper()
	body, err := w.api.Sessions(context.Background(), query(w.t, raw), maxBytes)
	require.NoError(w.t, err)
	return decode[sessionList](w.t, body)
}

// A walk over the list gives every session once, whatever ends its pages.
func TestSessions_Walk(t *testing.T) {
	w := newWorld(t, api.Options{})
	want := []string{}
	for i := range 7 {
		k := key("w"+fmt.Sprint(i%2), "s"+fmt.Sprint(i))
		w.publish(k, bus.ClassError, errorBody("x"))
		want = append(want, k.Workspace+"/"+k.Session)
	}
	for _, limit := range []int{1, 2, 3, 7, 1000} {
		for _, maxBytes := range []int{0, 1500} {
			got, after := []string{}, int64(0)
			for {
				l := w.sessions(fmt.Sprintf("limit=%d&after=%d", limit, after), maxBytes)
				got = append(got, l.names()...)
				if l.Next == nil {
					break
				}
				require.Greater(t, *l.Next, after)
				after = *l.Next
			}
			require.ElementsMatch(t, want, got, "limit %d, %d bytes", limit, maxBytes)
		}
	}
	require.Equal(t, []string{"w0/s2"}, w.sessions("session_id=s2", 0).names())
	require.Equal(t, []string{"w1/s1", "w1/s3", "w1/s5"}, w.sessions("workspace_id=w1", 0).names())
	require.Empty(t, w.sessions("workspace_id=w1&session_id=s2", 0).names())
	require.Empty(t, w.sessions("workspace_id=*", 0).names())

	_, err := w.api.Sessions(context.Background(), nil, 20)
	require.Equal(t, api.CodeTooLarge, api.FailureOf(err).Code)
	for raw, parameter := range map[string]string{
		"after=-1": "after", "after=1.5": "after", "after=" + strings.Repeat("9", 30): "after", "limit=0": "limit",
		"session_id=": "session_id", "type=error": "type", "workspace_id=%0A": "workspace_id",
	} {
		_, err := w.api.Sessions(context.Background(), query(t, raw), 0)
		require.Equal(t, parameter, parameterOf(t, err), raw)
	}
}

// A session is named by workspace and id together; a forgotten one is not there.
func TestSession(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, api.Options{})
	w.publish(key("a", "s"), bus.ClassError, errorBody("x"))
	w.publish(key("b", "s"), bus.ClassError, errorBody("x"))
	w.publish(key("b", "only"), bus.ClassError, errorBody("x"))
	w.publish(key("b", "bad"), bus.ClassError, `{"no":"message"}`)

	body, err := w.api.Session(ctx, "only", nil, 0)
	require.NoError(t, err)
	require.Contains(t, string(body), `"session_id":"only","workspace_id":"b"`)
	require.Contains(t, string(body), `"events":{"count":1,"first_seq":3,"last_seq":3}`)

	_, err = w.api.Session(ctx, "s", nil, 0)
	f := api.FailureOf(err)
	require.Equal(t, api.CodeAmbiguous, f.Code)
	require.Equal(t, []string{"a", "b"}, f.Candidates)
	body, err = w.api.Session(ctx, "s", query(t, "workspace_id=b"), 0)
	require.NoError(t, err)
	require.Contains(t, string(body), `"workspace_id":"b"`)

	w.publish(key("a", "s"), bus.ClassControl, `{"op":"forget"}`)
	body, err = w.api.Session(ctx, "s", nil, 0)
	require.NoError(t, err, "only one is left")
	require.Contains(t, string(body), `"workspace_id":"b"`)
	for _, c := range []struct{ id, raw string }{{"s", "workspace_id=a"}, {"nobody", ""}, {"bad", ""}, {"*", ""}} {
		_, err = w.api.Session(ctx, c.id, query(t, c.raw), 0)
		require.ErrorIs(t, err, bus.ErrNotFound, c.id)
	}
	for _, id := range []string{"", "a\nb", strings.Repeat("x", 257), "\xff"} {
		_, err = w.api.Session(ctx, id, nil, 0)
		require.Equal(t, "session_id", parameterOf(t, err))
	}
	_, err = w.api.Session(ctx, "s", query(t, "workspace_id="), 0)
	require.Equal(t, "workspace_id", parameterOf(t, err))
	_, err = w.api.Session(ctx, "s", query(t, "session_id=s"), 0)
	require.Equal(t, "session_id", parameterOf(t, err))
	_, err = w.api.Session(ctx, "s", nil, 10)
	require.Equal(t, api.CodeTooLarge, api.FailureOf(err).Code)
}

type statusBody struct {
	Epoch  string `json:"epoch"`
	Latest uint64 `json:"latest_seq"`
	Oldest uint64 `json:"oldest_seq"`
	Ingest struct {
		Position uint64  `json:"position"`
		Last     *uint64 `json:"last_seq"`
		Lag      *uint64 `json:"lag"`
	} `json:"ingest"`
	Events struct {
		Last *uint64 `json:"last_seq"`
		Lag  *uint64 `json:"lag"`
	} `json:"events"`
	Sessions uint64 `json:"sessions"`
	Applied  uint64 `json:"applied"`
	Rejects  uint64 `json:"rejects"`
}

// Status has the members of the contract; lags are what is stored and not yet in
// the table, with the removals that are pending.
func TestStatus(t *testing.T) {
	ctx := context.Background()
	ends, endsErr := api.Ends{IngestLast: 10, EventsLast: 8}, error(nil)
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) { return ends, endsErr }})
	w.publish(key("a", "s"), bus.ClassError, errorBody("x"))
	w.publish(key("a", "t"), bus.ClassError, errorBody("x"))
	w.publish(key("a", "t"), bus.ClassError, `{}`)

	body, err := w.api.Status(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, `{"epoch":"epoch1","latest_seq":2,"oldest_seq":1,`+
		`"ingest":{"position":3,"last_seq":10,"lag":7},"events":{"last_seq":8,"lag":6},`+
		`"sessions":2,"applied":2,"duplicates":0,"held":0,"rejects":1,"dropped":0,"unprojected":0,"foreign":0,"holes":0,"removals":0,"erasures":0,"silent_stores":0}`, string(body))

	w.publish(key("a", "s"), bus.ClassControl, `{"op":"forget"}`)
	ends = api.Ends{IngestLast: 4, EventsLast: 2}
	body, err = w.api.Status(ctx, nil)
	require.NoError(t, err)
	s := decode[statusBody](t, body)
	require.Equal(t, uint64(1), *s.Events.Lag, "the row of the forgotten session is still to be removed")
	require.Equal(t, uint64(0), *s.Ingest.Lag)
	require.Equal(t, uint64(1), s.Sessions)

	ends = api.Ends{} // an answer from before the store went on
	body, err = w.api.Status(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(0), *decode[statusBody](t, body).Ingest.Lag)

	endsErr = errors.New("no server")
	body, err = w.api.Status(ctx, nil)
	require.NoError(t, err)
	s = decode[statusBody](t, body)
	require.Nil(t, s.Ingest.Lag)
	require.Nil(t, s.Events.Last)
	require.Equal(t, uint64(4), s.Ingest.Position)

	_, err = w.api.Status(ctx, query(t, "session_id=s"))
	require.Equal(t, "session_id", parameterOf(t, err))
}
