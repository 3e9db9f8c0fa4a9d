package materializer_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/registry"
	"github.com/skaldbus/skald/materializer/store"
)

// trimmer is a node that trims as soon as that is safe.

func (w *world) trimmer() *node {
	n := w.node()
	n.trims = true
	return n
}

// first returns where a stream begins.

func (w *world) first(s jetstream.Stream) uint64 {
	w.t.Helper()
	info, err := s.Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.FirstSeq
}

// begins is where INGEST begins, 0 while nobody answers: for conditions.

func (w *world) begins() uint64 {
	info, err := w.streams.Ingest.Info(context.Background())
	if err != nil {
		return 0
	}
	return info.State.FirstSeq
}

// trimmedTo waits until INGEST begins there.

func (w *world) trimmedTo(seq uint64) {
	w.t.Helper()
	skaldtest.Eventually(w.t, skaldtest.Timeout, func() bool { return w.begins() == seq }, "INGEST is not trimmed")
}

func (w *world) bucket() *checkpoint.Bucket {
	w.t.Helper()
	b, err := checkpoint.Find(w.t.Context(), w.js, w.subj)
	require.NoError(w.t, err)
	return b
}

func (w *world) checkpoints() []checkpoint.Checkpoint {
	w.t.Helper()
	list, _, err := w.bucket().List(w.t.Context())
	require.NoError(w.t, err)
	return list
}

func (w *world) entries() []registry.Entry {
	w.t.Helper()
	r, err := registry.Find(w.t.Context(), w.js, w.subj)
	require.NoError(w.t, err)
	list, err := r.List(w.t.Context())
	require.NoError(w.t, err)
	return list
}

// listed is entries for conditions: nil while nobody answers.

func (w *world) listed() []registry.Entry {
	r, err := registry.Find(context.Background(), w.js, w.subj)
	if err != nil {
		return nil
	}
	list, err := r.List(context.Background())
	if err != nil {
		return nil
	}
	return list
}

// removeEntry takes a store's entry out, as `skald replicas rm` does.

func (w *world) removeEntry(e registry.Entry) {
	w.t.Helper()
	r, err := registry.Find(w.t.Context(), w.js, w.subj)
	require.NoError(w.t, err)
	require.NoError(w.t, r.Remove(w.t.Context(), e))
}

// lines is all that the table says: whole rows, sessions, rejects and counters.

func (n *node) lines() []string {
	t := n.w.t
	t.Helper()
	r := n.st.Reader()
	rows, err := r.Rows(t.Context(), 0, 100_000, 1<<30)
	require.NoError(t, err)
	var out []string
	for i := range rows {
		out = append(out, fmt.Sprintf("%+v %s", rows[i], rows[i].Data))
	}
	sessions, err := r.Sessions(t.Context(), store.SessionsQuery{Limit: 1000})
	require.NoError(t, err)
	var texts []string
	for _, v := range sessions.Sessions {
		texts = append(texts, string(v))
	}
	slices.Sort(texts) // they are listed as they appeared in each store
	out = append(out, texts...)
	rejects, err := r.Rejects(t.Context(), store.RejectsQuery{Limit: 1000})
	require.NoError(t, err)
	for i := range rejects {
		out = append(out, fmt.Sprintf("%d %v %s %s", rejects[i].Seq, rejects[i].Key, rejects[i].Reason, rejects[i].Detail))
	}
	st, err := r.Status(t.Context())
	require.NoError(t, err)
	return append(out, fmt.Sprintf("%+v", st))
}

// mix says something of everything: counts, ids, a chain, bare messages, a rejected one, a

// session that is forgotten, and a page that is held.

func (w *world) mix(round int) {
	w.t.Helper()
	for i := range 5 {
		n := round*5 + i + 1
		w.fail(alpha, fmt.Sprint("counted ", n), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(n))
		w.fail(beta, fmt.Sprint("named ", n), bus.HeaderEventID, fmt.Sprint("id", n))
		w.fail(bus.Key{Workspace: "w", Session: fmt.Sprint("goes", round)}, "goes")
	}
	w.say(alpha, bus.ClassError, `{"message":7}`)
	w.say(alpha, bus.ClassActivity, fmt.Sprintf(`{"activity":{"round":%d}}`, round))
	w.forget(bus.Key{Workspace: "w", Session: fmt.Sprint("goes", round)})
}

// mixAgain repeats what mix said with an identity; none of it may give anything.

func (w *world) mixAgain(round int) {
	w.t.Helper()
	for i := range 5 {
		n := round*5 + i + 1
		w.fail(alpha, fmt.Sprint("counted ", n), bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, fmt.Sprint(n))
		w.fail(beta, fmt.Sprint("named ", n), bus.HeaderEventID, fmt.Sprint("id", n))
		w.fail(bus.Key{Workspace: "w", Session: fmt.Sprint("goes", round)}, "again")
	}
}

// A store that is new after INGEST was trimmed ends as the one that was there: the same

// numbers, sessions, rejects and counters, and it knows again what comes twice.

// A store that was away, and was not waited for, goes on from a checkpoint and keeps

// its rows.

// A store that is down and registered holds the trim up, however long; when it is

// removed from the list the trim goes on.

// What is younger than the window stays, and so does everything while there is no mark as

// old as it.

// INGEST that is nearly full is trimmed as far as is safe, whatever the window says; a store

// that is down and in the way is named.

// The server was set back to an older copy of all that it keeps, the registry too: the

// store keeps its id, and what it has is put back.

// The newest checkpoint is damaged: an older one has to do, as the trim has kept what it

// needs. Without any the store stops and says so.

// EVENTS lacks a row that a session of the checkpoint counts: the store does not begin in

// the middle, but stops and names the session.

// A crash at any step of a checkpoint, the trim, or of coming back is made good by the

// next run.

// While it takes a checkpoint the store says that it can not be read, and how far it is.

// EVENTS lost its end, and a store that had come further is down: one that is behind

// appends nothing until that one has put its rows back, or is removed from the list.

// A copy of a store that runs beside it is noticed, and takes an id of its own; a store

// that starts again keeps its own.

// Several materializers run, are killed and started, some from nothing, while INGEST is

// trimmed under them: their tables are the same.
