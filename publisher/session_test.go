package publisher_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// What is said in a session becomes facts once each, in the order of the calls,
// with the worker's own bytes and times.
func TestSession_FactsInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("a b.*"))
	ctx := within(t, skaldtest.Timeout)
	at := time.UnixMilli(1_700_000_000_123)

	_, err := s.Observe(ctx, []byte(" {\"type\" : \"command_completed\",\"data\":{\"command_id\":\"<\\u00e9&\u2028>\",\"outcome\":{\"type\":\"prompt\",\"data\":{\"stop_reason\":\"end_turn\",\"usage\":{\"n\":1.0}}}}}"),
		publisher.ObserveOptions{CommandID: "c", RecordedAt: at})
	require.NoError(t, err)
	_, err = s.Error(ctx, "first <\u2028>", "c1")
	require.NoError(t, err)
	_, err = s.Activity(ctx, []byte(`{ "kind" : "busy" }`))
	require.NoError(t, err)
	_, err = s.Save(ctx, publisher.Record{Title: publisher.Set("T"), State: publisher.Set("running"), LastError: publisher.Set("second"), RecordedAt: at})
	require.NoError(t, err)
	_, err = s.Save(ctx, publisher.Record{State: publisher.Clear()})
	require.NoError(t, err)
	last := observe(t, s, "z")
	require.EqualValues(t, 2, last.Ordinal())

	seq, err := last.Stored(ctx)
	require.NoError(t, err)
	require.Equal(t, publisher.Outcome{IngestSeq: seq, Ordinal: 2}, materialized(t, last))
	facts := w.facts(key("a b.*"))
	require.Len(t, facts, 5)
	require.Equal(t, bus.TypeTurnEnded, facts[0].Type)
	require.Equal(t, at.UnixMilli(), facts[0].RecordedAt)
	require.Contains(t, string(facts[0].Data), "\"<\\u00e9&\u2028>\"")
	require.Contains(t, string(facts[0].Data), `{"n":1.0}`)
	require.JSONEq(t, "{\"message\":\"first <\u2028>\",\"command_id\":\"c1\"}", string(facts[1].Data))
	require.Equal(t, `{"activity":{"kind":"busy"}}`, string(facts[2].Data))
	require.JSONEq(t, `{"message":"second","command_id":null}`, string(facts[3].Data))
	require.Equal(t, at.UnixMilli(), facts[3].RecordedAt)
	view, err := w.node.st.Reader().Session(ctx, "a b.*", "w")
	require.NoError(t, err)
	require.Contains(t, string(view), `"title":"T","state":null,"last_error":"second"`)
	require.NoError(t, s.Err())
	require.Zero(t, w.settle().Rejects)
	p.shut()
}

// What waits is gathered: full pages where many events wait, each within its bounds
// and with the place that it follows.
func TestSession_GathersPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.publisher(publisher.Options{}).open(key("s"))
	before, err := w.streams.Ingest.Info(t.Context())
	require.NoError(t, err)
	w.stopNode()
	w.stopServer() // so that all wait
	const n = 300
	var last *publisher.Receipt
	for i := range n {
		last = observe(t, s, fmt.Sprint(i))
	}
	w.startServer()
	_, err = last.Stored(within(t, skaldtest.Timeout))
	require.NoError(t, err)

	ingest, err := w.js.Stream(within(t, skaldtest.Timeout), "SKALD_INGEST")
	require.NoError(t, err)
	info, err := ingest.Info(within(t, skaldtest.Timeout))
	require.NoError(t, err)
	next, pages := uint64(1), 0
	for seq := before.State.LastSeq + 1; seq <= info.State.LastSeq; seq++ {
		m, err := ingest.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		page, err := bus.ParsePage(m.Data)
		require.NoError(t, err)
		require.NotNil(t, page.After)
		if page.First() < next {
			continue // a copy of the one that was under way when the server stopped
		}
		require.Equal(t, next, page.First())
		require.Empty(t, m.Header[nats.MsgIdHdr])
		next = page.Last() + 1
		pages++
	}
	require.EqualValues(t, n+1, next)
	require.LessOrEqual(t, pages, 6, "the first ones may have gone alone")
	w.startNode()
	materialized(t, last)
	require.Equal(t, names("", n), w.ids(key("s")))
}

