package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Nonsense is refused at once, naming the parameter and its rule; nothing of it
// reaches the store, and nothing is read as if it were another value.
func TestEvents_RefusesNonsense(t *testing.T) {
	w := newWorld(t, api.Options{})
	w.publish(key("default", "s"), bus.ClassError, errorBody("x"))
	for _, c := range []struct{ parameter, raw string }{
		{"after_seq", "after_seq=bad"},
		{"after_seq", "after_seq=-1"},
		{"after_seq", "after_seq=1.5"},
		{"after_seq", "after_seq=0x10"},
		{"after_seq", "after_seq=1e3"},
		{"after_seq", "after_seq=%205"},
		{"after_seq", "after_seq=5,6"},
		{"after_seq", "after_seq=%2B5"},
		{"after_seq", "after_seq=9223372036854775808"},
		{"after_seq", "after_seq=" + strings.Repeat("9", 10<<10)},
		{"after_seq", "after_seq=1&after_seq=1"},
		{"after_seq", "after_seq=:1"},
		{"after_seq", "after_seq=" + epoch + ":"},
		{"limit", "limit=0"},
		{"limit", "limit=000"},
		{"limit", "limit=-1"},
		{"limit", "limit=ten"},
		{"limit", "limit=1.5"},
		{"limit", "limit=%201"},
		{"limit", "limit=5&limit=6"},
		{"session_id", "session_id="},
		{"session_id", "session_id=a%0D%0AB"},
		{"session_id", "session_id=%00"},
		{"session_id", "session_id=%FF"},
		{"session_id", "session_id=" + strings.Repeat("a", 257)},
		{"session_id", "session_id=a&session_id=b"},
		{"workspace_id", "workspace_id="},
		{"workspace_id", "workspace_id=" + strings.Repeat("é", 129)},
		{"type", "type="},
		{"type", "type=" + strings.Repeat("t", 65)},
		{"type", "type=a%0Ab"},
		{"after", "after=1"},
		{"follow", "follow=1"},
		{"After_Seq", "After_Seq=1"},
		{"a", "z=1&a=1"},
		{"query", "after_seq=1;limit=2"},
		{"query", "after_seq=%zz"},
	} {
		f := w.fails(c.raw)
		require.Equal(t, http.StatusBadRequest, f.Status, "%.80s", c.raw)
		require.Equal(t, api.CodeBadParameter, f.Code, "%.80s", c.raw)
		require.Equal(t, c.parameter, f.Parameter, "%.80s", c.raw)
		require.Contains(t, f.Message, c.parameter+": ", "%.80s", c.raw)
		require.Less(t, len(f.Message), 400, "%.80s", c.raw)
	}
}

// What is empty counts as absent where nothing is widened by that, and big limits
// are cut, however many digits they have.
func TestEvents_EmptyAndBigValues(t *testing.T) {
	w := newWorld(t, api.Options{})
	for range 3 {
		w.publish(key("default", "s"), bus.ClassError, errorBody("x"))
	}
	newest := page{NextAfter: 3, Latest: 3, Oldest: 1, Epoch: epoch}
	for _, raw := range []string{"", "after_seq=", "after_seq=&limit=", "limit=5"} {
		p := w.page(raw)
		require.Empty(t, p.Events, raw)
		p.Events = nil
		require.Equal(t, newest, p, raw)
	}
	for _, limit := range []string{"", "200", "1000", "1001", "1000000000", "9223372036854775808", strings.Repeat("9", 40), "003"} {
		require.Equal(t, []uint64{1, 2, 3}, w.page("after_seq=0&limit="+limit).seqs(), limit)
	}
	require.Equal(t, []uint64{2}, w.page("after_seq=1&limit=1").seqs())
	require.Equal(t, []uint64{3}, w.page("after_seq="+epoch+":2").seqs())
	require.Empty(t, w.page("after_seq=3").Events)
}

// Filters are exact ids: what is a wildcard, a pattern or a path elsewhere is an id
// here, and matches nothing but itself.
func TestEvents_FiltersAreExact(t *testing.T) {
	w := newWorld(t, api.Options{})
	w.publish(key("acme", "s"), bus.ClassError, errorBody("acme"))
	w.publish(key("other", "s"), bus.ClassError, errorBody("other"))
	w.publish(key("other", "*"), bus.ClassError, errorBody("star"))
	for _, v := range []string{">", "acme.>", "other.s", "%", "_", "../other", "acme*", "Acme", "other ", "s' OR 1=1 --"} {
		require.Empty(t, w.page("after_seq=0&workspace_id="+url.QueryEscape(v)).Events, v)
		require.Empty(t, w.page("after_seq=0&session_id="+url.QueryEscape(v)).Events, v)
		require.Empty(t, w.page("after_seq=0&type="+url.QueryEscape(v)).Events, v)
	}
	require.Equal(t, []uint64{1}, w.page("after_seq=0&workspace_id=acme").seqs())
	require.Equal(t, []uint64{1, 2}, w.page("after_seq=0&session_id=s").seqs())
	require.Equal(t, []uint64{3}, w.page("after_seq=0&session_id=*").seqs())
	require.Equal(t, []uint64{2}, w.page("after_seq=0&session_id=s&workspace_id=other&type=error").seqs())
}

// Beyond the store's end with no server to ask is ahead, with where to go on.
func TestEvents_AheadWithoutServer(t *testing.T) {
	w := newWorld(t, api.Options{})
	w.publish(key("default", "s"), bus.ClassError, errorBody("x"))
	f := w.fails("after_seq=2")
	require.Equal(t, http.StatusBadRequest, f.Status)
	require.Equal(t, api.CodeCursorAhead, f.Code)
	require.Equal(t, uint64(1), *f.LatestSeq)
	require.Equal(t, api.CodeCursorAhead, w.fails("after_seq=9223372036854775807").Code)
}

