//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A producer used an id again for something else; duplicates were told by the id
// alone, so the later content was swallowed with a success. Here the first stands,
// the exact repeat is quiet, and the other one is listed with its body.
func TestB13_SameIdOtherBody(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL())
	heard := s.listen(t, "b13")
	w := &plainWorker{t, connect(t, broker.ClientURL())}
	body := func(v int) string { return fmt.Sprintf(`{"activity":{"v":%d}}`, v) }
	sent := map[string][]uint64{}
	send := func(session string, h nats.Header, v int) {
		sent[session] = append(sent[session], w.put(ingestSubject("b13", session, "activity"), h, body(v)))
	}
	for _, v := range []int{1, 1, 2} { // at once
		send("at once", withID("e-7"), v)
		send("counted", withCount("p", "7"), v)
	}
	for _, v := range []int{1, 1, 2} { // when the broker has forgotten the one before
		send("later", withID("e-7"), v)
		w.windowPasses()
	}
	s.settle(t)
	s.stop(t)
	for _, v := range []int{1, 1, 2} {
		send("queued", withID("e-7"), v)
	}
	s = serve(t, data, "--server", broker.ClientURL())

	// By the command: what is stored is acknowledged, what became of it is asked.
	for _, v := range []string{"1", "1", "2"} {
		require.Len(t, skald(t, "", "publish", "--server", s.nats, "--workspace", "b13", "--session", "command", "--id", "e-7", "--body", `{"activity":{"v":`+v+`}}`).ok(t), 1)
	}

	rows := s.same(t, "b13")
	require.Len(t, rows, 5)
	for _, r := range rows {
		require.Equal(t, `{"activity":{"v":1}}`, dataOf(r))
	}
	st := s.settle(t)
	require.Equal(t, 5, st.Rejects)
	require.Equal(t, 5, st.Duplicates)
	entries := s.rejects(t, "--workspace", "b13")
	for session, seqs := range sent {
		require.Equal(t, "applied", heard.of(seqs[0]).Outcome, session)
		require.Equal(t, "duplicate", heard.of(seqs[1]).Outcome, session)
		require.Equal(t, "conflict", heard.of(seqs[2]).Reason, session)
		e := entries[seqs[2]]
		require.Equal(t, "conflict", e.Reason, session)
		if session == "counted" {
			require.Equal(t, "count: 7 is known with another class or body, which stands", e.Detail)
		} else {
			require.Equal(t, "event id: is known with another class or body, which stands", e.Detail)
		}
		shown := skald(t, "", "rejects", "show", fmt.Sprint(e.ID), "--json", "--data", data).ok(t)
		require.Contains(t, shown[0], `"payload":`+quoted(body(2)))
	}
	got := s.ask(t, "skald.api.b13.outcome.queued", `{"event_id":"e-7"}`)
	require.Contains(t, string(got.Data), `{"outcome":"applied","ingest_position":`, "of the one that stands")
}

// windowPasses waits until the broker takes a repeated Nats-Msg-Id for a new one.
func (w *plainWorker) windowPasses() {
	w.t.Helper()
	h := nats.Header{"Nats-Msg-Id": {nats.NewInbox()}}
	w.put(ingestSubject("probe", "s", "error"), h, failed("probe"))
	skaldtest.Eventually(w.t, patience, func() bool {
		time.Sleep(50 * time.Millisecond) // each probe that is stored is one more message
		ack, err := w.send(ingestSubject("probe", "s", "error"), h, failed("probe"))
		return err == nil && !ack.Duplicate
	}, "the broker forgets an id")
}

