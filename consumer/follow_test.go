package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// History comes from the table and what follows from EVENTS, with one cursor and the
// same bytes, whatever the filter; types that a request can not name together are
// picked by hand.
func TestFollow_HistoryThenLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	for range 10 {
		w.fail(keyA, 7)
		w.fail(keyB, 3)
		w.fail(keyC, 2)
		w.active(keyA, time.Now().String())
	}
	w.catchUp()
	both := []string{bus.TypeActivityChanged, bus.TypeTurnEnded}
	filters := []consumer.FollowOptions{
		{}, {Workspace: keyA.Workspace}, {Workspace: keyB.Workspace, Session: keyB.Session}, {Session: keyB.Session},
		{Types: []string{bus.TypeActivityChanged}}, {Workspace: keyA.Workspace, Types: both}, {Types: []string{"rare"}}, {Workspace: "nobody"},
	}
	var all []*following
	for _, o := range filters {
		o.From = from(0)
		all = append(all, w.follow(w.js, o, 20, nil))
	}
	for _, r := range all {
		r.begin()
	}
	for range 10 {
		w.fail(keyA, 2)
		w.fail(keyB, 1)
		w.active(keyA, time.Now().String())
	}
	w.catchUp()
	for i, r := range all {
		o := consumer.Options{Workspace: filters[i].Workspace, Session: filters[i].Session, Types: filters[i].Types}
		want := w.table(o)
		if len(want) > 0 {
			r.reach(want[len(want)-1].Seq)
		}
		r.finish()
		same(t, want, r.seen(), "filter")
		require.Positive(t, r.f.Stats().Pages)
		require.EqualValues(t, len(want), r.f.Stats().Handled)
	}
}

// Without a cursor a follower begins with what comes next, also where no table
// answers.
func TestFollow_FromNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	w.catchUp()
	r := w.follow(w.js, consumer.FollowOptions{}, 20, nil)
	r.begin()
	w.fail(keyA, 3)
	r.reach(8)
	r.finish()
	require.Equal(t, span(6, 8), seqs(r.seen()))
	require.Zero(t, r.f.Stats().Pages)
}

// A cursor that has no place is an error at once, which says what there is: ahead of
// everything, older than what the table keeps, of another epoch. The cursors beside
// them work.
func TestFollow_Misplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.fail(keyA, 12)
	w.catchUp()
	w.prune(5)
	for _, c := range []struct {
		at    bus.Cursor
		err   error
		says  string
		table bool
	}{
		{bus.Cursor{Seq: 13}, bus.ErrCursorAhead, "5 to 12", true},
		{bus.Cursor{Seq: bus.MaxSeq}, bus.ErrCursorAhead, "5 to 12", true},
		{bus.Cursor{Seq: 1}, bus.ErrCursorGone, "go on from 4", true},
		{bus.Cursor{Seq: 3, Epoch: w.streams.Epoch}, bus.ErrCursorGone, "go on from 4", true},
		{bus.Cursor{Seq: 4, Epoch: "other"}, bus.ErrOtherEpoch, "1 to 12", false},
	} {
		skaldtest.InTime(t, 5*time.Second, func() {
			err := w.follow(w.js, consumer.FollowOptions{From: &c.at}, 20, nil).wait()
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.says)
			at, ok := errors.AsType[*consumer.CursorError](err)
			require.True(t, ok)
			require.Equal(t, c.table, at.Table)
			require.Equal(t, w.streams.Epoch, at.Epoch)
		})
	}
	require.Empty(t, w.consumers(), "nothing was made for a place that is not there")
	for seq, want := range map[uint64][]uint64{0: span(5, 12), 4: span(5, 12), 11: {12}} {
		r := w.follow(w.js, consumer.FollowOptions{From: from(seq)}, 20, nil)
		r.reach(12)
		r.finish()
		require.Equal(t, want, seqs(r.seen()))
	}
	r := w.follow(w.js, consumer.FollowOptions{From: from(12)}, 20, nil)
	r.begin()
	w.fail(keyA, 1)
	r.reach(13)
	require.Equal(t, []uint64{13}, seqs(r.seen()))
}

