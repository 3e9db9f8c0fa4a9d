package materializer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
)

// A worker is killed when INGEST holds its message and the answer is lost. It can not
// know, and its next start sends the same bytes under the same identity: by the library
// with its outbox, or by itself.
func TestCrash_BeforeIngestAcknowledged(t *testing.T) {
	t.Parallel()
	for _, by := range []part{{Outbox: "outbox", Says: 5}, {EventID: "one"}} {
		t.Run("outbox="+by.Outbox, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			px := c.proxy()
			if by.Outbox != "" {
				by.Outbox = filepath.Join(t.TempDir(), by.Outbox)
			}
			first := by
			first.URL = px.url()
			worker := c.play(first)
			worker.hears("ready")
			px.silent.Store(true)
			_, err := fmt.Fprintln(worker.in)
			require.NoError(t, err)
			if by.Outbox != "" {
				worker.hears("kept")
			}
			skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return c.last(c.streams.Ingest) == 1 })
			require.NoError(t, worker.cmd.Process.Kill())
			worker.isKilled()

			want := max(by.Says, 1)
			by.Says = 0 // it has nothing new to say
			again := c.play(by)
			again.hears("ready")
			_, err = fmt.Fprintln(again.in)
			require.NoError(t, err)
			c.goOn(again.ends, func() {
				c.n.catchUp()
				require.Len(t, rawTable(t, c.n.path), want+len(c.said))
				if by.EventID != "" {
					require.EqualValues(t, 1, c.n.status().Duplicates)
				}
			})
		})
	}
}

// INGEST has acknowledged messages that no materializer has read, and is set back to
// before them: the outbox holds them, since they are not materialized.
func TestCrash_IngestLostWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.say(3)
	c.killed("committed", 1)
	c.goOn()
	old := c.stoppedCopy("SKALD_INGEST")
	c.say(20)
	lost := c.read(c.streams.Ingest, 4)
	require.Len(t, lost, 20)
	c.setStreamBack("SKALD_INGEST", old)
	c.goOn()
	require.Len(t, rawTable(t, c.n.path), 25)
	// The publisher may send them as soon as the server is back: they were lost if those
	// that INGEST has now were stored later.
	again := c.read(c.streams.Ingest, 4)
	require.Len(t, again, 21)
	require.Greater(t, again[0].time, lost[19].time)
}

// The process is killed when it has projected, and EVENTS was given nothing.
func TestCrash_BeforeTheAppend(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"read", "projected"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			c.say(3)
			c.sayByAll()
			c.killed(at, 1)
			require.Zero(t, c.last(c.streams.Events))
			c.goOn()
		})
	}
}

// The process is killed when the append is on its way, and when EVENTS has it and the
// answer was not read: both times it can not know.
func TestCrash_AppendSentAnswerLost(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken=%v", taken), func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			c.say(3)
			c.sayByAll()
			p := part{At: "sent", Nth: 1}
			if taken {
				p.Events = 1 // of three that go out one by one
			}
			c.killedAs(p)
			require.Empty(t, rawTable(t, c.n.path))
			c.goOn()
		})
	}
}

// One message gives more facts than a batch holds, and the process is killed when EVENTS
// has the first of two.
func TestCrash_BetweenTwoBatches(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	s := newGenerator(rand.New(rand.NewPCG(1, 1)), c.subj).worker()
	const facts = materializer.MaxAppendMessages + 100
	questions := make([]string, facts)
	for i := range questions {
		questions[i] = fmt.Sprintf(`{"type":"elicitation_requested","data":{"request":{"id":"q%d","message":"m","fields":[]}}}`, i)
	}
	for page := range slices.Chunk(questions, 100) {
		s.observe(c.world, page...)
	}
	c.n.start(nil)
	c.n.finish()
	require.EqualValues(t, facts, c.last(c.streams.Events))
	s.observe(c.world, `{"type":"elicitations_cleared"}`)
	const first = facts + materializer.MaxAppendMessages
	c.killedAs(part{At: "sent", Nth: 1, Events: first})
	require.EqualValues(t, first, c.last(c.streams.Events))
	require.Len(t, rawTable(t, c.n.path), facts)
	c.goOn()
}

// observe says the observations in one page.
func (s *worker) observe(w *world, observations ...string) {
	w.t.Helper()
	at := int64(1)
	var events []string
	for _, o := range observations {
		e := relayEvent{Format: 1, Ordinal: uint64(len(s.journal) + 1), RecordedAt: &at, Observation: []byte(o)}
		s.seal(&e, s.previous(e.Ordinal))
		s.journal = append(s.journal, e)
		events = append(events, e.text())
	}
	s.sent = uint64(len(s.journal))
	w.say(s.key, bus.ClassProjection, `{"events":[`+strings.Join(events, ",")+`]}`)
}

// The process is killed when EVENTS holds the facts, and no row was written.
func TestCrash_AfterAppendBeforeCommit(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"appended", "before commit"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t)
			c.say(3)
			c.sayByAll()
			c.killed(at, 1)
			require.NotZero(t, c.last(c.streams.Events))
			require.Empty(t, rawTable(t, c.n.path))
			c.goOn()
		})
	}
}

// The process is killed when the rows are there and nobody was told: publishers ask.
func TestCrash_AfterCommitBeforeTheHint(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.say(3)
	c.sayByAll()
	c.killed("committed", 1)
	require.NotEmpty(t, rawTable(t, c.n.path))
	require.Empty(t, c.told)
	c.goOn()
}

