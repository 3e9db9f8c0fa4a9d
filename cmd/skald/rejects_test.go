//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// rejectsOf runs a command that deals with rejects, at the running service.
func (p *process) rejectsOf(data string, args ...string) result {
	args = append([]string{"rejects", "--data", data}, args...)
	if args[3] != "show" {
		args = append(args, "--server", p.nats)
	}
	return cli(args...)
}

// A conflict is shown with what the first message left, retried as a message of its own,
// once however often that is done, and discarded; what was told of it before stays true.
func TestRejects_RetryAndDiscard(t *testing.T) {
	dir := t.TempDir()
	p := startServe(t, dir)
	js := p.jetStream()
	put := func(subject, id, body string) {
		t.Helper()
		m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
		if id != "" {
			m.Header.Set("Skald-Event-Id", id)
		}
		_, err := js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	put("skald.in.w.s.error", "e", `{"message":"the first"}`)
	put("skald.in.w.s.error", "e", `{"message":"the second"}`) // 1: a conflict
	put("skald.in.w.s.error", "", `{"message":1}`)             // 2: wrong for ever
	put("skald.in.w.s.bogus", "", `{}`)                        // 3: of no known class
	put("skald.in.w.t.error", "", `{}`)                        // 4: another session
	put("skald.in.w.=.error", "", `{}`)                        // 5: no session at all
	p.settle()

	shown := p.rejectsOf(dir, "show", "1").ok(t)
	require.Contains(t, shown, `"payload":"{\"message\":\"the second\"}"`)
	require.Contains(t, shown, `"first_facts":[{"seq":1,`)
	require.Contains(t, shown, `the first`)
	require.NotContains(t, p.rejectsOf(dir, "show", "2").ok(t), "first_facts")

	var first, again struct {
		ID        int64
		IngestSeq int64  `json:"ingest_seq"`
		EventID   string `json:"event_id"`
		Outcome   string
	}
	require.NoError(t, json.Unmarshal([]byte(p.rejectsOf(dir, "retry", "1").ok(t)), &first))
	require.NoError(t, json.Unmarshal([]byte(p.rejectsOf(dir, "retry", "1").ok(t)), &again))
	require.Equal(t, "applied", first.Outcome)
	require.Regexp(t, `^retry-2-\d{19}$`, first.EventID)
	require.Equal(t, first.EventID, again.EventID)
	require.Greater(t, again.IngestSeq, first.IngestSeq)
	events := cli("events", "--data", dir, "--after-seq", "0", "--json").ok(t)
	require.Equal(t, 1, strings.Count(events, "the second"), events)
	require.Equal(t, 1, strings.Count(events, "the first"), events)

	p.rejectsOf(dir, "retry", "2").fails(t, exitFailed, "was rejected too, entry 6: bad_body: message: must be a string")
	p.rejectsOf(dir, "retry", "3").fails(t, exitFailed, "was rejected too, entry 7: unknown_class")
	p.rejectsOf(dir, "retry", "5").fails(t, exitFailed, "names no session")
	p.rejectsOf(dir, "retry", "99").fails(t, exitNotFound, "reject 99")
	p.rejectsOf(dir, "retry", "x").fails(t, exitUsage, "number from 1")

	outcome := func() string {
		nc := js.Conn()
		m, err := nc.RequestWithContext(short(t), "skald.api.w.outcome.s", []byte(`{"event_id":"e"}`))
		require.NoError(t, err)
		text, _, _ := strings.Cut(string(m.Data), `,"ingest_position"`)
		return text
	}
	before := outcome()
	ids := func() (ids []int64) {
		for _, line := range split(cli("rejects", "--json", "--data", dir).ok(t)) {
			var e struct{ ID int64 }
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			ids = append(ids, e.ID)
		}
		return ids
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, ids())
	p.rejectsOf(dir, "discard", "1", "99").fails(t, exitNotFound, "reject 99")
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, ids(), "all that are named, or none")
	require.Equal(t, "discarded 2 entries\n", p.rejectsOf(dir, "discard", "1", "7").ok(t))
	require.Equal(t, []int64{2, 3, 4, 5, 6}, ids())
	require.Equal(t, before, outcome(), "a discarded message was not applied")
	p.rejectsOf(dir, "discard", "1").fails(t, exitNotFound, "reject 1")
	require.Equal(t, "discarded 3 entries\n", p.rejectsOf(dir, "discard", "--session", "s", "--workspace", "w").ok(t))
	require.Equal(t, []int64{4, 5}, ids())
	p.rejectsOf(dir, "discard").fails(t, exitUsage, "--all")
	p.rejectsOf(dir, "discard", "--all", "4").fails(t, exitUsage, "--all")
	p.rejectsOf(dir, "discard", "--all", "--session", "s").fails(t, exitUsage, "--all")
	p.rejectsOf(dir, "discard", "--session", "").fails(t, exitUsage, "--session")
	require.Equal(t, "discarded 2 entries\n", p.rejectsOf(dir, "discard", "--all").ok(t))
	require.Equal(t, "discarded 0 entries\n", p.rejectsOf(dir, "discard", "--all").ok(t))
	require.Contains(t, p.get("/api/v1/status"), `"rejects":0`)
	p.stop()

	// Nothing of it comes back with a restart, and another bus is not spoken to.
	p = startServe(t, dir)
	require.Empty(t, ids())
	other := t.TempDir()
	q := startServe(t, other)
	p.rejectsOf(other, "discard", "--all").fails(t, exitFailed, "--data and --server must name the same")
	q.stop()
	p.stop()
	p.rejectsOf(dir, "discard", "--all", "--wait", "1s").fails(t, exitFailed, "check that the server runs")
}