// Where no table answers, a follower with a cursor waits and then says so; one that
// is ahead of EVENTS is told at once, since the table can not make that right.
func TestFollow_NoTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	w.catchUp()
	err := w.follow(w.js, consumer.FollowOptions{From: from(7)}, 20, nil).wait()
	require.ErrorIs(t, err, bus.ErrCursorAhead)
	all := w.follow(w.js, consumer.FollowOptions{From: from(1)}, 20, nil)
	one := w.follow(w.js, consumer.FollowOptions{From: from(1), Workspace: "a b"}, 20, nil)
	err = all.wait()
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "skald.op.events")
	err = one.wait()
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorContains(t, err, "skald.api.a=20b.events")

	// One that comes within that time is early enough.
	r := w.follow(w.js, consumer.FollowOptions{From: from(0)}, 20, nil)
	w.serveTable(w.store)
	r.reach(3)
	require.Equal(t, span(1, 3), seqs(r.seen()))
}

// EVENTS is bounded and has forgotten the beginning: it comes from the table. A
// follower whose next events leave EVENTS while its loop is at work reads them from
// there too, and one that is far behind goes back to pages.
func TestFollow_BoundedEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 20, jetstream.DiscardOld })
	w.fail(keyA, 100)
	w.catchUp()
	hold := make(chan struct{})
	slow := w.follow(w.js, consumer.FollowOptions{From: from(0)}, 1_000_000, func(ev bus.Event) {
		if ev.Seq == 110 {
			<-hold
		}
	})
	rare := w.follow(w.js, consumer.FollowOptions{From: from(0), Types: []string{bus.TypeActivityChanged}}, 50, nil)
	slow.reach(100)
	w.fail(keyA, 1500) // more than is kept ahead of the loop
	w.active(keyA, "x")
	last := w.catchUp()
	require.EqualValues(t, 1601, last)
	close(hold)
	slow.reach(last)
	slow.finish()
	require.Equal(t, span(1, last), seqs(slow.seen()))
	rare.reach(last)
	rare.finish()
	require.Equal(t, []uint64{last}, seqs(rare.seen()))
}

// While the connection is lost, what comes next leaves a bounded EVENTS. The reader's
// JetStream consumer is still there and has nothing left to send: that was taken for
// having sent all. A follower gets it from the table, a consumer is told.
func TestFollow_LeftWhileCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.bound(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 150, jetstream.DiscardOld })
	w.fail(keyB, 1)
	p, _, js := w.proxied()
	f := w.follow(js, consumer.FollowOptions{Workspace: keyB.Workspace, Session: keyB.Session, From: from(0)}, 1_000_000, nil)
	r := w.read(js, consumer.Options{Workspace: keyB.Workspace, Session: keyB.Session}, nil)
	f.reach(1)
	r.reach(1)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) == 2 }, "both wait for what comes")
	p.Refuse(true)
	w.fail(keyB, 5)
	w.catchUp()
	for range 4 { // in pieces that a materializer may have at hand
		w.fail(keyA, 50)
		w.catchUp()
	}
	p.Refuse(false)
	f.reach(206)
	require.Equal(t, span(1, 6), seqs(f.seen()))
	f.finish()
	require.ErrorIs(t, r.wait(), bus.ErrCursorGone)
	require.Equal(t, span(1, 1), r.seqs())
}

// A follower that falls far behind while it reads EVENTS goes over to pages, and
// comes back.
func TestFollow_FallsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	hold, once := make(chan struct{}), make(chan struct{})
	r := w.follow(w.js, consumer.FollowOptions{}, 100, func(ev bus.Event) {
		if ev.Seq == 1 {
			close(once)
			<-hold
		}
	})
	r.begin()
	w.fail(keyA, 1)
	<-once
	w.fail(keyA, 2000)
	w.catchUp()
	require.Zero(t, r.f.Stats().Pages)
	close(hold)
	r.reach(2001)
	require.Positive(t, r.f.Stats().Pages)
	w.fail(keyB, 5)
	r.reach(2006)
	r.finish()
	require.Equal(t, span(1, 2006), seqs(r.seen()))
}

// Two stores answer in turn, and one has stopped long ago: a follower is never
// thrown behind its cursor, and gets all from the other.
func TestFollow_LaggingStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lagging, stop := w.second()
	w.fail(keyA, 300)
	w.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		p, err := lagging.Reader().Position(context.Background())
		return err == nil && p.EventsSeq == 300
	})
	stop()
	w.serveTable(lagging)
	w.serveTable(w.store)
	w.fail(keyA, 2500)
	w.catchUp()
	var all []*following
	for _, at := range []uint64{0, 299, 300, 301, 1500, 2799, 2800} {
		all = append(all, w.follow(w.js, consumer.FollowOptions{From: from(at)}, 10, nil))
	}
	w.fail(keyA, 10)
	last := w.catchUp()
	for i, at := range []uint64{0, 299, 300, 301, 1500, 2799, 2800} {
		all[i].reach(last)
		all[i].finish()
		require.Equal(t, span(at+1, last), seqs(all[i].seen()))
	}
}

