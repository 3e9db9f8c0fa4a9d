//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// badPage is a page that a session's chain does not take. The session has two events
// before it; good holds the third and those after it.
type badPage struct {
	name           string
	body           func(j *relayChain) string
	reason, detail string
}

// relayEvent is an event with each member as given, "" leaving it out.
type relayEvent struct{ format, ordinal, previous, digest, recordedAt, commandID, observation string }

func (e relayEvent) String() string {
	var members []string
	for _, m := range [][2]string{
		{"format", e.format}, {"ordinal", e.ordinal}, {"previous_digest", e.previous}, {"digest", e.digest},
		{"recorded_at_ms", e.recordedAt}, {"command_id", e.commandID}, {"observation", e.observation},
	} {
		if m[1] != "" {
			members = append(members, `"`+m[0]+`":`+m[1])
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// third is the event that the chain would take.
func third(j *relayChain) relayEvent {
	return relayEvent{
		ordinal: "3", previous: `"` + j.digest + `"`, digest: `"` + relayDigest(3, j.digest, "7", notice) + `"`, recordedAt: "7", observation: notice,
	}
}

// with is a page of the third event, changed.
func with(change func(e *relayEvent)) func(j *relayChain) string {
	return func(j *relayChain) string {
		e := third(j)
		change(&e)
		return `{"events":[` + e.String() + `]}`
	}
}

// ordinals is a page of events with these ordinals, digested as if they followed.
func ordinals(list ...string) func(j *relayChain) string {
	return func(j *relayChain) string {
		var events []string
		for _, n := range list {
			e := third(j)
			e.ordinal = n
			events = append(events, e.String())
		}
		return `{"events":[` + strings.Join(events, ",") + `]}`
	}
}

// after is a page of the third event that claims to begin there.
func after(claim func(j *relayChain) string) func(j *relayChain) string {
	return func(j *relayChain) string {
		return `{"after":` + claim(j) + `,"events":[` + third(j).String() + `]}`
	}
}

func text(s string) func(*relayChain) string { return func(*relayChain) string { return s } }

func badPages() []badPage {
	zeros, as := strings.Repeat("0", 64), strings.Repeat("a", 64)
	const (
		badOrdinal = "ordinal: must be an integer literal from 1 to 2^63-1"
		badDigest  = "digest: of event 3 must be 64 lower-case hex digits"
		badPrev    = "previous_digest: of event 3 must be 64 lower-case hex digits"
		badAfter   = "after.digest: must be 64 lower-case hex digits"
	)
	rows := []badPage{
		{"no events", text(`{}`), "bad_body", "events: is missing"},
		{"events of an object", text(`{"events":{}}`), "bad_body", "events: must be an array"},
		{"events null", text(`{"events":null}`), "bad_body", "events: must be an array"},
		{"events twice", text(`{"events":[],"events":[]}`), "bad_body", "events: must not occur twice"},
		{"0 events", text(`{"events":[]}`), "bad_page", "events: must hold 1 to 128 events, holds none"},
		{"129 events", func(j *relayChain) string { c := *j; return c.page(129) }, "bad_page", "events: must hold 1 to 128 events, holds more"},
		{"an event of a number", text(`{"events":[1]}`), "bad_body", "events: must be a JSON object"},
		{"cut off", text(`{"events":[{"ordinal":3`), "bad_body", "body: is cut off after 23 bytes"},

		{"ordinal 0", ordinals("0"), "bad_page", badOrdinal},
		{"ordinal -1", ordinals("-1"), "bad_page", badOrdinal},
		{"ordinal 1.0", ordinals("3.0"), "bad_page", badOrdinal},
		{"ordinal 3e0", ordinals("3e0"), "bad_page", badOrdinal},
		{"ordinal of a string", ordinals(`"3"`), "bad_page", badOrdinal},
		{"ordinal 2^63", ordinals("9223372036854775808"), "bad_page", badOrdinal},
		{"ordinal missing", ordinals(""), "bad_page", badOrdinal},
		{"ordinal repeated", ordinals("3", "3"), "bad_page", "ordinal: must go up by one, 3 follows 3"},
		{"ordinals out of order", ordinals("4", "3"), "bad_page", "ordinal: must go up by one, 3 follows 4"},
		{"ordinals with a gap", ordinals("3", "5"), "bad_page", "ordinal: must go up by one, 5 follows 3"},
		{"known ordinals with a gap", ordinals("1", "3"), "bad_page", "ordinal: must go up by one, 3 follows 1"},

		{"digest in upper case", with(func(e *relayEvent) { e.digest = strings.ToUpper(e.digest) }), "bad_chain", badDigest},
		{"digest of 63 digits", with(func(e *relayEvent) { e.digest = e.digest[:64] + `"` }), "bad_chain", badDigest},
		{"digest of 65 digits", with(func(e *relayEvent) { e.digest = e.digest[:65] + `0"` }), "bad_chain", badDigest},
		{"digest empty", with(func(e *relayEvent) { e.digest = `""` }), "bad_chain", badDigest},
		{"digest no hex", with(func(e *relayEvent) { e.digest = `"` + strings.Repeat("g", 64) + `"` }), "bad_chain", badDigest},
		{"digest null", with(func(e *relayEvent) { e.digest = `null` }), "bad_body", "digest: must be a string"},
		{"digest missing", with(func(e *relayEvent) { e.digest = "" }), "bad_body", "digest: of event 3 is missing"},
		{"previous in upper case", with(func(e *relayEvent) { e.previous = strings.ToUpper(e.previous) }), "bad_chain", badPrev},
		{"previous of 63 digits", with(func(e *relayEvent) { e.previous = e.previous[:64] + `"` }), "bad_chain", badPrev},
		{"previous missing", with(func(e *relayEvent) { e.previous = "" }), "bad_chain", badPrev},
		{"previous of a number", with(func(e *relayEvent) { e.previous = "1" }), "bad_body", "previous_digest: must be a string"},
		{"previous in format 2", with(func(e *relayEvent) { e.format = "2" }), "bad_chain", "previous_digest: of event 3 must be empty in format 2"},
		{"format 3", with(func(e *relayEvent) { e.format = "3" }), "bad_body", "format: must be 1 or 2"},
		{"format of a string", with(func(e *relayEvent) { e.format = `"1"` }), "bad_body", "format: must be 1 or 2"},
		{"time missing", with(func(e *relayEvent) { e.recordedAt = "" }), "bad_body", "recorded_at_ms: of event 3 is missing"},
		{"time of a string", with(func(e *relayEvent) { e.recordedAt = `"7"` }), "bad_body", badTime},
		{"time of a fraction", with(func(e *relayEvent) { e.recordedAt = "7.5" }), "bad_body", badTime},
		{"time 2^63", with(func(e *relayEvent) { e.recordedAt = "9223372036854775808" }), "bad_body", badTime},
		{"observation missing", with(func(e *relayEvent) { e.observation = "" }), "bad_body", "observation: of event 3 is missing"},
		{"observation of a string", with(func(e *relayEvent) { e.observation = `"notice"` }), "bad_body", "observation: must be an object"},
		{"command_id of a number", with(func(e *relayEvent) { e.commandID = "1" }), "bad_body", "command_id: must be a string or null"},
		{"ordinal twice", with(func(e *relayEvent) { e.commandID = `null,"ordinal":3` }), "bad_body", "ordinal: must not occur twice"},

		{"after of a number", after(text("2")), "bad_body", "after: must be a JSON object"},
		{"after without digest", after(text(`{"ordinal":2}`)), "bad_body", badAfter},
		{"after in upper case", after(func(j *relayChain) string {
			return fmt.Sprintf(`{"ordinal":2,"digest":"%s"}`, strings.ToUpper(j.digest))
		}), "bad_body", badAfter},
		{"after without ordinal", after(text(`{"digest":"` + as + `"}`)), "bad_body", "after.ordinal: must be an integer literal from 0 to 2^63-1"},
		{"after elsewhere", after(text(`{"ordinal":1,"digest":"` + as + `"}`)), "bad_page", "after.ordinal: must be the first ordinal less one, 2, not 1"},
		{"after 0 with a digest", after(text(`{"ordinal":0,"digest":"` + as + `"}`)), "bad_page", "after: ordinal 0 and the genesis digest of 64 zeros belong together"},
		{"after 2 without one", after(text(`{"ordinal":2,"digest":"` + zeros + `"}`)), "bad_page", "after: ordinal 0 and the genesis digest of 64 zeros belong together"},
	}
	return rows
}

// A page that breaks a rule is listed with the field and the rule, moves nothing, and
// the right page behind it is taken.
func TestBadInput_Chain(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w, heard := s.worker(t), s.listen(t, "chain")
	start := newRelayChain()
	first := start.page(2)
	rows := badPages()
	as := strings.Repeat("a", 64)
	computed := relayDigest(3, start.digest, "7", notice)
	rows = append(rows,
		badPage{"digest of another event", with(func(e *relayEvent) { e.digest = `"` + as + `"` }), "bad_chain", "digest: of event 3 is not that of its bytes, which is " + computed},
		badPage{"an observation changed", with(func(e *relayEvent) { e.observation = strings.Replace(notice, "n", "m", 1) }), "bad_chain", "digest: of event 3 is not that of its bytes, which is " + relayDigest(3, start.digest, "7", strings.Replace(notice, "n", "m", 1))},
		badPage{"a time changed", with(func(e *relayEvent) { e.recordedAt = "8" }), "bad_chain", "digest: of event 3 is not that of its bytes, which is " + relayDigest(3, start.digest, "8", notice)},
		badPage{"previous of another event", with(func(e *relayEvent) { e.previous = `"` + as + `"` }), "bad_chain", "previous_digest: of event 3 is " + as + ", the chain is at " + start.digest},
		badPage{"after another event", after(text(`{"ordinal":2,"digest":"` + as + `"}`)), "bad_chain", "after.digest: at 2 is " + as + ", the chain knows " + start.digest},
		badPage{"another past", func(*relayChain) string {
			j := newRelayChain()
			j.next(notice)
			return `{"events":[` + j.next(`{"type":"closed"}`) + `]}`
		}, "bad_chain", "digest: of event 2 is not " + start.digest + ", which the chain knows"},
		badPage{"ahead with a digest of another event", func(*relayChain) string {
			e := relayEvent{ordinal: "9", previous: `"` + as + `"`, digest: `"` + as + `"`, recordedAt: "7", observation: notice}
			return `{"events":[` + e.String() + `]}`
		}, "bad_chain", "digest: of event 9 is not that of its bytes, which is " + relayDigest(9, as, "7", notice)},
	)
	seqs := make([]uint64, len(rows))
	good := *start
	rest := good.page(128)
	for i, c := range rows {
		w.put(ingestSubject("chain", c.name, "projection"), nil, first)
		seqs[i] = w.put(ingestSubject("chain", c.name, "projection"), nil, c.body(start))
		// Headers of messages without a chain are not read.
		w.put(ingestSubject("chain", c.name, "projection"), nats.Header{"Skald-Event-Id": {"a b"}, "Skald-Publisher": {"p"}}, rest)
		// What is known is a duplicate.
		w.put(ingestSubject("chain", c.name, "projection"), nil, rest)
	}
	st := s.settle(t)
	require.Equal(t, len(rows), st.Rejects)
	require.Equal(t, 2*len(rows), st.Applied)
	require.Equal(t, len(rows), st.Duplicates)
	entries := s.rejects(t, "--workspace", "chain")
	for i, c := range rows {
		e := entries[seqs[i]]
		require.Equal(t, c.reason, e.Reason, c.name)
		require.Equal(t, c.detail, e.Detail, c.name)
		got := heard.of(seqs[i])
		require.Equal(t, c.reason, got.Reason, c.name)
		require.EqualValues(t, 2, got.Frontier.Ordinal, c.name)
		require.Equal(t, start.digest, got.Frontier.Digest, c.name)
		status, _, body := s.fetch(t, "/api/v1/sessions/"+strings.ReplaceAll(strings.ReplaceAll(c.name, " ", "%20"), "^", "%5E"))
		require.Equal(t, 200, status, c.name)
		require.Contains(t, string(body), fmt.Sprintf(`"frontier":{"ordinal":130,"digest":"%s"}`, good.digest), c.name)
	}
}

// A page ahead of the chain waits for the gap to fill. Where there is no room for it,
// it is told from where to send again, which is no final answer.
func TestBadInput_Ahead(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w, heard := s.worker(t), s.listen(t, "ahead")
	at := ingestSubject("ahead", "s", "projection")
	j := newRelayChain()
	first := j.page(1)
	var pages []string
	for range 65 {
		pages = append(pages, j.page(1))
	}
	var seqs []uint64
	for _, p := range pages {
		seqs = append(seqs, w.put(at, nil, p))
	}
	for _, seq := range seqs[:64] {
		require.Equal(t, "held", heard.of(seq).Outcome)
	}
	require.Equal(t, "ahead", heard.of(seqs[64]).Reason)
	s.settle(t)
	e := s.rejects(t)[seqs[64]]
	require.Equal(t, "ahead", e.Reason)
	require.Equal(t, "events: begin at ordinal 66 and there is no room to hold them (64 pages are held), expected ordinal 1", e.Detail)
	require.Equal(t, 64, s.settle(t).Held)
	_, _, body := s.fetch(t, "/api/v1/sessions/s")
	require.Contains(t, string(body), `"held":{"pages":64,"waiting_for":1}`)

	w.put(at, nil, first)
	seq := w.put(at, nil, pages[64])
	got := heard.of(seq)
	require.Equal(t, "applied", got.Outcome)
	require.Equal(t, j.digest, got.Frontier.Digest)
	require.Zero(t, s.settle(t).Held)

	// Counts: the 65th gap is ahead.
	counts := ingestSubject("ahead", "counts", "error")
	var last uint64
	for i := range 65 {
		last = w.put(counts, withCount("p", fmt.Sprint(2*i+2)), failed(fmt.Sprint(i)))
	}
	require.Equal(t, "ahead", heard.of(last).Reason)
	s.settle(t)
	require.Equal(t, "count: 130 would leave more than 64 ranges missing, expected count 129", s.rejects(t)[last].Detail)
	w.put(counts, withCount("p", "129"), failed("late"))
	require.Equal(t, "applied", heard.of(w.put(counts, withCount("p", "130"), failed("again"))).Outcome)
}
