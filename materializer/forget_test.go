package materializer_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A session that is forgotten after its rows were pruned leaves nothing in EVENTS, the last
// message included; a foreign message on its subject stays, and new facts get new numbers.
func TestForget_AfterPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.failMany(alpha, 250)
	w.fail(beta, "stays")
	w.failMany(alpha, 5)
	n.catchUp()
	_, err := w.js.Publish(t.Context(), w.subj.Event(alpha, "error"), []byte("foreign"))
	require.NoError(t, err)
	w.sayAll([]*nats.Msg{{Subject: w.subj.IngestAdmin(), Data: []byte(`{"op":"prune","before_seq":257}`)}})
	n.catchUp()
	w.forget(alpha)
	n.catchUp()
	info, err := w.streams.Events.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, info.State.Msgs, "beta's, and the foreign one")
	require.EqualValues(t, 257, info.State.LastSeq)
	w.fail(beta, "more")
	n.catchUp()
	w.check(n, 257)
	n.stop()
}

// EVENTS that is set back to a copy from before a forget holds the session again. The store
// removes it once more by itself, one that is to be overwritten like any other, and leaves
// alone what no materializer wrote.
func TestForget_EventsSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	gone := bus.Key{Workspace: "w", Session: "gone"}
	n.start(nil)
	w.failMany(alpha, 250)
	w.fail(beta, "stays")
	w.fail(gone, secret)
	n.catchUp()
	_, err := w.js.Publish(t.Context(), w.subj.Event(alpha, "error"), []byte("foreign"))
	require.NoError(t, err)
	w.fail(beta, "last")
	n.finish()
	copied := w.stoppedCopy(w.subj.EventsStream())
	n.start(nil)
	w.forget(alpha)
	w.say(gone, bus.ClassControl, `{"op":"forget","secure":true}`)
	n.finish()
	require.EqualValues(t, 3, w.messages())

	w.setStreamBack(w.subj.EventsStream(), copied)
	require.EqualValues(t, 254, w.messages())
	n.start(nil)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.messages() == 3 })
	n.catchUp()
	require.Empty(t, filesWith(t, w.streamDir(w.subj.EventsStream()), []byte(secret)))

	// Also below a materializer that runs on.
	w.setStreamBack(w.subj.EventsStream(), copied)
	w.fail(beta, "more")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.messages() == 4 })
	n.catchUp()
	w.check(n, 253)
	n.stop()
}

// messages is how many EVENTS holds, 0 while nobody answers.
func (w *world) messages() uint64 {
	info, err := w.streams.Events.Info(context.Background())
	if err != nil {
		return 0
	}
	return info.State.Msgs
}
