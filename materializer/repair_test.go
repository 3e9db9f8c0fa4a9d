package materializer_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

// holes makes a table with pruned numbers at its beginning, numbers of a forgotten
// session in its middle and at its end, and a foreign message.
func (w *world) holes(n *node) {
	w.t.Helper()
	n.start(nil)
	w.failMany(beta, 5)
	n.catchUp()
	_, err := w.js.Publish(w.t.Context(), w.subj.IngestAdmin(), []byte(`{"op":"prune","before_seq":4}`))
	require.NoError(w.t, err)
	w.failMany(alpha, 1200)
	w.fail(beta, "counted", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
	w.fail(beta, "named", bus.HeaderEventID, "id", bus.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	n.catchUp()
	_, err = w.js.Publish(w.t.Context(), "skald.ev.w.x.error", []byte("foreign"))
	require.NoError(w.t, err)
	w.fail(alpha, "the end")
	n.catchUp()
	w.forget(alpha)
	n.finish()
}

// EVENTS was deleted. It is made again from the table: the same numbers, the same
// bytes, the same epoch; numbers of pruned rows, of a forgotten session and of foreign
// messages stay empty. Killed at any step and run again, it ends right.
func TestCrash_EventsDeleted(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T, w *world, k int) bool {
		n := w.node()
		w.holes(n)
		before := w.heardAll()
		last := w.last(w.streams.Events)
		require.NoError(t, w.js.DeleteStream(t.Context(), "SKALD_EVENTS"))

		d, crashed := n.repair(false, k)
		require.Equal(t, materializer.RepairRebuild, d.Action)
		require.Equal(t, d.Epoch, d.NewEpoch)
		info := w.events()
		require.Equal(t, last, info.State.LastSeq)
		require.EqualValues(t, 4, info.State.FirstSeq, "what was pruned costs no messages")
		require.True(t, info.Config.DenyPurge)
		kept := slices.DeleteFunc(before, func(m string) bool { return strings.Contains(m, "foreign") || m[:2] < "4 " && m[1] == ' ' })
		same(t, "EVENTS", kept, w.heardAll())

		n.start(nil)
		w.fail(beta, "after")
		n.catchUp()
		n.sound()
		p, err := n.st.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{Epoch: d.Epoch, Seq: last}, Limit: 10})
		require.NoError(t, err, "old cursors go on")
		require.Len(t, p.Events, 1)
		require.Equal(t, last+1, p.Events[0].Seq)
		n.stop()
		// The server reads the stream's first number from its settings again.
		w.whileStopped(func() {})
		require.Equal(t, last+1, w.events().State.LastSeq)
		require.EqualValues(t, 4, w.events().State.FirstSeq)
		return crashed
	})
}

// EVENTS was made anew, empty, with other metadata: a loud stop, and the repair makes
// it again, since INGEST is still the store's.
func TestCrash_EventsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	before := w.heardAll()
	w.recreate(w.streams.Events, map[string]string{bus.MetaEpoch: "another"})
	n.open()
	_, err := w.subj.Open(t.Context(), n.js, bus.StreamOptions{MaxPayload: n.nc.MaxPayload()}, w.streams.Epoch)
	require.ErrorIs(t, err, bus.ErrOtherBus)
	n.m = nil
	n.close()
	d, _ := n.repair(false, 99)
	require.Equal(t, materializer.RepairRebuild, d.Action)
	require.Equal(t, w.streams.Epoch, w.events().Config.Metadata[bus.MetaEpoch])
	same(t, "EVENTS", before, w.heardAll())
	n.start(nil)
	w.fail(beta, "after")
	n.catchUp()
	n.sound()
	n.stop()
}

// EVENTS was made anew, empty, with the same metadata: the materializer fills it by
// itself, under the same numbers.
func TestCrash_EventsMadeAnewUnderItsEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	before := w.heardAll()
	w.recreate(w.streams.Events, nil)
	w.events()
	n.start(nil)
	w.fail(beta, "after")
	n.catchUp()
	same(t, "EVENTS", before, w.heardAll()[:3])
	n.sound()
	n.stop()
}

