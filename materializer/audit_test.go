package materializer_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// audit runs an audit of the node's file from outside, whether it runs or not.
func (n *node) audit() (found []materializer.Finding, sum materializer.AuditSummary) {
	n.w.t.Helper()
	found, sum, err := n.tryAudit(true)
	require.NoError(n.w.t, err)
	return found, sum
}

// tryAudit is audit for a file that may not be one that can be read.
func (n *node) tryAudit(full bool) (found []materializer.Finding, sum materializer.AuditSummary, err error) {
	t := n.w.t
	t.Helper()
	r, err := store.OpenReader(n.path)
	if err != nil {
		return nil, sum, err
	}
	defer r.Close()
	sum, err = materializer.Audit(t.Context(), materializer.AuditOptions{
		Conn: n.w.nc, JS: n.w.js, Reader: r, Subjects: n.w.subj, TempDir: t.TempDir(), Full: full,
		Report: func(f materializer.Finding) error { found = append(found, f); return nil },
	})
	return found, sum, err
}

// errorsOf are the findings that are no notes.
func errorsOf(found []materializer.Finding) []materializer.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f materializer.Finding) bool { return f.Note })
}

// Whatever was said, forgotten and pruned, and while more is: nothing is off. At rest
// every message has been projected again and every state compared.
func TestAudit_Sound(t *testing.T) {
	t.Parallel()
	e := newEpisode(t, rand.New(rand.NewPCG(seed(t), 1)), 2, &tally{seams: map[string]int{}})
	for _, p := range e.players {
		p.o.pause()
		p.start(nil)
	}
	rounds := 4
	if long() {
		rounds = 100
	}
	for range rounds {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for range 25 { // of 15 messages in the middle
				e.publish()
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		found, _ := e.players[0].audit()
		close(stop)
		<-done
		require.Empty(t, errorsOf(found))
	}
	for _, p := range e.players {
		p.catchUp()
		found, sum := p.audit()
		require.Empty(t, errorsOf(found))
		require.EqualValues(t, e.last(e.streams.Ingest), sum.Messages)
		require.NotZero(t, sum.Compared)
		for _, f := range found {
			require.Equal(t, materializer.FoundForeign, f.Kind, f)
		}
		p.stop()
	}
}

// setState changes a session's state in the stopped node's file.
func (n *node) setState(k bus.Key, change func(s *projection.State)) {
	t := n.w.t
	t.Helper()
	r, err := store.OpenReader(n.path)
	require.NoError(t, err)
	s, err := r.LoadState(t.Context(), k)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	change(s)
	view, err := s.AppendView(nil)
	require.NoError(t, err)
	n.sql(`UPDATE sessions SET chain = ?, publishers = ?, view = ? WHERE workspace_id = ? AND session_id = ?`,
		s.AppendChain(nil), s.AppendPublishers(nil), view, k.Workspace, k.Session)
}

// Each kind of damage is found, under its name and number, and nothing else is.
func TestAudit_Finds(t *testing.T) {
	t.Parallel()
	// The table holds: 1 to 3 of beta, 4 of alpha with a count, 5 and 6 of a journal, 7 with
	// an event id.
	chained := bus.Key{Workspace: "w", Session: "journal"}
	swap := func(w *world, seq uint64, body func(string) string) {
		t.Helper()
		msgs := w.read(w.streams.Events, seq-1)
		n := &nats.Msg{Subject: msgs[0].subject, Header: nats.Header{}, Data: []byte(body(string(msgs[0].body)))}
		for k, v := range msgs[0].header {
			if !strings.HasPrefix(k, "Nats-") {
				n.Header[k] = v
			}
		}
		// The only way to another message under the number: a stream that begins there.
		c := w.streams.Events.CachedInfo().Config
		require.NoError(t, w.js.DeleteStream(w.t.Context(), c.Name))
		c.FirstSeq, c.MaxMsgs, c.Discard = seq, 1_000_000, jetstream.DiscardNew
		s, err := w.js.CreateStream(w.t.Context(), c)
		require.NoError(t, err)
		w.streams.Events = s
		_, err = w.js.PublishMsg(w.t.Context(), n)
		require.NoError(t, err)
		for _, m := range msgs[1:] {
			n := &nats.Msg{Subject: m.subject, Header: nats.Header{}, Data: m.body}
			for k, v := range m.header {
				if !strings.HasPrefix(k, "Nats-") {
					n.Header[k] = v
				}
			}
			_, err := w.js.PublishMsg(w.t.Context(), n)
			require.NoError(t, err)
		}
	}
	type expect struct {
		kind string
		seq  uint64
	}
	for name, c := range map[string]struct {
		damage func(w *world, n *node)
		want   []expect
	}{
		"nothing": {func(*world, *node) {}, nil},
		"a row's byte": {func(_ *world, n *node) { n.sql(`UPDATE events SET data = replace(data, '"1"', '"2"') WHERE seq = 2`) },
			[]expect{{materializer.FoundDiffers, 2}, {materializer.FoundRowOnly, 2}}},
		"a row's source": {func(_ *world, n *node) { n.sql(`UPDATE events SET source = 'p9:p' WHERE seq = 4`) },
			[]expect{{materializer.FoundChain, 4}, {materializer.FoundDiffers, 4}, {materializer.FoundRowOnly, 4}}},
		"a row's origin": {func(_ *world, n *node) { n.sql(`UPDATE events SET origin_seq = 1 WHERE seq = 3`) },
			[]expect{{materializer.FoundDiffers, 3}, {materializer.FoundNoFact, 0}}},
		"a row is gone": {func(_ *world, n *node) { n.sql(`DELETE FROM events WHERE seq = 2`) },
			[]expect{{materializer.FoundSession, 0}, {materializer.FoundNoRow, 2}, {materializer.FoundNoFact, 0}}},
		"a row of nobody": {func(_ *world, n *node) { n.sql(`UPDATE events SET session_pk = 999 WHERE seq = 4`) },
			[]expect{{materializer.FoundOrphan, 4}, {materializer.FoundSession, 0}, {materializer.FoundNoRow, 4}, {materializer.FoundNoFact, 0}}},
		"a row beyond the end": {func(_ *world, n *node) { n.sql(`UPDATE position SET events_seq = 6`) },
			[]expect{{materializer.FoundOrphan, 7}, {materializer.FoundNoFact, 0}}},
		"a message is gone": {func(w *world, _ *node) { require.NoError(t, w.streams.Events.DeleteMsg(t.Context(), 2)) },
			[]expect{{materializer.FoundNoMessage, 2}}},
		"a swapped payload": {func(w *world, _ *node) {
			swap(w, 5, func(s string) string { return strings.Replace(s, `"message"`, `"massage"`, 1) })
		}, []expect{{materializer.FoundDiffers, 5}}},
		"a foreign payload": {func(w *world, _ *node) { swap(w, 5, func(string) string { return "{}" }) },
			[]expect{{materializer.FoundDiffers, 5}}},
		"a session's counters": {func(_ *world, n *node) {
			n.sql(`UPDATE sessions SET event_count = 7, first_seq = -1 WHERE session_id = 'beta'`)
		}, []expect{{materializer.FoundSession, 0}}},
		"a hidden session": {func(_ *world, n *node) {
			n.sql(`INSERT INTO removals SELECT session_pk FROM sessions WHERE session_id = 'alpha'`)
		},
			[]expect{{materializer.FoundSession, 0}, {materializer.FoundNoRow, 4}, {materializer.FoundNoFact, 0}}},
		"the counters": {func(_ *world, n *node) { n.sql(`UPDATE position SET sessions = 9, held = 4`) },
			[]expect{{materializer.FoundCounter, 0}, {materializer.FoundCounter, 0}, {materializer.FoundCounter, 0}, {materializer.FoundCounter, 0}}},
		"what was applied": {func(_ *world, n *node) { n.sql(`UPDATE position SET applied = 9000`) },
			[]expect{{materializer.FoundCounter, 0}}},
		"the chain moved back": {func(_ *world, n *node) {
			n.setState(chained, func(s *projection.State) { s.Chain.Position.Ordinal = 1 })
		}, []expect{{materializer.FoundChain, 5}, {materializer.FoundChain, 6}, {materializer.FoundState, 0}}},
		"the chain moved ahead": {func(_ *world, n *node) {
			n.setState(chained, func(s *projection.State) { s.Chain.Position.Ordinal = 9 })
		}, []expect{{materializer.FoundState, 0}}},
		"the chain's digest": {func(_ *world, n *node) {
			n.setState(chained, func(s *projection.State) { s.Chain.Position.Digest[0] ^= 1 })
		}, []expect{{materializer.FoundChain, 6}, {materializer.FoundState, 0}}},
		"a count": {func(_ *world, n *node) {
			n.setState(alpha, func(s *projection.State) { s.Publishers.Seen[0].Count = 0 })
		}, []expect{{materializer.FoundChain, 4}, {materializer.FoundState, 0}}},
		"an id is gone": {func(_ *world, n *node) { n.sql(`DELETE FROM ids`) },
			[]expect{{materializer.FoundID, 7}}},
		"an id too early": {func(_ *world, n *node) { n.sql(`UPDATE ids SET applied_time = applied_time + 1`) },
			[]expect{{materializer.FoundID, 0}}},
		"a state": {func(_ *world, n *node) { n.sql(`UPDATE sessions SET view = x'00' WHERE session_id = 'alpha'`) },
			[]expect{{materializer.FoundSession, 0}}},
		"the position": {func(_ *world, n *node) { n.sql(`UPDATE position SET ingest_hash = zeroblob(8)`) },
			[]expect{{materializer.FoundPosition, 0}}},
		"another bus": {func(_ *world, n *node) { n.sql(`UPDATE position SET epoch = 'another'`) },
			[]expect{{materializer.FoundBus, 0}}},
		"INGEST made anew": {func(w *world, _ *node) { w.recreate(w.streams.Ingest, map[string]string{bus.MetaIngestID: "another"}) },
			[]expect{{materializer.FoundBus, 0}, {materializer.FoundPosition, 0}}},
		"EVENTS lost its end": {func(w *world, n *node) {
			n.sql(`UPDATE position SET events_seq = 9`)
		}, []expect{{materializer.FoundNoMessage, 8}}},
		"EVENTS is gone": {func(w *world, _ *node) { require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS")) },
			[]expect{{materializer.FoundBus, 0}}},
		"a foreign message": {func(w *world, n *node) {
			_, err := w.js.Publish(t.Context(), "skald.ev.w.x.error", []byte("foreign"))
			require.NoError(t, err)
			n.start(nil)
			n.finish()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.node()
			n.start(nil)
			w.failMany(beta, 3)
			n.catchUp()
			w.fail(alpha, "counted", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
			n.catchUp()
			g := newGenerator(rand.New(rand.NewPCG(1, 1)), w.subj).worker()
			g.key = chained
			for range 2 {
				at := int64(1)
				ev := relayEvent{Format: 1, Ordinal: uint64(len(g.journal) + 1), RecordedAt: &at,
					Observation: []byte(`{"type":"elicitation_requested","data":{"request":{"id":"q` + time.Now().Format("150405.000000000") + `","message":"m","fields":[]}}}`)}
				g.seal(&ev, g.previous(ev.Ordinal))
				g.journal = append(g.journal, ev)
				w.say(chained, bus.ClassProjection, `{"events":[`+ev.text()+`]}`)
			}
			w.fail(bus.Key{Workspace: "w", Session: "named"}, "named", bus.HeaderEventID, "id")
			n.finish()
			require.EqualValues(t, 7, w.last(w.streams.Events))

			c.damage(w, n)
			found, _ := n.audit()
			var got []expect
			for _, f := range errorsOf(found) {
				got = append(got, expect{f.Kind, f.Seq})
			}
			require.Equal(t, c.want, got, "%+v", found)
		})
	}
}

// Beside a materializer, a message that another store has removed already, since it
// has read of a forget, is no finding.
func TestAudit_RemovalUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	a.start(nil)
	b.start(nil)
	w.failMany(alpha, 20)
	w.failMany(beta, 20)
	a.catchUp()
	b.finish()
	w.forget(alpha)
	a.catchUp()
	// b has the rows still, and will read of the forget.
	found, _ := b.audit()
	require.Len(t, errorsOf(found), 20, "at rest they are")
	b.start(nil)
	found, _ = b.audit()
	require.Empty(t, errorsOf(found))
	b.finish()
	found, _ = b.audit()
	require.Empty(t, errorsOf(found))
	a.stop()
}

// asked is a JetStream that calls a function when it was asked for a message of EVENTS
// and before the answer is known.
type asked struct {
	jetstream.JetStream
	answered func()
}

type askedStream struct {
	jetstream.Stream
	answered func()
}

func (a asked) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := a.JetStream.Stream(ctx, name)
	if err == nil && name == "SKALD_EVENTS" {
		s = askedStream{s, a.answered}
	}
	return s, err
}

func (s askedStream) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	m, err := s.Stream.GetMsg(ctx, seq, opts...)
	s.answered()
	return m, err
}

