package materializer_test

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// caughtUp reports whether all that the streams hold is in the table, and what is
// forgotten out of it. An INGEST that is not what it was may end where the position is: it
// counts only when the node reads on, and so has compared it.
func (n *node) caughtUp() bool {
	if !n.check("ingest").OK {
		return false
	}
	ctx := context.Background()
	in, err := n.w.streams.Ingest.Info(ctx)
	if err != nil {
		return false
	}
	ev, err := n.w.streams.Events.Info(ctx)
	if err != nil {
		return false
	}
	s, err := n.st.Reader().Status(ctx)
	if err != nil || s.IngestSeq != in.State.LastSeq || s.EventsSeq != ev.State.LastSeq || s.Removals != 0 {
		return false
	}
	first, err := n.st.Reader().Rows(ctx, 0, 1, 1)
	return err == nil && (len(first) == 0 || first[0].Seq >= s.Oldest)
}

// catchUp waits until the node has caught up.
func (n *node) catchUp() {
	n.w.t.Helper()
	defer func() {
		if n.w.t.Failed() {
			s, err := n.st.Reader().Status(context.Background())
			n.w.t.Logf("not caught up: INGEST ends at %d, EVENTS at %d; status %+v, %v; health %+v",
				n.w.last(n.w.streams.Ingest), n.w.last(n.w.streams.Events), s, err, n.m.Health())
			if len(n.done) > 0 {
				err := <-n.done
				n.done <- err
				n.w.t.Logf("Run has ended: %v", err)
			}
		}
	}()
	skaldtest.Eventually(n.w.t, 2*skaldtest.Timeout, func() bool { return n.caughtUp() || len(n.done) > 0 }, "the materializer does not catch up")
	require.True(n.w.t, n.caughtUp(), "Run has ended")
}

// finish catches up and stops.
func (n *node) finish() {
	n.w.t.Helper()
	n.catchUp()
	n.stop()
}