// EVENTS is back at an older state and went on with other facts: a loud stop. The
// repair appends the facts that EVENTS lacks under new numbers, whichever way it holds
// the others, and makes a new epoch. Killed at any step and run again, it ends right.
func TestCrash_EventsSetBackAndOvertaken(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T, w *world, k int) bool {
		n := w.node()
		n.start(nil)
		w.fail(alpha, "kept")
		n.finish()
		old := w.stoppedCopy("SKALD_EVENTS")
		n.start(nil)
		w.fail(beta, "lacking")
		w.fail(alpha, "counted", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
		w.fail(alpha, "named", bus.HeaderEventID, "id")
		w.fail(beta, "of the same origin")
		w.fail(alpha, "lacking")
		n.finish()
		in := w.read(w.streams.Ingest, 0)
		facts := w.heardAll()
		oldEpoch := w.streams.Epoch
		w.setStreamBack("SKALD_EVENTS", old)

		// What another store wrote meanwhile: facts of an INGEST that was rolled back
		// and told the same again, and one of its own.
		other := happened{key: beta, typ: "error", recorded: 1, data: `{"message":"theirs","command_id":null}`, origin: bus.Origin{Seq: 99, Time: 9}}
		w.plant(other)
		counted := happened{key: alpha, typ: "error", recorded: 1, data: `{"message":"counted","command_id":null}`, origin: bus.Origin{Seq: 100, Time: 10}}
		w.plantWith(counted, bus.Source{Publisher: "p", Count: 1})
		named := happened{key: alpha, typ: "error", recorded: 1, data: `{"message":"named","command_id":null}`, origin: bus.Origin{Seq: 101, Time: 11}}
		w.plantWith(named, bus.Source{EventID: "id"})
		sameOrigin := happened{key: beta, typ: "error", recorded: 1, data: `{"message":"of the same origin","command_id":null}`, origin: bus.Origin{Seq: 5, Time: in[4].time}}
		w.plant(sameOrigin)
		for range 2 { // beyond the table's end, so that its last number means something else
			other.origin.Seq++
			w.plant(other)
		}

		n.start(nil)
		require.ErrorIs(t, n.wait(), materializer.ErrEventsDiffer)
		d, crashed := n.repair(false, k)
		require.Equal(t, materializer.RepairRenumber, d.Action)
		require.EqualValues(t, 2, d.Differs)
		require.EqualValues(t, 2, d.Append)
		n.open()
		known, err := n.st.Bus(t.Context())
		require.NoError(t, err)
		n.m = nil
		n.close()
		require.NotEqual(t, oldEpoch, known.Epoch)
		require.Equal(t, known.Epoch, w.events().Config.Metadata[bus.MetaEpoch])

		n.start(nil)
		w.fail(beta, "after")
		n.catchUp()
		n.sound()
		_, err = n.st.Reader().Page(t.Context(), store.PageQuery{After: &bus.Cursor{Epoch: oldEpoch, Seq: 2}, Limit: 10})
		require.ErrorIs(t, err, bus.ErrOtherEpoch)
		text := strings.Join(w.heardAll(), "\n")
		for _, what := range []string{"kept", "counted", "named", "of the same origin", "after"} {
			require.Equal(t, 1, strings.Count(text, what), what)
		}
		require.Equal(t, 2, strings.Count(text, "lacking"))
		require.Len(t, facts, 6)
		require.Empty(t, n.rejects())
		n.stop()
		return crashed
	})
}

// plantWith writes a fact with a source to EVENTS by hand.
func (w *world) plantWith(f happened, s bus.Source) {
	w.t.Helper()
	h := nats.Header{}
	f.origin.SetHeaders(h)
	s.SetHeaders(h)
	_, err := w.js.PublishMsg(w.t.Context(), &nats.Msg{Subject: w.subj.Event(f.key, f.typ), Header: h, Data: []byte(f.wire(w.last(w.streams.Events) + 1))})
	require.NoError(w.t, err)
}

