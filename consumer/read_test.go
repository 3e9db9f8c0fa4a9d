package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

var (
	keyA = bus.Key{Workspace: "w", Session: "a"}
	keyB = bus.Key{Workspace: "w", Session: "b"}
	keyC = bus.Key{Workspace: "v", Session: "a"} // a session of the same id elsewhere
)

// A reader sees exactly the table's rows of its filter, byte for byte and in the
// order of numbers, what was there and what comes, whatever the ids look like.
func TestRun_Filters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	odd := bus.Key{Workspace: "a.b *>", Session: "> /\\ü=2E"}
	keys := []bus.Key{keyA, keyB, keyC, odd, {Workspace: "a.b *>", Session: "*"}, {Workspace: "*", Session: ">"}}
	say := func(round int) {
		for _, k := range keys {
			w.fail(k, 2)
			w.active(k, fmt.Sprint("s", round))
		}
	}
	say(1)
	w.catchUp()
	options := map[string]consumer.Options{
		"everything": {},
		"workspace":  {Workspace: "w"},
		"session":    {Workspace: "w", Session: "a"},
		"types":      {Types: []string{bus.TypeActivityChanged, "unheard_of", bus.TypeActivityChanged}},
		"both types": {Workspace: "w", Types: []string{bus.TypeError, bus.TypeActivityChanged}},
		"all three":  {Workspace: "v", Session: "a", Types: []string{bus.TypeError}},
		"odd":        {Workspace: odd.Workspace, Session: odd.Session},
		"odd types":  {Workspace: odd.Workspace, Types: []string{bus.TypeError}},
		"no star":    {Workspace: "*"},
		"no tail":    {Workspace: "*", Session: ">"},
		"nothing":    {Workspace: "nobody"},
	}
	readers := map[string]*reader{}
	for name, o := range options {
		readers[name] = w.read(w.js, o, nil)
		o.Durable = name
		readers[name+", durable"] = w.read(w.js, o, nil)
	}
	say(2)
	w.catchUp()
	for name, o := range options {
		want := w.table(o)
		require.Equal(t, name == "nothing", len(want) == 0, name)
		for _, r := range []*reader{readers[name], readers[name+", durable"]} {
			if len(want) > 0 {
				r.reach(want[len(want)-1].Seq)
			}
			r.begin()
			r.finish()
			got := r.seen()
			require.Equal(t, seqs(want), seqs(got), name)
			for i := range want {
				require.Equal(t, string(want[i].AppendJSON(nil)), string(got[i].AppendJSON(nil)), name)
			}
			require.EqualValues(t, len(want), r.c.Stats().Handled)
		}
	}
}

// From is where an ephemeral reader begins, with an epoch or without; Newest skips
// what is there.
func TestRun_From(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 10)
	w.catchUp()
	readers := []*reader{
		w.read(w.js, consumer.Options{}, nil),
		w.read(w.js, consumer.Options{From: from(0)}, nil),
		w.read(w.js, consumer.Options{From: from(4)}, nil),
		w.read(w.js, consumer.Options{From: &bus.Cursor{Epoch: w.streams.Epoch, Seq: 10}}, nil),
		w.read(w.js, consumer.Options{Newest: true}, nil),
		w.read(w.js, consumer.Options{Newest: true, Durable: "d"}, nil),
	}
	for _, r := range readers {
		r.begin()
	}
	w.fail(keyA, 2)
	for i, first := range []uint64{1, 1, 5, 11, 11, 11} {
		r := readers[i]
		r.reach(12)
		r.finish()
		require.Equal(t, span(first, 12), r.seqs(), i)
		require.Equal(t, bus.Cursor{Epoch: w.streams.Epoch, Seq: 12}, r.c.Cursor())
	}
}

// In the handler, Cursor names the epoch and what was handled before.
func TestRun_CursorInHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	var r *reader
	ready := make(chan struct{})
	r = w.read(w.js, consumer.Options{}, func(_ context.Context, ev bus.Event) error {
		<-ready
		if want := (bus.Cursor{Epoch: w.streams.Epoch, Seq: ev.Seq - 1}); r.c.Cursor() != want {
			return fmt.Errorf("cursor is %v, not %v", r.c.Cursor(), want)
		}
		return nil
	})
	close(ready)
	r.reach(3)
	r.finish()
}