// A table that is away for a while ends nobody: one that reads EVENTS does not
// notice, and one that begins at the newest does not need it.
func TestFollow_TableGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.serveTable(w.store)
	w.fail(keyA, 10)
	w.catchUp()
	r := w.follow(w.js, consumer.FollowOptions{From: from(0)}, 20, nil)
	r.reach(10)
	stop()
	w.fail(keyA, 10)
	r.reach(20)
	w.deleteConsumers(func(string) bool { return true })
	w.fail(keyA, 100) // far behind, and nobody to page it from
	r.reach(120)
	w.restart()
	w.serveTable(w.store)
	w.fail(keyA, 10)
	r.reach(130)
	r.finish()
	require.Equal(t, span(1, 130), seqs(r.seen()))
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.consumers()) == 0 })
}

// Another EVENTS under the same name ends the loop with an error, and so does one
// that stays away.
func TestFollow_StreamReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.fail(keyA, 10)
	w.catchUp()
	r := w.follow(w.js, consumer.FollowOptions{From: from(0)}, 20, nil)
	r.reach(10)
	w.stop()
	s, err := w.js.Stream(t.Context(), w.subj.EventsStream())
	require.NoError(t, err)
	cfg := s.CachedInfo().Config
	require.NoError(t, w.js.DeleteStream(t.Context(), w.subj.EventsStream()))
	cfg.Metadata = map[string]string{bus.MetaEpoch: "later"}
	_, err = w.js.CreateStream(t.Context(), cfg)
	require.NoError(t, err)
	require.ErrorIs(t, r.wait(), consumer.ErrStreamReplaced)
	require.Equal(t, span(1, 10), seqs(r.seen()))
}

// Leaving the loop leaves the event unhandled; the next range begins with it. Two at
// a time are refused.
func TestFollow_Again(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveTable(w.store)
	w.fail(keyA, 10)
	w.catchUp()
	f, err := consumer.Follow(w.js, consumer.FollowOptions{Subjects: w.subj, From: from(0), Logger: logger(t)})
	require.NoError(t, err)
	require.Empty(t, f.Cursor())
	ctx, cancel := context.WithTimeout(t.Context(), skaldtest.Timeout)
	defer cancel()
	var got []uint64
	for ev, err := range f.Events(ctx) {
		require.NoError(t, err)
		got = append(got, ev.Seq)
		require.Equal(t, bus.Cursor{Epoch: w.streams.Epoch, Seq: ev.Seq - 1}, f.Cursor())
		require.Equal(t, bus.Cursor{Epoch: w.streams.Epoch, Seq: ev.Seq}, f.At(ev))
		if ev.Seq == 4 {
			break
		}
	}
	for ev, err := range f.Events(ctx) {
		require.NoError(t, err)
		for _, err := range f.Events(ctx) {
			require.ErrorIs(t, err, consumer.ErrRunning)
		}
		if got = append(got, ev.Seq); ev.Seq == 10 {
			break
		}
	}
	require.Equal(t, append(span(1, 4), span(4, 10)...), got)
	ended, stop := context.WithCancel(ctx)
	stop()
	for range f.Events(ended) {
		require.Fail(t, "an event after the end")
	}
}

// Options that can not be meant are refused before anything is asked.
func TestFollow_Refuses(t *testing.T) {
	t.Parallel()
	subj := skaldtest.Subjects(t)
	for field, o := range map[string]consumer.FollowOptions{
		"subjects":  {},
		"from":      {Subjects: subj, From: from(bus.MaxSeq + 1)},
		"workspace": {Subjects: subj, Workspace: "a\nb"},
		"session":   {Subjects: subj, Session: string([]byte{0xff})},
		"types":     {Subjects: subj, Types: []string{"*"}},
	} {
		_, err := consumer.Follow(nil, o)
		invalid, ok := errors.AsType[*bus.InvalidError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, field, invalid.Field)
	}
}