// Events of a journal are taken as they are, in both formats, next to made ones;
// those that the bus has applied already are skipped when a worker goes on.
func TestSession_Append(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	s := p.open(key("s"))
	j := journal{}
	ctx := within(t, skaldtest.Timeout)
	_, err := s.Append(ctx, j.next(1, "a"), j.next(2, "b"), j.next(1, "c"))
	require.NoError(t, err)
	observe(t, s, "d")
	j.at = s.Position()
	r, err := s.Append(ctx, j.next(2, "e"))
	require.NoError(t, err)
	require.EqualValues(t, 5, materialized(t, r).Ordinal)

	_, err = s.Append(ctx, j.events...) // known, but not from before it was opened
	var invalid *bus.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "ordinal", invalid.Field)
	broken := j.next(1, "f")
	broken.Observation = ended("g")
	_, err = s.Append(ctx, broken)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "digest", invalid.Field)
	other := journal{at: bus.ChainPosition{Ordinal: 5, Digest: bus.Digest{1}}}
	_, err = s.Append(ctx, other.next(1, "f"))
	require.ErrorIs(t, err, publisher.ErrForked)
	require.NoError(t, s.Err(), "what is refused changes nothing")
	require.NoError(t, s.Close(ctx))

	s = p.open(key("s"))
	require.Equal(t, uint64(5), s.Position().Ordinal)
	known := journal{}
	all := []bus.RelayEvent{known.next(1, "a"), known.next(2, "b"), known.next(1, "c")}
	r, err = s.Append(ctx, all...)
	require.NoError(t, err)
	require.Equal(t, publisher.Outcome{Ordinal: 3}, materialized(t, r))
	// The broken one was never sent, so its place is free.
	j.at = s.Position()
	r, err = s.Append(ctx, append([]bus.RelayEvent{j.events[len(j.events)-2]}, j.next(1, "f"))...)
	require.NoError(t, err)
	materialized(t, r)
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, w.ids(key("s")))
	bad := j.events[0]
	bad.Ordinal, bad.Digest = 6, []byte(strings.Repeat("0", 64))
	require.NoError(t, s.Close(ctx))
	s = p.open(key("s"))
	_, err = s.Append(ctx, bad)
	require.ErrorIs(t, err, publisher.ErrForked)
}

// journal makes relay events as a worker's own journal holds them.
type journal struct {
	at     bus.ChainPosition
	events []bus.RelayEvent
}

func (j *journal) next(format int, id string) bus.RelayEvent {
	e := bus.RelayEvent{Format: format, Ordinal: j.at.Ordinal + 1, RecordedAt: 7, Observation: ended(id)}
	if format == bus.FormatChained {
		e.Previous = hex.AppendEncode(nil, j.at.Digest[:])
	}
	d, _ := e.ComputeDigest(j.at.Digest, nil)
	e.Digest = hex.AppendEncode(nil, d[:])
	j.at = bus.ChainPosition{Ordinal: e.Ordinal, Digest: d}
	j.events = append(j.events, e)
	return e
}

// What can not be sent as it is is refused at the call and leaves the session as
// it was.
func TestSession_RefusesBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.publisher(publisher.Options{}).open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	deep := strings.Repeat("[", bus.MaxDepth-1) + strings.Repeat("]", bus.MaxDepth-1)
	var invalid *bus.InvalidError
	for _, bad := range []string{``, `1`, `[]`, `{`, `{} {}`, "{\"a\":\"\xff\"}", `{"a":` + deep + `}`} {
		_, err := s.Observe(ctx, []byte(bad), publisher.ObserveOptions{})
		require.ErrorAs(t, err, &invalid, "%.40q", bad)
		_, err = s.Activity(ctx, []byte(bad))
		if len(bad) < bus.MaxDepth { // an activity may nest two levels deeper
			require.ErrorAs(t, err, &invalid, "%.40q", bad)
		}
	}
	_, err := s.Observe(ctx, []byte(`{}`), publisher.ObserveOptions{CommandID: "\xff"})
	require.ErrorAs(t, err, &invalid)
	_, err = s.Error(ctx, "\xff", "")
	require.ErrorAs(t, err, &invalid)
	_, err = s.Save(ctx, publisher.Record{Title: publisher.Set("\xff")})
	require.ErrorAs(t, err, &invalid)
	_, err = s.Append(ctx)
	require.ErrorAs(t, err, &invalid)
	require.Zero(t, s.Position())
	materialized(t, observe(t, s, "good"))
	require.Equal(t, []string{"good"}, w.ids(key("s")))
	require.Zero(t, w.settle().Rejects)
}

