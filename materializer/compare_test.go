package materializer_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// read returns all messages of a stream after the sequence, in order.
func (w *world) read(s jetstream.Stream, after uint64) []said {
	t := w.t
	t.Helper()
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	if info.State.LastSeq <= after || info.State.Msgs == 0 {
		return nil
	}
	c, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1})
	require.NoError(t, err)
	ci, err := c.Info(t.Context())
	require.NoError(t, err)
	if ci.NumPending == 0 {
		return nil
	}
	it, err := c.Messages()
	require.NoError(t, err)
	defer it.Stop()
	var all []said
	for {
		ctx, cancel := context.WithTimeout(t.Context(), skaldtest.Timeout)
		msg, err := it.Next(jetstream.NextContext(ctx))
		cancel()
		require.NoError(t, err)
		meta, err := msg.Metadata()
		require.NoError(t, err)
		all = append(all, said{seq: meta.Sequence.Stream, time: meta.Timestamp.UnixNano(), subject: msg.Subject(), header: msg.Headers(), body: msg.Data()})
		if meta.NumPending == 0 {
			return all
		}
	}
}

// hear takes what INGEST holds beyond what the model has heard.
func (m *model) hear(w *world) {
	w.t.Helper()
	for _, msg := range w.read(w.streams.Ingest, m.last) {
		m.take(msg)
	}
}

// numbers gives the facts their numbers: one after the other, past those that
// foreign messages took.
func (m *model) numbers(foreign map[uint64]bool) (of []uint64, last uint64) {
	for range m.facts {
		last++
		for foreign[last] {
			last++
		}
		of = append(of, last)
	}
	for n := range foreign {
		last = max(last, n)
	}
	return of, last
}

// line is a fact as table and EVENTS must hold it.
func (f *happened) line(n uint64) string {
	return fmt.Sprintf("%d %q %q %s %d origin %d %d %d source %q trace %q %s",
		n, f.key.Workspace, f.key.Session, f.typ, f.recorded, f.origin.Seq, f.origin.Time, f.origin.Index, f.source, f.trace, f.data)
}

// wire is a fact in its wire form.
func (f *happened) wire(n uint64) string {
	return fmt.Sprintf(`{"seq":%d,"session_id":"%s","workspace_id":"%s","recorded_at_ms":%d,"stored_at_ms":%d,"type":"%s","data":%s}`,
		n, f.key.Session, f.key.Workspace, f.recorded, f.origin.Time/1e6, f.typ, f.data)
}

// message is a fact as a message of EVENTS: subject, headers, body.
func (f *happened) message(w *world, n uint64) string {
	h := []string{"Skald-Epoch=" + w.streams.Epoch, fmt.Sprintf("Skald-Ingest-Seq=%d", f.origin.Seq),
		fmt.Sprintf("Skald-Ingest-Time=%d", f.origin.Time), fmt.Sprintf("Skald-Index=%d", f.origin.Index)}
	if f.trace != "" {
		h = append(h, "traceparent="+f.trace)
	}
	switch kind, rest := f.source[:min(1, len(f.source))], f.source[min(1, len(f.source)):]; kind {
	case "p":
		count, publisher, _ := strings.Cut(rest, ":")
		h = append(h, "Skald-Publisher="+publisher, "Skald-Publisher-Seq="+count)
	case "i":
		h = append(h, "Skald-Event-Id="+rest)
	case "c":
		h = append(h, "Skald-Chain="+rest)
	}
	slices.Sort(h)
	return fmt.Sprintf("%d skald.ev.%s.%s.%s %s %s", n, bus.Escape(f.key.Workspace), bus.Escape(f.key.Session), f.typ, strings.Join(h, " "), f.wire(n))
}

// heard is a message of EVENTS in the same form, less the headers that JetStream
// itself reads.
func (s *said) heard() string {
	var h []string
	for name, v := range s.header {
		if !strings.HasPrefix(name, "Nats-") {
			h = append(h, name+"="+strings.Join(v, "|"))
		}
	}
	slices.Sort(h)
	return fmt.Sprintf("%d %s %s %s", s.seq, s.subject, strings.Join(h, " "), s.body)
}

