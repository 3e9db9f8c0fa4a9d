package materializer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
	"github.com/skaldbus/skald/publisher"
)

// crashTable is the package's crash table, each row with its tests. Where something
// crashes, a process is killed at that very point (crash_kill_test.go); where a file or a
// stream is lost or set back, it is.
var crashTable = []struct {
	row   string
	tests []func(*testing.T)
}{
	{"before INGEST acknowledged", all(TestCrash_BeforeIngestAcknowledged)},
	{"INGEST lost what it acknowledged", all(TestCrash_IngestLostWhatItAcknowledged)},
	{"before the append", all(TestCrash_BeforeTheAppend)},
	{"append sent, answer lost", all(TestCrash_AppendSentAnswerLost, TestFollow_AnswerLost)},
	{"between two batches of m", all(TestCrash_BetweenTwoBatches)},
	{"after append, before commit", all(TestCrash_AfterAppendBeforeCommit)},
	{"after commit, before the hint", all(TestCrash_AfterCommitBeforeTheHint)},
	{"between two removal steps", all(TestCrash_BetweenTwoRemovalSteps)},
	{"EVENTS set back to before a forget", all(TestCrash_EventsSetBackToBeforeAForget, TestForget_EventsSetBack)},
	{"between two steps of overwriting", all(TestCrash_BetweenTwoStepsOfOverwriting)},
	{"after the removal of EVENTS' last fact", all(TestCrash_AfterTheRemovalOfEventsLastFact, TestFollow_EndRemoved, TestFollow_EndRemovedBelowForeign)},
	{"store restored from a copy", all(TestCrash_StoreRestoredFromACopy)},
	{"store restored, and EVENTS has lost what came after", all(TestCrash_StoreRestoredEventsLost)},
	{"store lost, new, or left behind", all(TestCrash_StoreLostNewOrLeftBehind)},
	{"in the middle of a checkpoint", all(TestCrash_InTheMiddleOfACheckpoint)},
	{"checkpoint written, not trimmed", all(TestCrash_CheckpointWrittenNotTrimmed)},
	{"while rows are copied", all(TestCrash_WhileRowsAreCopied)},
	{"a checkpoint is damaged", all(TestCrash_ACheckpointIsDamaged)},
	{"EVENTS lost its end, or was made anew under its epoch", all(TestCrash_EventsLostItsEnd, TestCrash_EventsMadeAnewUnderItsEpoch)},
	{"EVENTS bounded, and the next numbers aged out", all(TestCrash_EventsBoundedAndAgedOut)},
	{"EVENTS deleted", all(TestCrash_EventsDeleted, TestCrash_EventsAndIngestGone)},
	{
		"EVENTS made anew, of another bus, or without its metadata",
		all(TestCrash_EventsMadeAnew, TestCrash_EventsOfAnotherBus, TestCrash_EventsWithoutItsMetadata),
	},
	{"EVENTS set back, and overtaken by another store", all(TestCrash_EventsSetBackAndOvertaken)},
	{"EVENTS holds what no materializer wrote", all(TestCrash_EventsHoldsWhatNoMaterializerWrote)},
	{"repair killed", all(TestCrash_RepairKilled)},
	{"INGEST recreated", all(TestCrash_IngestRecreated)},
	{"INGEST rolled back, maybe overtaken since", all(TestCrash_IngestRolledBack)},
	{"between leaving the old place in INGEST and the commit of it", all(TestCrash_BetweenLeavingTheOldPlaceAndTheCommit)},
	{"INGEST has a hole", all(TestCrash_IngestHasAHole)},
	{"INGEST trimmed above the position", all(TestCrash_IngestTrimmedAboveThePosition)},
}

func all(tests ...func(*testing.T)) []func(*testing.T) { return tests }

// The table in the package comment and the tests have the same rows, and each row a test
// that is named after it.
func TestCrash_EachRowHasATest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "// # Crash table\n")
	require.True(t, ok)
	var first, rows []string // the words of the first column
	for _, line := range strings.Split(table, "\n")[1:] {
		line, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			break
		}
		const column = 33 // where the second one begins
		first = append(first, strings.Fields(line[:min(column, len(line))])...)
	}
	head := strings.Fields("crash or loss")
	require.Equal(t, head, first[:len(head)])
	used := map[string]bool{}
	for _, r := range crashTable {
		rows = append(rows, strings.Fields(r.row)...)
		require.NotEmpty(t, r.tests, r.row)
		for i, f := range r.tests {
			name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
			name = name[strings.LastIndexByte(name, '.')+1:]
			require.False(t, used[name], "%s stands for two rows", name)
			used[name] = true
			if i == 0 {
				require.True(t, strings.HasPrefix(name, "TestCrash_"), name)
			}
		}
	}
	require.Equal(t, first[len(head):], rows)
}