// A worker that was offline for longer than the broker remembers ids sent its
// backlog again, and every reader saw it twice. Here it is one row, however often and
// whatever was restarted in between; and a repeat that the broker still knows is a
// quiet success.
func TestB22_RetryAfterTheWindow(t *testing.T) {
	t.Parallel()
	o := natsd.Options{Dir: t.TempDir(), Listen: skaldtest.FreeAddress(t)}
	broker := outsideNATS(t, o)
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL(), "--id-horizon", "1h")
	heard := s.listen(t, "b22")
	w := &plainWorker{t, connect(t, broker.ClientURL())}
	at := ingestSubject("b22", "s", "error")
	headers := func() nats.Header {
		h := withID("e-1")
		h.Set("Nats-Msg-Id", "e-1")
		return h
	}
	sent := []uint64{w.put(at, headers(), failed("once")), w.put(at, withCount("p", "1"), failed("counted"))}
	again := func() {
		w.windowPasses()
		ack, err := w.send(at, headers(), failed("once"))
		require.NoError(t, err)
		require.False(t, ack.Duplicate, "the broker takes it for new")
		sent = append(sent, ack.Sequence, w.put(at, withCount("p", "1"), failed("counted")))
		// The broker knows it, which is a success, if it is asked in time: on a busy machine not
		// by the first of these.
		skaldtest.Eventually(t, patience, func() bool {
			ack, err := w.send(at, headers(), failed("once"))
			if err == nil && !ack.Duplicate {
				sent = append(sent, ack.Sequence)
			}
			return err == nil && ack.Duplicate
		}, "the broker knows it")
		s.settle(t)
	}
	again()
	s.stop(t)
	s = serve(t, data, "--server", broker.ClientURL())
	again()
	restarted := len(sent) // what comes then is confirmed to who listens again
	broker.Shutdown()
	skaldtest.Eventually(t, patience, w.nc.IsReconnecting)
	broker = outsideNATS(t, o)
	skaldtest.Eventually(t, patience, w.nc.IsConnected)
	again()

	rows := s.same(t, "b22")
	require.Len(t, rows, 2)
	require.Contains(t, rows[0], `"message":"once"`)
	require.Contains(t, rows[1], `"message":"counted"`)
	for _, seq := range sent[2:restarted] {
		require.Equal(t, "duplicate", heard.of(seq).Outcome)
	}
	require.Equal(t, len(sent)-2, s.settle(t).Duplicates)
	require.Zero(t, s.settle(t).Rejects)
	require.True(t, s.running())
	require.NotNil(t, broker)
}

// Both copies of a message that came twice landed in one insert; the statement failed,
// all of it came again, and the worker shut itself down. Here 300 messages with 100
// ids, and 20 old ones among them, give 100 rows.
func TestB32_TheSameTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	s := serve(t, data, "--server", broker.ClientURL())
	w := &plainWorker{t, connect(t, broker.ClientURL())}
	at := ingestSubject("b32", "s", "error")
	for i := range 20 {
		w.put(at, withID(fmt.Sprint("old-", i)), failed(fmt.Sprint("old-", i)))
	}
	old := s.same(t, "b32")
	require.Len(t, old, 20)
	s.stop(t)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var ids []string
	for i := range 100 {
		e := fmt.Sprint("e-", i)
		ids = append(ids, e, e, e)
	}
	for i := range 20 {
		ids = append(ids, fmt.Sprint("old-", i))
	}
	rng.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	var want []string
	seen := map[string]bool{}
	for i, e := range ids {
		h := withID(e)
		if i%3 > 0 {
			h.Set("Nats-Msg-Id", fmt.Sprint(i)) // differs from copy to copy
		}
		w.put(at, h, failed(e))
		if !seen[e] && e[0] == 'e' {
			want = append(want, fmt.Sprintf(`{"message":%q,"command_id":null}`, e))
		}
		seen[e] = true
	}

	s = serve(t, data, "--server", broker.ClientURL())
	rows := s.same(t, "b32")
	require.Equal(t, old, rows[:20])
	var got []string
	for _, r := range rows[20:] {
		got = append(got, dataOf(r))
	}
	require.Equal(t, want, got, "the first of each id, in their order")
	st := s.settle(t)
	require.Equal(t, 220, st.Duplicates)
	require.Equal(t, 120, st.Applied)
	require.Zero(t, st.Rejects)
}