// rawTable returns the rows as the file holds them.
func rawTable(t testing.TB, path string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_busy_timeout=5000")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query(`SELECT seq, workspace_id, session_id, type, recorded_at_ms, origin_seq, origin_time, origin_index, source, coalesce(trace, ''), data
		FROM events JOIN sessions USING (session_pk) ORDER BY seq`)
	require.NoError(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var f happened
		var n uint64
		require.NoError(t, rows.Scan(&n, &f.key.Workspace, &f.key.Session, &f.typ, &f.recorded, &f.origin.Seq, &f.origin.Time, &f.origin.Index, &f.source, &f.trace, &f.data))
		all = append(all, f.line(n))
	}
	require.NoError(t, rows.Err())
	return all
}

// same requires equal lists and shows the first difference only.
func same(t testing.TB, what string, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		at := func(s []string) string {
			if i < len(s) {
				return s[i]
			}
			return "(the end)"
		}
		if at(want) != at(got) {
			require.Failf(t, what+" differs", "entry %d of %d, not %d:\nwant %s\ngot  %s", i, len(want), len(got), at(want), at(got))
		}
	}
}

// compare requires that the table of a node that has caught up, EVENTS and the
// model are equal: numbers, order and bytes. foreign are numbers that messages of
// nobody's took.
func (w *world) compare(m *model, n *node, r *rand.Rand, foreign map[uint64]bool) {
	t := w.t
	t.Helper()
	m.hear(w)
	of, last := m.numbers(foreign)

	var messages, rows, wires []string
	numbers := map[bus.Key][]uint64{}
	for i := range m.facts {
		f := &m.facts[i]
		if !m.live(f) {
			continue
		}
		messages = append(messages, f.message(w, of[i]))
		if of[i] < m.oldest {
			continue
		}
		rows = append(rows, f.line(of[i]))
		wires = append(wires, f.wire(of[i]))
		numbers[f.key] = append(numbers[f.key], of[i])
	}
	var heard []string
	for _, msg := range w.read(w.streams.Events, 0) {
		if !foreign[msg.seq] {
			heard = append(heard, msg.heard())
		}
	}
	same(t, "EVENTS", messages, heard)
	require.Equal(t, last, w.last(w.streams.Events), "EVENTS holds as many numbers as there were facts")
	same(t, "the table", rows, rawTable(t, n.path))
	same(t, "the pages", wires, n.walk(r))

	s, err := n.st.Reader().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Counters{
		Applied: m.applied, Duplicates: m.duplicates, Dropped: m.dropped, Unprojected: m.unprojected,
		Holes: m.holes, Foreign: int64(len(foreign)),
	}, s.Counters)
	require.Equal(t, last, s.EventsSeq)
	require.Equal(t, m.highest, s.HighestTime)
	same(t, "the list of rejects", m.rejects(), n.rejects())
	w.compareSessions(m, n, numbers)
}

func (w *world) compareSessions(m *model, n *node, numbers map[bus.Key][]uint64) {
	t := w.t
	t.Helper()
	var sessions []string
	held := int64(0)
	for k, s := range m.sessions {
		st, err := n.st.Reader().LoadState(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, s.forgotten, st.Forgotten, k)
		held += int64(len(s.chain.held))
		counts := map[string]string{}
		for _, p := range st.Publishers.Seen {
			counts[p.ID] = fmt.Sprint(p.Count, p.Missing)
		}
		want := map[string]string{}
		for p, used := range s.used {
			if len(used) > 0 {
				want[p] = fmt.Sprint(highest(used), missing(used))
			}
		}
		// Ranges print alike: {1 2} and [1 2].
		for p := range counts {
			counts[p] = strings.NewReplacer("{", "[", "}", "]").Replace(counts[p])
		}
		require.Equal(t, want, counts, "counts of %v", k)
		if s.exists && !s.forgotten {
			sessions = append(sessions, s.json(k, numbers[k]))
		}
	}
	var got []string
	for after := int64(0); ; {
		p, err := n.st.Reader().Sessions(t.Context(), store.SessionsQuery{After: after, Limit: 7})
		require.NoError(t, err)
		for _, s := range p.Sessions {
			got = append(got, string(s))
		}
		if after = p.Next; after == 0 {
			break
		}
	}
	slices.Sort(sessions)
	slices.Sort(got)
	same(t, "the list of sessions", sessions, got)
	s, err := n.st.Reader().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, held, s.Held)
	require.EqualValues(t, len(sessions), s.Sessions)
}

// walk reads all pages with random limits.
func (n *node) walk(r *rand.Rand) (all []string) {
	t := n.w.t
	t.Helper()
	p, err := n.st.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{}, Limit: 1 + r.IntN(90)})
	for {
		require.NoError(t, err)
		for i := range p.Events {
			all = append(all, string(p.Events[i].AppendJSON(nil)))
		}
		if len(p.Events) == 0 && p.NextAfter == p.Latest {
			return all
		}
		p, err = n.st.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{Seq: p.NextAfter}, Limit: 1 + r.IntN(90)})
	}
}

func (m *model) rejects() (all []string) {
	for _, r := range m.refused {
		all = append(all, fmt.Sprintf("%d %q %q %s", r.seq, r.key.Workspace, r.key.Session, r.reason))
	}
	slices.Sort(all)
	return all
}

func (n *node) rejects() (all []string) {
	t := n.w.t
	t.Helper()
	for after := int64(0); ; {
		list, err := n.st.Reader().Rejects(t.Context(), store.RejectsQuery{After: after, Limit: 100})
		require.NoError(t, err)
		for _, r := range list {
			var k bus.Key
			if r.Key != nil {
				k = *r.Key
			}
			all = append(all, fmt.Sprintf("%d %q %q %s", r.Seq, k.Workspace, k.Session, r.Reason))
			after = r.ID
		}
		if len(list) == 0 {
			slices.Sort(all)
			return all
		}
	}
}

// states returns what the node remembers of each of the sessions, encoded. The
// parts are encoded anew: as stored, the chain may hold the time of activity of
// the batch that it was written with.
func (n *node) states(keys map[bus.Key]*modelSession) (all []string) {
	t := n.w.t
	t.Helper()
	for k := range keys {
		s, err := n.st.Reader().LoadState(t.Context(), k)
		require.NoError(t, err)
		view, err := s.AppendView(nil)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%q %v %v chain %x publishers %x view %s held %+v", k, s.Exists, s.Forgotten, s.AppendChain(nil), s.AppendPublishers(nil), view, s.Held))
	}
	slices.Sort(all)
	return all
}

// sayAll publishes messages as they are and waits until all are stored.
func (w *world) sayAll(msgs []*nats.Msg) {
	t := w.t
	t.Helper()
	acks := make([]jetstream.PubAckFuture, len(msgs))
	for i, m := range msgs {
		var err error
		acks[i], err = w.js.PublishMsgAsync(&nats.Msg{Subject: m.Subject, Header: maps.Clone(m.Header), Data: m.Data})
		require.NoError(t, err)
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			require.NoError(t, err)
		case <-time.After(skaldtest.Timeout):
			require.Fail(t, "INGEST does not answer")
		}
	}
}