// A session can be opened once at a time, and again after it was closed.
func TestSession_OpenOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publisher(publisher.Options{})
	ctx := within(t, skaldtest.Timeout)
	for i := range 3 {
		s := p.open(key("s"))
		_, err := p.Session(ctx, key("s"))
		require.ErrorIs(t, err, publisher.ErrOpen)
		_, err = s.Error(ctx, fmt.Sprint("e", i), "")
		require.NoError(t, err)
		observe(t, s, fmt.Sprint("o", i))
		require.NoError(t, s.Close(ctx))
		require.NoError(t, s.Close(ctx))
		_, err = s.Observe(ctx, ended("x"), publisher.ObserveOptions{})
		require.ErrorIs(t, err, publisher.ErrClosed)
	}
	_, err := p.Session(ctx, bus.Key{Workspace: "w"})
	var invalid *bus.InvalidError
	require.ErrorAs(t, err, &invalid)
	w.settle()
	require.Equal(t, []string{"e0", "o0", "e1", "o1", "e2", "o2"}, w.ids(key("s")))
}

// A worker that is started again goes on where it stood, also if the materializer
// has not yet come to what the earlier start had got stored.
func TestSession_RestartedWorkerGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.publisher(publisher.Options{})
	s := first.open(key("s"))
	w.stopNode()
	for i := range 200 {
		observe(t, s, fmt.Sprint(i))
	}
	_, err := s.Error(within(t, skaldtest.Timeout), "e", "")
	require.NoError(t, err)
	end := s.Position()
	first.shut()

	second := w.publisher(publisher.Options{})
	opened := make(chan *publisher.Session, 1)
	ctx := within(t, skaldtest.Timeout)
	go func() {
		s, err := second.Session(ctx, key("s"))
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	// Its first message is in INGEST, and it still waits.
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		m, err := w.streams.Ingest.GetLastMsgForSubject(ctx, "skald.in.w.s.session")
		if err != nil {
			return false
		}
		info, err := w.streams.Ingest.Info(ctx)
		return err == nil && info.State.LastSeq == m.Sequence
	})
	require.Empty(t, opened)
	w.startNode()
	s = <-opened
	require.NotNil(t, s)
	require.Equal(t, end, s.Position())
	materialized(t, observe(t, s, "more"))
	require.Equal(t, append(names("", 200), "e", "more"), w.ids(key("s")))
	st := w.settle()
	require.Zero(t, st.Rejects)
	require.Zero(t, st.Duplicates)
}

// A position that was told before the materializer had come to what the earlier start
// got stored is not taken: a chain that goes on from there would fork.
func TestSession_StalePosition(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	w.create(bus.StreamOptions{})
	asked := 0
	_, err := w.nc.Subscribe("skald.api.w.position.s", func(m *nats.Msg) {
		if asked++; asked < 4 {
			m.Respond(fmt.Appendf(nil, `{"frontier":{"ordinal":0,"digest":"%064d"},"ingest_position":0}`, 0))
			return
		}
		m.Respond(fmt.Appendf(nil, `{"frontier":{"ordinal":5,"digest":"%064d"},"ingest_position":1}`, 5))
	})
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	s := w.publisher(publisher.Options{}).open(key("s"))
	require.EqualValues(t, 5, s.Position().Ordinal)
}

// Without Run a session opens, and Close tells what nobody has sent.
func TestSession_WithoutRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := publisher.New(w.nc, publisher.Options{})
	require.NoError(t, err)
	ctx := within(t, skaldtest.Timeout)
	s, err := p.Session(ctx, key("s"))
	require.NoError(t, err)
	r := observe(t, s, "a")
	err = p.Close(ctx)
	var unconfirmed *publisher.UnconfirmedError
	require.ErrorAs(t, err, &unconfirmed)
	require.Equal(t, 1, unconfirmed.Sessions[0].Messages)
	_, err = r.Stored(ctx)
	require.ErrorIs(t, err, publisher.ErrClosed)
	require.ErrorAs(t, p.Run(ctx), &unconfirmed, "it ends at once and says the same")
	require.ErrorIs(t, p.Run(ctx), publisher.ErrRunning)
	_, err = p.Session(ctx, key("t"))
	require.ErrorIs(t, err, publisher.ErrClosed)
}