// Beyond this store's end and beyond EVENTS' is ahead: nobody was given such a cursor.
func TestEvents_AheadOfEvents(t *testing.T) {
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) { return api.Ends{EventsLast: 5}, nil }})
	require.Equal(t, api.CodeCursorAhead, w.fails("after_seq=6").Code)
}

// Beyond this store's end but within EVENTS, the store is given time to get there,
// and the page is then that of after: at the very number it is there.
func TestEvents_WaitsForTheStore(t *testing.T) {
	asked := make(chan struct{}, 1)
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) {
		asked <- struct{}{}
		return api.Ends{EventsLast: 100}, nil
	}})
	type answer struct {
		body []byte
		err  error
	}
	for seq := 1; ; seq++ {
		got := make(chan answer, 1)
		go func() {
			body, err := w.api.Events(context.Background(), api.Params{"after_seq": {fmt.Sprint(seq)}}, 0)
			got <- answer{body, err}
		}()
		<-asked
		w.publish(key("default", "s"), bus.ClassError, errorBody("one"))
		a := <-got
		if a.err != nil && seq < 10 { // a busy machine may not commit in the time that is given
			require.Equal(t, api.CodeBehind, api.FailureOf(a.err).Code)
			continue
		}
		require.NoError(t, a.err)
		require.Equal(t, fmt.Sprintf(`{"events":[],"next_after_seq":%d,"latest_seq":%d,"oldest_seq":1,"epoch":"epoch1"}`, seq, seq), string(a.body))
		return
	}
}

// A store that does not get there says so, and when to come again, but not before two
// seconds are over. How much later is up to the machine.
func TestEvents_BehindAfterTwoSeconds(t *testing.T) {
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) { return api.Ends{EventsLast: 9}, nil }})
	start := time.Now()
	f := w.fails("after_seq=9")
	require.Equal(t, http.StatusServiceUnavailable, f.Status)
	require.Equal(t, api.CodeBehind, f.Code)
	require.Positive(t, f.RetryAfter)
	require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
}

// Readers that wait for the store hold up no others.
func TestEvents_WaitingReadersHoldUpNobody(t *testing.T) {
	var waiting atomic.Int64
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) {
		waiting.Add(1)
		return api.Ends{EventsLast: 9}, nil
	}})
	w.publish(key("default", "s"), bus.ClassError, errorBody("x"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 40)
	for range cap(done) {
		go func() {
			_, err := w.api.Events(ctx, api.Params{"after_seq": {"9"}}, 0)
			done <- err
		}()
	}
	require.Eventually(t, func() bool { return waiting.Load() == int64(cap(done)) }, skaldtest.Timeout, time.Millisecond)
	require.Equal(t, []uint64{1}, w.page("after_seq=0").seqs())
	cancel()
	for range cap(done) {
		require.Equal(t, http.StatusServiceUnavailable, api.FailureOf(<-done).Status)
	}
}

// Without an answer from the server, beyond the end is neither ahead nor behind.
func TestEvents_ServerDoesNotAnswer(t *testing.T) {
	secret := errors.New("nats://user:pa55@host: connection refused")
	w := newWorld(t, api.Options{Ends: func(context.Context) (api.Ends, error) { return api.Ends{}, secret }})
	f := w.fails("after_seq=1")
	require.Equal(t, http.StatusServiceUnavailable, f.Status)
	require.Equal(t, api.CodeUnavailable, f.Code)
	require.NotContains(t, string(f.AppendJSON(nil)), "pa55")
}

// A cursor behind what was pruned is gone and told where to go on; one of another
// epoch is told the epoch that holds, before its number is looked at.
func TestEvents_GoneAndOtherEpoch(t *testing.T) {
	w := newWorld(t, api.Options{})
	for range 5 {
		w.publish(key("default", "s"), bus.ClassError, errorBody("x"))
	}
	w.prune(4)
	f := w.fails("after_seq=1")
	require.Equal(t, http.StatusGone, f.Status)
	require.Equal(t, api.CodeCursorGone, f.Code)
	require.Equal(t, uint64(4), *f.OldestSeq)
	require.Equal(t, uint64(5), *f.LatestSeq)
	require.Equal(t, []uint64{4, 5}, w.page("after_seq=3").seqs(), "the last number before the oldest is no gap")
	require.Equal(t, []uint64{4, 5}, w.page("after_seq=0").seqs(), "from the beginning is never gone")

	for _, raw := range []string{"after_seq=other:1", "after_seq=other:99", "after_seq=other:5"} {
		f = w.fails(raw)
		require.Equal(t, http.StatusConflict, f.Status, raw)
		require.Equal(t, api.CodeOtherEpoch, f.Code, raw)
		require.Equal(t, epoch, f.Epoch, raw)
	}
}

// A page within a bound of bytes holds one row at least, and a walk gets past it.
func TestEvents_MaxBytes(t *testing.T) {
	w := newWorld(t, api.Options{})
	for range 3 {
		w.publish(key("default", "s"), bus.ClassError, errorBody(strings.Repeat("x", 1000)))
	}
	after, rows := uint64(0), 0
	for range 3 {
		body, err := w.api.Events(context.Background(), api.Params{"after_seq": {bus.Cursor{Seq: after}.String()}}, 100)
		require.NoError(t, err)
		p := decode[page](t, body)
		require.Len(t, p.Events, 1)
		after, rows = p.NextAfter, rows+1
	}
	require.Equal(t, uint64(3), after)
}
