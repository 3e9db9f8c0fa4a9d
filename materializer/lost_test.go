package materializer_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// sayByAll says three things, each with another identity: a count, an event id, a chain.
func (w *world) sayByAll() {
	w.t.Helper()
	w.fail(alpha, "counted", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "1")
	w.fail(alpha, "named", bus.HeaderEventID, "one")
	w.journal(beta, 1, 2)
}

// journal says the events from first to last of a journal, as one page.
func (w *world) journal(k bus.Key, first, last int) {
	w.t.Helper()
	var at, after bus.Digest
	var events []string
	for i, o := range []string{
		`{"type":"command_queued","data":{"command_id":"a","command":{"type":"prompt","data":{"prompt":[]}},"created_at_ms":1}}`,
		`{"type":"command_started","data":{"command_id":"a","started_at_ms":2}}`,
		`{"type":"notice","data":{"message":"which gives no fact"}}`,
		`{"type":"command_completed","data":{"command_id":"a","outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}}}}`,
	} {
		e := bus.RelayEvent{Format: bus.FormatChained, Ordinal: uint64(i + 1), RecordedAt: 1, Observation: []byte(o)}
		next, _ := e.ComputeDigest(at, nil)
		if i+1 >= first && i+1 <= last {
			events = append(events, fmt.Sprintf(`{"ordinal":%d,"previous_digest":"%s","digest":"%s","recorded_at_ms":1,"observation":%s}`, i+1, at, next, o))
		}
		if at = next; i+1 < first {
			after = next
		}
	}
	w.say(k, bus.ClassProjection, fmt.Sprintf(`{"after":{"ordinal":%d,"digest":"%s"},"events":[%s]}`, first-1, after, strings.Join(events, ",")))
}

// crashBeforeCommit returns a seam that crashes before the first commit, once EVENTS ends
// with that number: what is at hand may go out in several appends.
func (w *world) crashBeforeCommit(events uint64) func(string) error {
	return func(at string) error {
		if at != "before commit" {
			return nil
		}
		for end := time.Now().Add(skaldtest.Timeout); ; {
			info, err := w.streams.Events.Info(context.Background())
			switch {
			case err != nil:
				return err
			case info.State.LastSeq >= events:
				return errCrash
			case time.Now().After(end):
				return fmt.Errorf("EVENTS ends at %d", info.State.LastSeq)
			}
		}
	}
}

// The process was killed when its facts were in EVENTS and not in the table, and then
// INGEST lost their messages. Nobody will project them: the rows themselves say what their
// sessions know. What is sent again adds nothing, whatever it is known by, and each
// session says what was done.
func TestLost_BetweenAppendAndCommit(t *testing.T) {
	t.Parallel()
	for _, idle := range []bool{true, false} {
		t.Run(fmt.Sprintf("idle=%v", idle), func(t *testing.T) {
			t.Parallel()
			w := newRollback(t)
			w.n.batches = true
			w.n.start(nil)
			w.fail(alpha, "before")
			w.n.catchUp()
			w.n.stop()
			w.sayByAll()
			w.n.start(w.crashBeforeCommit(4))
			require.ErrorIs(t, w.n.wait(), errCrash)
			require.EqualValues(t, 4, w.last(w.streams.Events))

			w.recreate(w.streams.Ingest, map[string]string{bus.MetaIngestID: "another"})
			if idle { // the rows are taken before anything comes again
				w.n.start(nil)
				skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(rawTable(t, w.n.path)) == 4 })
			}
			w.sayByAll()
			if !idle {
				w.n.start(nil)
			}
			w.n.catchUp()
			rows := rawTable(t, w.n.path)
			require.Len(t, rows, 4)
			require.EqualValues(t, 4, w.last(w.streams.Events))
			require.EqualValues(t, 3, w.n.status().Duplicates)
			require.Len(t, w.n.rejectsOf(bus.ReasonTakenOver), 3)

			// What comes next is in order behind it.
			w.fail(alpha, "counted again", bus.HeaderPublisher, "p", bus.HeaderPublisherSeq, "2")
			w.n.catchUp()
			require.Len(t, rawTable(t, w.n.path), 5)
			w.n.stop()
		})
	}
}

// A new store reads what INGEST holds from its first message, and takes from EVENTS what
// INGEST has lost since. With a checkpoint it begins there, without one it goes by the
// rows: either way what is sent again is known.
func TestLost_NewStore(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		t.Run("checkpoint="+strconv.FormatBool(keeps), func(t *testing.T) {
			t.Parallel()
			w := newRollback(t)
			if keeps {
				w.n = w.trimmer() // which makes checkpoints, one after INGEST was made anew
			}
			w.n.start(nil)
			w.sayByAll()
			w.n.catchUp()
			w.n.stop()
			w.recreate(w.streams.Ingest, map[string]string{bus.MetaIngestID: "another"})
			w.n.start(nil)
			w.n.gone(1, bus.ReasonIngestRecreated)
			w.fail(alpha, "after")
			w.n.catchUp()
			if keeps {
				skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.n.m.Stats().Checkpoints > 0 })
			}

			late := w.node()
			late.start(nil)
			w.sayByAll()
			w.n.catchUp()
			late.catchUp()
			require.Equal(t, rawTable(t, w.n.path), rawTable(t, late.path))
			require.Len(t, rawTable(t, late.path), 4)
			require.EqualValues(t, 4, w.last(w.streams.Events))
			w.n.stop()
			late.stop()
		})
	}
}

// INGEST lost pages of a journal, of which the last gave no fact, and kept those behind.
// A new store finds facts of the latter in EVENTS, so they were applied, and bridges what
// nothing tells of: it does not hold them for ever, nor give them a second time.
func TestLost_PagesBetween(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.journal(beta, 1, 2)
	w.journal(beta, 3, 3)
	w.n.catchUp()
	w.n.stop()
	w.recreate(w.streams.Ingest, map[string]string{bus.MetaIngestID: "another"})
	w.n.start(nil)
	w.n.gone(1, bus.ReasonIngestRecreated)
	w.journal(beta, 4, 4)
	w.n.catchUp()
	w.n.stop()
	if err := w.js.DeleteObjectStore(t.Context(), "SKALD_STATE"); err != nil {
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound) // no checkpoint was written yet
	}

	late := w.node()
	late.start(nil)
	late.catchUp()
	require.Equal(t, rawTable(t, w.n.path), rawTable(t, late.path))
	require.Len(t, late.rejectsOf(bus.ReasonTakenOver), 2)
	w.journal(beta, 1, 2)
	w.journal(beta, 3, 4)
	late.catchUp()
	require.Len(t, rawTable(t, late.path), 2)
	require.EqualValues(t, 2, late.status().Duplicates)
	require.Zero(t, late.status().Held)
	late.stop()
}