// The process is killed twice when EVENTS has lost some messages of a forgotten session
// and the table still has their rows.
func TestCrash_BetweenTwoRemovalSteps(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.failMany(alpha, 250)
	c.forget(alpha)
	c.say(3)
	for nth := 1; nth <= 2; nth++ {
		c.killed("removed from EVENTS", nth)
		require.Greater(t, len(rawTable(t, c.n.path)), 3)
	}
	c.goOn()
}

// The process is killed when it has removed EVENTS' last fact. What that came from
// stands in the state bucket: the facts before it are not given again, neither by this
// store nor by one from before.
func TestCrash_AfterTheRemovalOfEventsLastFact(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.say(3)
	c.n.start(nil)
	c.n.finish()
	old := c.n.path + ".old"
	c.n.copyTo(old)
	c.failMany(alpha, 2)
	c.forget(alpha)
	c.killed("removed from EVENTS", 1)
	require.EqualValues(t, 5, c.last(c.streams.Events))
	require.Len(t, c.read(c.streams.Events, 0), 3)
	require.Len(t, rawTable(t, c.n.path), 5)
	late := c.node()
	b, err := os.ReadFile(old)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(late.path, b, 0o600))
	c.goOn()
	late.start(nil)
	late.catchUp()
	c.check(late)
	late.stop()
	require.EqualValues(t, 6, c.last(c.streams.Events))
}

// A copy of the store takes its place.
func TestCrash_StoreRestoredFromACopy(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.say(3)
	c.n.start(nil)
	c.n.finish()
	old := c.n.path + ".old"
	c.n.copyTo(old)
	c.say(3)
	c.sayByAll()
	c.failMany(alpha, 100)
	c.killed("before commit", 1)
	require.NoError(t, os.Remove(c.n.path+"-wal")) // as the copy has none
	require.NoError(t, os.Remove(c.n.path+"-shm"))
	c.n.restore(old)
	c.goOn()
}

// A store is lost, with INGEST complete and with one that is trimmed; a new one and one
// that was left behind come to the same.
func TestCrash_StoreLostNewOrLeftBehind(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.say(3)
	c.sayByAll()
	c.n.start(nil)
	c.n.finish()
	for _, file := range []string{c.n.path, c.n.path + "-wal", c.n.path + "-shm"} {
		if err := os.Remove(file); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	c.goOn()

	behind := c.node()
	behind.start(nil)
	behind.finish()
	c.n.trims = true
	c.n.start(nil)
	c.mix(0)
	c.n.catchUp()
	for _, e := range c.entries() {
		if e.Position < c.last(c.streams.Ingest) {
			c.removeEntry(e)
		}
	}
	c.trimmedTo(c.last(c.streams.Ingest))
	fresh := c.node()
	for _, late := range []*node{behind, fresh} {
		late.start(nil)
		late.catchUp()
		require.Equal(t, c.n.lines(), late.lines())
		late.stop()
	}
	c.n.stop()
}

// A repair is killed at each of its steps, and run again.
func TestCrash_RepairKilled(t *testing.T) {
	t.Parallel()
	for k, killed := 1, true; killed; k++ {
		c := newCrash(t)
		c.n.start(nil)
		c.failMany(beta, 1200)
		c.fail(alpha, "goes")
		c.say(2)
		c.forget(alpha)
		c.n.finish()
		before := c.heardAll()
		require.NoError(t, c.js.DeleteStream(t.Context(), "SKALD_EVENTS"))
		if killed = c.play(part{Path: c.n.path, Plan: c.n.planFile(), Nth: k}).wait(); killed {
			require.ErrorIs(t, materializer.PendingRepair(filepath.Dir(c.n.path)), materializer.ErrRepairPending)
			c.play(part{Path: c.n.path, Plan: c.n.planFile()}).ends()
		}
		require.NoError(t, materializer.PendingRepair(filepath.Dir(c.n.path)))
		same(t, "EVENTS", before, c.heardAll())
		c.events() // which is another stream now
		c.goOn()
		require.Less(t, k, 30, "the repair never ends")
	}
}

// INGEST is set back, and the process is killed before and after that it goes back is
// committed, and before the first commit behind it.
func TestCrash_BetweenLeavingTheOldPlaceAndTheCommit(t *testing.T) {
	t.Parallel()
	w := newRollback(t)
	w.n.start(nil)
	w.mix(100)
	w.heard()
	w.n.stop()
	w.copyIngest()
	w.n.start(nil)
	w.mix(100)
	w.heard()
	w.n.stop()
	w.setBack(w.copies[0], true)
	for _, at := range []string{"going back", "gone back", "before commit"} {
		w.play(part{Path: w.n.path, At: at, Nth: 1}).isKilled()
	}
	// The process that went back could not tell the test: the store does.
	w.n.open()
	require.NoError(t, w.n.noteBack(t.Context()))
	w.n.m = nil
	w.n.close()
	w.n.start(nil)
	w.wentBack(bus.ReasonIngestRolledBack)
	require.Len(t, w.n.rejectsOf(bus.ReasonIngestRolledBack), 1, "it is reported once")
	require.NotContains(t, strings.Join(w.n.rejects(), "\n"), string(bus.ReasonNotInEvents))
	w.n.stop()
}
