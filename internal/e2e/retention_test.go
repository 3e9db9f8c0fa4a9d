//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
)

// B17: INGEST is full while nobody materializes. What does not fit is refused at the
// publisher, by name; what was acknowledged is in the table: nothing is dropped in silence.
func TestB17_IngestFull(t *testing.T) {
	t.Parallel()
	const limit, sent = 1000, 3000
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL())
	js := s.js(t)
	s.stop(t)
	in, err := js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	c := in.CachedInfo().Config
	c.MaxMsgs = limit
	_, err = js.UpdateStream(t.Context(), c)
	require.NoError(t, err)

	w := s.worker(t)
	stored, refused := 0, 0
	for i := range sent {
		_, err := w.send(ingestSubject("w", fmt.Sprint("s", i%5), "error"), withID(fmt.Sprint(i)), failed(fmt.Sprint(i)))
		var named *jetstream.APIError
		switch {
		case err == nil:
			require.Zero(t, refused, "a full stream stays full")
			stored++
		case errors.As(err, &named):
			require.Contains(t, named.Description, "maximum messages exceeded")
			refused++
		default:
			require.NoError(t, err)
		}
	}
	require.Equal(t, []int{limit, sent - limit}, []int{stored, refused})
	// The command line says so too, and that it was not stored.
	r := skald(t, "", "publish", "--server", s.nats, "--workspace", "w", "--session", "s", "--class", "error", "--body", `{"message":"m"}`)
	r.fails(t, 1, "maximum messages exceeded")

	s = serve(t, data, "--server", broker.ClientURL())
	require.Len(t, s.same(t, "w"), limit)
	s.stop(t)
}

// B18: a cursor below what a prune has kept is told so at every door before any event, with
// the way on; one within a forgotten session's numbers just goes on behind them.
func TestB18_CursorGone(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	w := s.worker(t)
	for i := 1; i <= 1000; i++ {
		session := "kept"
		if i >= 700 && i <= 710 {
			session = "gone"
		}
		w.put(ingestSubject("w", session, "error"), nil, failed(fmt.Sprint(i)))
	}
	s.settle(t)
	skald(t, "", "prune", "--before-seq", "401", "--server", s.nats).ok(t)
	skald(t, "", "forget", "gone", "--workspace", "w", "--server", s.nats, "--yes").ok(t)
	s.settle(t)

	for _, d := range s.doors() {
		r := d.refuses(t, url.Values{"after_seq": {"100"}}, http.StatusGone, "cursor_gone", "")
		if !d.shell {
			require.EqualValues(t, 401, *r.Oldest, "%s: %s", d.name, r.Text)
		}
		require.Contains(t, r.Text, "401", d.name)
		for after, first := range map[string]uint64{"0": 401, "400": 401, "705": 711, "699": 711} {
			p, refused := d.ask(t, url.Values{"after_seq": {after}, "limit": {"1"}})
			require.Nil(t, refused, d.name)
			require.Len(t, p.Events, 1)
			require.Contains(t, p.lines()[0], fmt.Sprintf(`{"seq":%d,`, first), "%s after %s", d.name, after)
		}
	}
	_, err := follow(s.http, url.Values{}, "100")
	require.ErrorContains(t, err, "410")
	require.ErrorContains(t, err, `"oldest_seq":401`)
	require.Contains(t, s.follow(t, url.Values{}, "705").need(t, 1)[0], `{"seq":711,`)
	for _, args := range [][]string{{"--data", data}, {"--url", s.http}, {"--server", s.nats}} {
		r := skald(t, "", append([]string{"events", "--follow", "--count", "1", "--after-seq", "100"}, args...)...)
		r.fails(t, 1, "401")
		lines := skald(t, "", append([]string{"events", "--follow", "--count", "1", "--json", "--after-seq", "705"}, args...)...).ok(t)
		require.Contains(t, lines[0], `{"seq":711,`)
	}
	s.stop(t)
}

// Rows were pruned, the EVENTS stream was lost and made again from the table, and then the
// store is lost as well, before any checkpoint was written. What comes back is what there
// was: nothing that was pruned is rejected, to be sent again under another number. Of a
// message that somebody deleted from EVENTS the entry is not to be retried.
func TestPrune_EventsMadeAgainStoreLost(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	s.fillTrimmed(t, "b", 1, 10)
	s.settle(t)
	skald(t, "", "prune", "--before-seq", "21", "--server", s.nats).ok(t)
	s.settle(t)
	s.fillTrimmed(t, "b", 11, 12)
	s.settle(t)
	kept, sessions := s.rowsFrom(t, 21), s.sessionsOf(t, "b")
	require.Len(t, kept, 16)
	kill(s.process)
	require.NoError(t, os.RemoveAll(streamDir(data, "SKALD_EVENTS")))
	skald(t, "", "repair", "--data", data, "--yes").ok(t)
	loseStore(t, data)

	s = serve(t, data)
	s.settle(t)
	require.Equal(t, kept, s.rowsFrom(t, 0))
	require.Equal(t, sessions, s.sessionsOf(t, "b"))
	require.Empty(t, s.rejects(t))
	s.fillTrimmed(t, "b", 1, 12) // all of it again
	s.settle(t)
	require.Equal(t, kept, s.rowsFrom(t, 0))

	stream, err := s.js(t).Stream(t.Context(), "SKALD_EVENTS")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), 30))
	kill(s.process)
	loseStore(t, data)
	s = serve(t, data)
	s.settle(t)
	require.Equal(t, slices.Concat(kept[:9], kept[10:]), s.rowsFrom(t, 0))
	list := s.rejects(t)
	require.Len(t, list, 1)
	for _, r := range list {
		require.Equal(t, "not_in_events", r.Reason)
		skald(t, "", "rejects", "retry", fmt.Sprint(r.ID), "--data", data, "--server", s.nats).
			fails(t, 1, "numbers that are gone from EVENTS")
	}
	s.stop(t)
}

// rowsFrom returns the events from a number on, as the gateway gives them.
func (s *server) rowsFrom(t *testing.T, seq uint64) []string {
	t.Helper()
	p, r := s.get(t, fmt.Sprintf("/api/v1/events?limit=1000&after_seq=%d", max(seq, 1)-1))
	require.Nil(t, r)
	return p.lines()
}
