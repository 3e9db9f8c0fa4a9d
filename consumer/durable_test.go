package consumer_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Two processes read one durable: the second is refused within 3 s and told who
// has it, and the first goes on undisturbed. When that has stopped, the name is
// free at once.
func TestRun_InUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	first := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	first.reach(5)
	_, js := w.connect()
	for range 2 {
		skaldtest.InTime(t, 3*time.Second, func() {
			second := w.read(js, consumer.Options{Durable: "d"}, nil)
			err := second.wait()
			require.ErrorIs(t, err, consumer.ErrInUse)
			require.ErrorContains(t, err, "process "+strconv.Itoa(os.Getpid()))
			require.Zero(t, second.c.Stats().Interrupted, "it was not tried again")
			require.Empty(t, second.seqs())
		})
	}
	w.fail(keyA, 5)
	first.reach(10)
	first.finish()
	require.Equal(t, span(1, 10), first.seqs())
	require.Zero(t, first.c.Stats().Interrupted)

	last := uint64(10)
	skaldtest.InTime(t, 3*time.Second, func() { // a lease that has to lapse takes 5 s
		last++
		next := w.read(js, consumer.Options{Durable: "d"}, nil)
		w.fail(keyA, 1)
		next.reach(last)
		next.finish()
		require.Equal(t, []uint64{last}, next.seqs())
	})
}

// Of many processes that start at the same moment one reads, the others are refused.
func TestRun_InUseAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 5)
	var readers []*reader
	for range 6 {
		_, js := w.connect()
		readers = append(readers, w.read(js, consumer.Options{Durable: "d"}, nil))
	}
	refused := func() int {
		n := 0
		for _, r := range readers {
			if r.ended() != nil {
				n++
			}
		}
		return n
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return refused() == len(readers)-1 })
	for _, r := range readers {
		if err := r.ended(); err != nil {
			require.ErrorIs(t, err, consumer.ErrInUse)
			require.Empty(t, r.seqs())
			continue
		}
		r.reach(5)
		r.finish()
		require.Equal(t, span(1, 5), r.seqs())
	}
}

// A reader whose machine vanishes keeps its durable until the lease has lapsed;
// then another takes over behind the last acknowledged event. When the first comes
// back, it is told and stops, and handles nothing of what it still had in hand.
func TestRun_TakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 100)
	w.catchUp()
	p, _, vanishing := w.proxied()
	entered, leave := make(chan struct{}), make(chan struct{})
	var late atomic.Int64
	first := w.read(vanishing, consumer.Options{Durable: "d"}, func(_ context.Context, ev bus.Event) error {
		switch {
		case ev.Seq == 50:
			close(entered)
			select {
			case <-leave:
			case <-t.Context().Done():
			}
		case ev.Seq > 50:
			late.Add(1)
		}
		return nil
	})
	<-entered
	w.saved("d", 49)
	p.Hold(true)
	began := time.Now()
	second := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	second.reach(100)
	require.Greater(t, time.Since(began), 3*time.Second, "not before the lease has lapsed")
	require.Equal(t, span(50, 100), second.seqs())

	close(leave)
	p.Hold(false)
	require.ErrorIs(t, first.wait(), consumer.ErrInUse)
	require.Zero(t, late.Load())
	require.Equal(t, span(1, 50), first.seqs())
	w.fail(keyA, 1)
	second.reach(101)
	second.finish()
	require.Equal(t, span(50, 101), second.seqs())
}

// A process that is killed leaves its durable where it had acknowledged; the next
// one goes on there, after the lease has lapsed.
func TestRun_Kill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 200)
	w.catchUp()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"=d", envServer+"="+w.server.ClientURL())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var last uint64
	for last < 200 && lines.Scan() {
		seq, err := strconv.ParseUint(lines.Text(), 10, 64)
		require.NoError(t, err)
		require.Equal(t, last+1, seq)
		last = seq
	}
	require.EqualValues(t, 200, last)
	w.saved("d", 200)
	w.fail(keyA, 100)
	for last < 220 && lines.Scan() {
		last++
	}
	require.NoError(t, cmd.Process.Kill())
	for lines.Scan() { // what it had written by then
		last++
	}
	require.Error(t, cmd.Wait())

	r := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(w.catchUp())
	r.finish()
	got := r.seqs()
	if len(got) == 0 {
		require.EqualValues(t, 300, last)
		return
	}
	require.LessOrEqual(t, got[0], last+1, "nothing is left out")
	require.Greater(t, got[0], uint64(200), "what was saved does not come again")
	require.Equal(t, span(got[0], 300), got)
}

// The server restarts: a reader goes on behind the last event, without a gap or a
// repeat, and the durable stays its own.
func TestRun_ServerRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 20)
	w.catchUp()
	readers := []*reader{
		w.read(w.js, consumer.Options{}, nil),
		w.read(w.js, consumer.Options{Durable: "d"}, nil),
		w.read(w.js, consumer.Options{Durable: "newest", Newest: true}, nil),
		w.read(w.js, consumer.Options{Workspace: "v"}, nil),
	}
	for _, r := range readers {
		r.begin()
	}
	readers[0].reach(20)
	readers[1].reach(20)
	for round := range uint64(2) {
		w.restart()
		w.fail(keyA, 5)
		w.fail(keyC, 5)
		w.catchUp()
		for _, r := range readers {
			r.reach(30 + 10*round)
		}
	}
	for i, r := range readers {
		r.finish()
		want := [][]uint64{span(1, 40), span(1, 40), span(21, 40), append(span(26, 30), span(36, 40)...)}[i]
		require.Equal(t, want, r.seqs(), i)
	}
}