// The audit saw a row, and that EVENTS has no message of it any more. Before it looked
// whether the store was at rest, that had read of the forget and removed the row: it was
// told as missing in EVENTS.
func TestAudit_RemovedWhileItLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	a.start(nil)
	b.start(nil)
	w.fail(beta, "stays")
	w.fail(alpha, "goes")
	a.catchUp()
	b.finish()
	w.forget(alpha)
	a.catchUp()
	looks := false
	catchUp := func() {
		if looks && !b.running {
			b.start(nil)
			b.catchUp()
		}
	}
	r, err := store.OpenReader(b.path)
	require.NoError(t, err)
	defer r.Close()
	_, err = materializer.Audit(t.Context(), materializer.AuditOptions{
		Conn: w.nc, JS: asked{w.js, catchUp}, Reader: r, Subjects: w.subj, TempDir: t.TempDir(),
		Progress: func(doing string, _, _ uint64) { looks = doing == "looking again" },
		Report:   func(f materializer.Finding) error { require.True(t, f.Note, "%+v", f); return nil },
	})
	require.NoError(t, err)
	require.Len(t, rawTable(t, b.path), 1, "it was removed meanwhile")
	a.stop()
	b.stop()
}

// A damaged file is found, and ends the audit with what could still be read.
func TestAudit_File(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 300)
	n.finish()
	b, err := os.ReadFile(n.path)
	require.NoError(t, err)
	for i := len(b) - 8192; i < len(b); i++ { // two pages, of rows
		b[i] ^= 0x55
	}
	require.NoError(t, os.WriteFile(n.path, b, 0o600))
	found, _ := n.audit()
	require.NotEmpty(t, errorsOf(found))
	require.Equal(t, materializer.FoundFile, found[0].Kind)
}