// A forgotten session leaves holes, and void and foreign messages are skipped and
// counted; neither stops a reader.
func TestRun_HolesVoidAndForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	w.fail(keyB, 3)
	w.fail(keyA, 3)
	w.catchUp()
	w.forget(keyB)
	w.catchUp()
	w.stop()
	put := func(subject, body string, header nats.Header) {
		ack, err := w.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: []byte(body)})
		require.NoError(t, err)
		require.Equal(t, w.subj.EventsStream(), ack.Stream)
	}
	origin := nats.Header{}
	bus.Origin{Seq: 1, Time: 1}.SetHeaders(origin)
	body := func(seq uint64) string {
		ev := bus.Event{Seq: seq, Session: "a", Workspace: "w", Type: bus.TypeError, Data: []byte(`{}`)}
		return string(ev.AppendJSON(nil))
	}
	put(w.subj.Void(), "", nil)                                  // 10
	put(w.subj.Event(keyA, bus.TypeError), body(11), nil)        // 11: without an origin
	put(w.subj.Event(keyA, bus.TypeError), body(99), origin)     // 12: of another number
	put(w.subj.Event(keyB, bus.TypeError), body(13), origin)     // 13: of another session
	put(w.subj.Event(keyA, bus.TypeTurnEnded), body(14), origin) // 14: of another type
	put(w.subj.Event(keyA, bus.TypeError), "no JSON", origin)    // 15
	put("skald.ev.ü.x.error", body(16), origin)                  // 16: not an escaped id
	put(w.subj.Event(keyA, bus.TypeError), body(17), origin)     // 17: as a materializer does it

	for _, durable := range []string{"", "d"} {
		r := w.read(w.js, consumer.Options{Durable: durable}, nil)
		r.reach(17)
		r.finish()
		require.Equal(t, append(append(span(1, 3), span(7, 9)...), 17), r.seqs())
		require.Equal(t, consumer.Stats{Handled: 7, Foreign: 6, Void: 1}, r.c.Stats())
	}
	r := w.read(w.js, consumer.Options{Durable: "d", From: from(4)}, nil) // in the middle of the hole
	r.reach(17)
	r.finish()
	require.Equal(t, append(span(7, 9), 17), r.seqs())
}

// A durable goes on behind the last acknowledged event, and is not asked for From.
func TestRun_DurableGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	for i := range uint64(4) {
		r := w.read(w.js, consumer.Options{Durable: "d", Newest: i > 0}, nil)
		r.reach(5 + 3*i)
		r.finish()
		if i == 0 {
			require.Equal(t, span(1, 5), r.seqs())
		} else {
			require.Equal(t, span(3+3*i, 5+3*i), r.seqs())
		}
		w.fail(keyA, 3)
		w.catchUp()
	}
	require.Equal(t, []string{"d"}, w.consumers(), "the lease is given back")
}

// From wins over a durable's position, in both directions: the handler that saves
// its numbers itself knows better.
func TestRun_FromWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 10)
	w.catchUp()
	for _, seq := range []uint64{5, 8, 2, 0, 10} {
		r := w.read(w.js, consumer.Options{Durable: "d", From: from(seq)}, nil)
		r.begin()
		r.reach(10)
		r.finish()
		require.Equal(t, span(seq+1, 10), r.seqs())
	}
}

// An event whose handler returned an error comes again, and those behind it after
// it, though the server had sent them already.
func TestRun_HandlerError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 100)
	w.catchUp()
	errFull := errors.New("disk full")
	for _, o := range []consumer.Options{{Durable: "d"}, {}} {
		r := w.read(w.js, o, func(_ context.Context, ev bus.Event) error {
			if ev.Seq == 42 {
				return errFull
			}
			return nil
		})
		err := r.wait()
		require.ErrorIs(t, err, errFull)
		require.ErrorContains(t, err, "handle event 42")
		require.Equal(t, span(1, 41), r.seqs())
		require.EqualValues(t, 41, r.c.Cursor().Seq)
		if o.Durable == "" {
			cursor := r.c.Cursor()
			o.From = &cursor
		}
		r = w.read(w.js, o, nil)
		r.reach(100)
		r.finish()
		require.Equal(t, span(42, 100), r.seqs())
	}
}