// Whoever held the lease when the server went down holds it when that is back: a
// process that starts meanwhile is refused.
func TestRun_ServerRestartKeepsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	_, js := w.connect()
	first := w.read(js, consumer.Options{Durable: "d"}, nil)
	first.reach(3)
	w.restart()
	_, other := w.connect()
	second := w.read(other, consumer.Options{Durable: "d"}, nil)
	require.ErrorIs(t, second.wait(), consumer.ErrInUse)
	w.fail(keyA, 3)
	first.reach(6)
	first.finish()
	require.Equal(t, span(1, 6), first.seqs())
}

// While a durable's process is away, events behind its position are forgotten: the
// others are not skipped.
func TestRun_ForgetWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 20)
	w.fail(keyB, 10)
	w.fail(keyA, 10)
	w.catchUp()
	errEnough := errors.New("enough")
	r := w.read(w.js, consumer.Options{Durable: "d"}, func(_ context.Context, ev bus.Event) error {
		if ev.Seq == 6 {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, r.wait(), errEnough)
	w.forget(keyB)
	w.catchUp()
	r = w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(40)
	r.finish()
	require.Equal(t, append(span(6, 20), span(31, 40)...), r.seqs())
}

// A durable that is deleted while its reader is idle is there again by itself, so
// that the position is not lost with the process.
func TestRun_IdleDurableDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	r := w.read(w.js, consumer.Options{Durable: "d"}, nil)
	r.reach(3)
	w.saved("d", 3)
	require.NoError(t, w.js.DeleteConsumer(t.Context(), w.subj.EventsStream(), "d"))
	w.saved("d", 3)
	w.fail(keyA, 1)
	r.reach(4)
	r.finish()
	require.Equal(t, span(1, 4), r.seqs())
}

// Someone deletes all consumers under running readers: each goes on where it was.
func TestRun_ConsumerDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 20)
	readers := []*reader{
		w.read(w.js, consumer.Options{}, nil),
		w.read(w.js, consumer.Options{Durable: "d"}, nil),
		w.read(w.js, consumer.Options{Durable: "n", Newest: true, Workspace: "v"}, nil),
	}
	for _, r := range readers {
		r.begin()
	}
	for range 3 {
		end := w.catchUp()
		readers[0].reach(end)
		readers[1].reach(end)
		w.deleteConsumers(func(string) bool { return true })
		w.fail(keyA, 5)
		w.fail(keyC, 1)
	}
	end := w.catchUp()
	for i, r := range readers {
		r.reach(end)
		r.finish()
		require.NotZero(t, r.c.Stats().Interrupted, i)
	}
	require.Equal(t, span(1, 38), readers[0].seqs())
	require.Equal(t, span(1, 38), readers[1].seqs())
	require.Equal(t, []uint64{26, 32, 38}, readers[2].seqs())
}

// A name that was used for other events is not silently used for these.
func TestRun_DurableDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	r := w.read(w.js, consumer.Options{Durable: "d", Workspace: "w"}, nil)
	r.reach(3)
	r.finish()
	for _, o := range []consumer.Options{{}, {Workspace: "v"}, {Workspace: "w", Types: []string{"error"}}, {From: from(1)}} {
		o.Durable = "d"
		err := w.read(w.js, o, nil).wait()
		require.ErrorIs(t, err, consumer.ErrDurableDiffers)
		require.ErrorContains(t, err, "skald.ev.w.*.*")
	}
	_, err := w.js.CreateConsumer(t.Context(), w.subj.EventsStream(), jetstream.ConsumerConfig{Durable: "other", FilterSubject: w.subj.EventsFilter()})
	require.NoError(t, err)
	require.ErrorIs(t, w.read(w.js, consumer.Options{Durable: "other"}, nil).wait(), consumer.ErrDurableDiffers)
}

// Durables whose names are odd, long, or end alike have each their own position.
func TestRun_DurableNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail(keyA, 3)
	long := strings.Repeat("ü", 128)
	names := []string{"a.b", "a b", "a*", ">", "x", "x=lease", long, long[:254] + "aa", strings.Repeat("a", 256), strings.Repeat("a", 255)}
	seen := map[string]bool{}
	var readers []*reader
	for _, name := range names {
		readers = append(readers, w.read(w.js, consumer.Options{Durable: name}, nil))
		got := consumer.DurableName(name)
		require.False(t, seen[got], name)
		require.LessOrEqual(t, len(got+"=lease"), 255)
		require.NotContains(t, got, ".")
		seen[got] = true
	}
	for _, r := range readers {
		r.reach(3)
		r.finish()
		require.Equal(t, span(1, 3), r.seqs())
	}
	require.Len(t, w.consumers(), len(names))
	require.Equal(t, "a=2Eb", consumer.DurableName("a.b"))
}