// crash is a world whose materializer is a process that is killed, with a publisher that
// keeps what it says and is told what became of it.
type crash struct {
	*world
	n     *node
	s     *publisher.Session
	said  []*publisher.Receipt
	hints *nats.Subscription
	told  map[uint64]string // the outcome of a message of INGEST
}

func newCrash(t *testing.T) *crash {
	w := newWorld(t)
	c := &crash{world: w, n: w.node(), told: map[uint64]string{}}
	var err error
	c.hints, err = w.nc.SubscribeSync("skald.done.>")
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	nc, err := nats.Connect(w.server.ClientURL(), nats.MaxReconnects(-1), nats.Timeout(skaldtest.Timeout))
	require.NoError(t, err)
	p, err := publisher.New(nc, publisher.Options{Outbox: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- p.Run(context.Background()) }()
	t.Cleanup(func() {
		gone, now := context.WithCancel(context.Background())
		now()
		_ = p.Close(gone) // what the test has left unsaid does not matter any more
		<-done
		nc.Close()
	})
	c.s, err = p.Session(t.Context(), bus.Key{Workspace: "w", Session: "kept"})
	require.NoError(t, err)
	return c
}

// say has the publisher say so much more, each of which gives one fact, and waits until
// INGEST holds it.
func (c *crash) say(n int) {
	c.t.Helper()
	for range n {
		body := fmt.Appendf(nil, `{"recorded_at_ms":1,"message":"said %d"}`, len(c.said))
		r, err := c.s.Publish(c.t.Context(), publisher.Message{Class: bus.ClassError, Body: body})
		require.NoError(c.t, err)
		_, err = r[0].Stored(c.t.Context())
		require.NoError(c.t, err)
		c.said = append(c.said, r[0])
	}
}

// killed runs the materializer as a process that is killed when it comes to the point for
// the nth time, and requires that the store has kept what publishers were told by then.
func (c *crash) killed(at string, nth int) {
	c.t.Helper()
	c.killedAs(part{At: at, Nth: nth})
}

func (c *crash) killedAs(p part) {
	c.t.Helper()
	p.Path, p.Trims = c.n.path, c.n.trims
	c.play(p).isKilled()
	newest := c.hear()
	r, err := store.OpenReader(c.n.path)
	require.NoError(c.t, err)
	defer r.Close()
	pos, err := r.Position(c.t.Context())
	require.NoError(c.t, err)
	require.GreaterOrEqual(c.t, pos.IngestSeq, newest, "publishers were told of a message that the store has not kept")
}

// hear takes in what publishers were told, and returns the newest message that they were
// told of. Nobody is told two things of one message, but that it was known when it is
// read again.
func (c *crash) hear() (newest uint64) {
	c.t.Helper()
	require.NoError(c.t, c.nc.Flush())
	for {
		n, _, err := c.hints.Pending()
		require.NoError(c.t, err)
		if n == 0 {
			return newest
		}
		msg, err := c.hints.NextMsg(skaldtest.Timeout)
		require.NoError(c.t, err)
		var h struct {
			Seq     uint64 `json:"ingest_seq"`
			Outcome string
		}
		require.NoError(c.t, json.Unmarshal(msg.Data, &h))
		if before, ok := c.told[h.Seq]; ok {
			require.Equal(c.t, before, h.Outcome, "message %d", h.Seq)
		}
		c.told[h.Seq] = h.Outcome
		newest = max(newest, h.Seq)
	}
}

// goOn starts the materializer again, lets it, the publisher and what happens meanwhile
// come to the end, and compares the table, EVENTS and what the publisher was told.
func (c *crash) goOn(meanwhile ...func()) {
	c.t.Helper()
	c.n.start(nil)
	svc := service.New(service.Options{API: api.New(api.Options{Reader: c.n.st.Reader()}), Conn: c.n.nc, Subjects: c.subj, Version: "1.0.0"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	c.say(1) // nothing is broken for what comes next
	for i, r := range c.said {
		o, err := r.Materialized(c.t.Context())
		require.NoError(c.t, err)
		require.False(c.t, o.Duplicate, "message %d was sent once", i)
	}
	for _, f := range meanwhile {
		f()
	}
	c.n.catchUp()
	c.hear()
	cancel()
	require.NoError(c.t, <-done)
	c.check(c.n)
	rows := strings.Join(rawTable(c.t, c.n.path), "\n")
	for i := range c.said {
		require.Equal(c.t, 1, strings.Count(rows, fmt.Sprintf(`"said %d"`, i)), "message %d", i)
	}
	c.n.stop()
}