// A stop while the handler is at work: what it says last counts.
func TestRun_StopInHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	w.catchUp()
	for _, tc := range []struct {
		err   error
		again []uint64
	}{{nil, []uint64{3}}, {context.Canceled, []uint64{2, 3}}} {
		entered := make(chan struct{})
		r := w.read(w.js, consumer.Options{Durable: "d", From: from(0)}, func(ctx context.Context, ev bus.Event) error {
			if ev.Seq < 2 {
				return nil
			}
			close(entered)
			<-ctx.Done()
			return tc.err
		})
		<-entered
		r.finish()
		r = w.read(w.js, consumer.Options{Durable: "d"}, nil)
		r.reach(3)
		r.finish()
		require.Equal(t, tc.again, r.seqs())
	}
}

// A slow handler gets every event once, also when the server has long taken its
// consumer away.
func TestRun_SlowHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 1500 // more than is held ahead
	w.fail(keyA, n)
	w.catchUp()
	for _, durable := range []string{"", "d"} {
		before := w.consumers()
		blocked := make(chan struct{})
		r := w.read(w.js, consumer.Options{Durable: durable}, func(_ context.Context, ev bus.Event) error {
			if ev.Seq == 1 {
				<-blocked
			}
			return nil
		})
		if durable == "" {
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) > len(before) })
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) == len(before) }, "the idle consumer stays")
		}
		close(blocked)
		r.reach(n)
		r.finish()
		require.Equal(t, span(1, n), r.seqs())
	}
}

// What is kept ahead of a stuck handler is bounded in bytes, too.
func TestRun_LargeAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 120
	body := fmt.Sprintf(`{"recorded_at_ms":1,"message":"%s"}`, strings.Repeat("x", 1<<20))
	for range n {
		skaldtest.Publish(t, w.js, keyA, bus.ClassError, body, nil)
	}
	w.catchUp()
	before := w.consumers()
	entered, leave := make(chan struct{}), make(chan struct{})
	r := w.read(w.js, consumer.Options{}, func(_ context.Context, ev bus.Event) error {
		if ev.Seq == 1 {
			close(entered)
			<-leave
		}
		return nil
	})
	<-entered
	names := slices.DeleteFunc(w.consumers(), func(name string) bool { return slices.Contains(before, name) })
	require.Len(t, names, 1)
	delivered, still := uint64(0), 0
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		cons, err := w.js.Consumer(t.Context(), w.subj.EventsStream(), names[0])
		require.NoError(t, err)
		if now := cons.CachedInfo().Delivered.Stream; now != delivered {
			delivered, still = now, 0
		}
		still++
		return still > 20
	})
	close(leave)
	require.Less(t, delivered, uint64(80), "64 MiB are kept ahead, and one message")
	r.reach(n)
	r.finish()
	require.Equal(t, span(1, n), r.seqs())
}

// Data is what the worker sent, byte for byte.
func TestRun_Bytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := []byte(`{"recorded_at_ms":7,"activity":{"n":1.0e+2,"s":"\u003c<\u2028","z":{"b":1,"a":2}}}`)
	skaldtest.Publish(t, w.js, keyA, bus.ClassActivity, string(body), nil)
	r := w.read(w.js, consumer.Options{}, nil)
	r.reach(1)
	r.finish()
	ev := r.seen()[0]
	require.True(t, bytes.Contains(ev.Data, []byte(`{"n":1.0e+2,"s":"\u003c<\u2028","z":{"b":1,"a":2}}`)), string(ev.Data))
	require.EqualValues(t, 7, ev.RecordedAt)
	require.Equal(t, keyA, ev.Key())
}

// A second Run is refused.
func TestRun_Twice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.read(w.js, consumer.Options{}, nil)
	r.begin()
	require.ErrorIs(t, r.c.Run(t.Context(), nil), consumer.ErrRunning)
	r.finish()
	require.ErrorIs(t, r.c.Run(t.Context(), nil), consumer.ErrRunning)
}

// A connection that its owner closes ends Run with an error that says so.
func TestRun_ConnectionClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, durable := range []string{"", "d"} {
		nc, js := w.connect()
		r := w.read(js, consumer.Options{Durable: durable}, nil)
		r.begin()
		nc.Close()
		require.ErrorIs(t, r.wait(), nats.ErrConnectionClosed)
	}
}