// Another store's repair has given the numbers a new epoch: this one stops, and its
// own repair takes the epoch on; both end with the same table.
func TestRepair_AdoptsOthersEpoch(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T, w *world, k int) bool {
		a, b := w.node(), w.node()
		a.start(nil)
		b.start(nil)
		w.failMany(alpha, 3)
		a.finish()
		b.finish()
		old := w.stoppedCopy("SKALD_EVENTS")
		a.start(nil)
		b.start(nil)
		w.failMany(beta, 3)
		a.finish()
		b.finish()
		w.setStreamBack("SKALD_EVENTS", old)
		w.plant(happened{key: beta, typ: "error", data: `{}`, origin: bus.Origin{Seq: 99, Time: 9}})
		for range 2 {
			w.fail(alpha, "more")
		}
		a.repair(false, 99)
		b.open()
		_, err := w.subj.Open(t.Context(), b.js, bus.StreamOptions{MaxPayload: b.nc.MaxPayload()}, w.streams.Epoch)
		require.ErrorIs(t, err, bus.ErrOtherBus)
		b.m = nil
		b.close()
		d, crashed := b.repair(false, k)
		require.Equal(t, materializer.RepairAdopt, d.Action)
		require.Zero(t, d.Append, "the other store has appended them already")
		a.start(nil)
		b.start(nil)
		w.fail(beta, "after")
		a.catchUp()
		b.catchUp()
		a.sound()
		b.sound()
		same(t, "the table", rawTable(t, a.path), rawTable(t, b.path))
		a.stop()
		b.stop()
		return crashed
	})
}

// EVENTS has lost its metadata, but not its messages.
func TestCrash_EventsWithoutItsMetadata(t *testing.T) {
	t.Parallel()
	for _, truncated := range []bool{false, true} {
		w := newWorld(t)
		n := w.node()
		n.start(nil)
		w.failMany(beta, 3)
		n.finish()
		old := w.stoppedCopy("SKALD_EVENTS")
		n.start(nil)
		w.fail(beta, "more")
		n.finish()
		if truncated {
			w.setStreamBack("SKALD_EVENTS", old)
		}
		c := w.events().Config
		c.Metadata = nil
		_, err := w.js.UpdateStream(t.Context(), c)
		require.NoError(t, err)
		d, _ := n.repair(false, 99)
		require.Equal(t, materializer.RepairEpoch, d.Action)
		require.Equal(t, w.streams.Epoch, w.events().Config.Metadata[bus.MetaEpoch])
		n.start(nil)
		n.catchUp()
		w.check(n)
		n.stop()
	}
}

// Another bus's streams stand in the place of the store's: a loud stop, no repair, and
// nothing is changed.
func TestCrash_EventsOfAnotherBus(t *testing.T) {
	t.Parallel()
	w, v := newWorld(t), newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	other := v.node()
	other.start(nil)
	v.failMany(beta, 5)
	other.finish()
	theirs := v.heardAll()
	table, err := os.ReadFile(n.path)
	require.NoError(t, err)

	n.w, n.url = v, v.server.ClientURL()
	n.repairing(false, func(r *materializer.Repairer) {
		_, err := r.Diagnose(t.Context())
		require.ErrorIs(t, err, materializer.ErrNoRepair)
		require.ErrorIs(t, err, bus.ErrOtherBus)
		require.ErrorContains(t, err, "skald serve with a new --data directory")
	})
	require.NoFileExists(t, n.planFile())
	same(t, "their EVENTS", theirs, v.heardAll())
	now, err := os.ReadFile(n.path)
	require.NoError(t, err)
	require.Equal(t, len(table), len(now))

	// Their EVENTS is gone, their INGEST is not ours.
	require.NoError(t, v.js.DeleteStream(t.Context(), "SKALD_EVENTS"))
	n.repairing(false, func(r *materializer.Repairer) {
		_, err := r.Diagnose(t.Context())
		require.ErrorIs(t, err, bus.ErrOtherBus)
	})
}

// A store of a bus that has not begun, and one whose next numbers aged out.
func TestRepair_Refuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fresh := w.node()
	fresh.repairing(false, func(r *materializer.Repairer) {
		_, err := r.Diagnose(t.Context())
		require.ErrorIs(t, err, materializer.ErrNoRepair)
	})
	n := w.node()
	n.start(nil)
	w.failMany(beta, 3)
	n.finish()
	b := w.node()
	n.copyTo(b.path)
	n.start(nil)
	w.failMany(beta, 5)
	n.finish()
	c := w.events().Config
	c.MaxMsgs, c.Discard = 2, jetstream.DiscardOld
	_, err := w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	b.repairing(false, func(r *materializer.Repairer) {
		_, err := r.Diagnose(t.Context())
		require.ErrorIs(t, err, materializer.ErrEventsGone)
		require.ErrorContains(t, err, "numbers 4 to 6")
	})
	// The store that has them all is well.
	require.Equal(t, materializer.RepairNothing, n.diagnose(false).Action)
}
