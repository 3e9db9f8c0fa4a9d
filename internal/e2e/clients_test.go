//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

// Publishers and consumers of the libraries, many of each, come through whatever
// happens to the server: kills, cut and silent connections, a full INGEST, consumers
// deleted under their readers, handlers that are slow and handlers that fail. What a
// publisher was told is in the table once and in order, and each consumer has exactly
// the table's list of its filter.
func TestClients_Random(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if os.Getenv("SKALD_TEST_LONG") != "" {
		lasts = 3 * time.Minute
	}
	w := newClients(t, seed(t))
	defer w.end()

	// Sessions of one publisher, and one that two workers write into side by side.
	for i := range 3 {
		p := w.publisher()
		for j := range 3 {
			w.publish(p, bus.Key{Workspace: fmt.Sprint("w", j%2), Session: fmt.Sprint("s ", i, j)})
		}
		w.publish(p, bus.Key{Workspace: "w0", Session: "shared"})
	}
	for _, o := range []consumer.Options{
		{},
		{Workspace: "w0"},
		{Workspace: "w0", Session: "shared"},
		{Types: []string{"error", "turn_ended"}},
		{Durable: "all"},
		{Durable: "one workspace", Workspace: "w1"},
		{Durable: "some types", Workspace: "w0", Types: []string{"activity_changed", "turn_started"}},
	} {
		w.consume(o, consuming{})
	}
	w.consume(consumer.Options{Durable: "slow"}, consuming{slow: true})
	w.consume(consumer.Options{Durable: "fails now and then"}, consuming{fails: true})
	w.consume(consumer.Options{Workspace: "w1"}, consuming{fails: true})

	faults := map[string]int{}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		name := w.hurt()
		faults[name]++
		w.note("%s", name)
		w.within(time.Duration(w.rng.IntN(700)) * time.Millisecond)
	}
	w.finish()
	rows := w.s.same(t, "w0")
	rows = append(rows, w.s.same(t, "w1")...)
	w.check(rows)
	t.Logf("%d facts; faults: %v", len(rows), faults)
}

// hurt does one bad thing to the server, and mends what has to be mended.
func (w *clients) hurt() string {
	w.t.Helper()
	switch w.rng.IntN(6) {
	case 0:
		kill(w.s.process)
		w.within(time.Duration(w.rng.IntN(500)) * time.Millisecond)
		w.start()
		return "kill"
	case 1:
		w.some().Cut()
		return "cut"
	case 2:
		p := w.some()
		p.Hold(true)
		w.within(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		p.Hold(false)
		return "silence"
	case 3:
		p := w.some()
		p.Refuse(true)
		w.within(time.Duration(w.rng.IntN(1000)) * time.Millisecond)
		p.Refuse(false)
		return "refuse"
	case 4:
		return w.deleteConsumers()
	}
	return w.fill()
}

// deleteConsumers deletes every consumer of both streams.
func (w *clients) deleteConsumers() string {
	w.t.Helper()
	js := w.s.js(w.t)
	for _, stream := range []string{"SKALD_INGEST", "SKALD_EVENTS"} {
		st, err := js.Stream(w.t.Context(), stream)
		require.NoError(w.t, err)
		names := st.ConsumerNames(w.t.Context())
		for name := range names.Name() {
			if err := st.DeleteConsumer(w.t.Context(), name); err != nil {
				require.ErrorIs(w.t, err, jetstream.ErrConsumerNotFound)
			}
		}
		require.NoError(w.t, names.Err())
	}
	return "delete consumers"
}

// fill makes INGEST full for a moment: publishers are refused, and hold what they have.
func (w *clients) fill() string {
	w.t.Helper()
	js := w.s.js(w.t)
	st, err := js.Stream(w.t.Context(), "SKALD_INGEST")
	require.NoError(w.t, err)
	config := st.CachedInfo().Config
	full := config
	full.MaxBytes = int64(st.CachedInfo().State.Bytes) + 1000
	_, err = js.UpdateStream(w.t.Context(), full)
	require.NoError(w.t, err)
	w.within(time.Duration(w.rng.IntN(1000)) * time.Millisecond)
	_, err = js.UpdateStream(w.t.Context(), config)
	require.NoError(w.t, err)
	return "fill"
}

// check compares what everyone was told and given with the table.
func (w *clients) check(rows []string) {
	w.t.Helper()
	at := map[string]int{} // the place of a message's last fact in the table
	for i, r := range rows {
		for _, text := range between(r, "<<", ">>") {
			at[r[strings.Index(r, `"type"`):][:20]+text]++
			at[text] = i
		}
	}
	for _, s := range w.said {
		s.mu.Lock()
		require.NoError(w.t, s.err, s.name)
		require.NotEmpty(w.t, s.applied, s.name)
		before := -1
		for _, text := range s.applied {
			i, ok := at[text]
			require.True(w.t, ok, "%s was told that %s is applied", s.name, text)
			require.Greater(w.t, i, before, "%s: %s came before what was said before it", s.name, text)
			before = i
		}
		s.mu.Unlock()
	}
	for what, n := range at {
		if strings.HasPrefix(what, `"type"`) {
			require.Equal(w.t, 1, n, what)
		}
	}
	for _, c := range w.read {
		c.mu.Lock()
		want := slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return !c.wants(r) })
		slices.SortFunc(want, func(a, b string) int { return int(seqOf(a)) - int(seqOf(b)) })
		for i := range max(len(want), len(c.rows)) {
			require.Less(w.t, i, len(want), "%+v was given more than the table has: %s", c.o, c.rows[min(i, len(c.rows)-1)])
			require.Less(w.t, i, len(c.rows), "%+v was not given %s", c.o, want[i])
			require.Equal(w.t, want[i], c.rows[i], "%+v, place %d", c.o, i)
		}
		c.mu.Unlock()
	}
}

// between returns what stands between each pair of marks.
func between(s, left, right string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(s, left)
		if !ok {
			return out
		}
		one, rest, ok := strings.Cut(rest, right)
		if !ok {
			return out
		}
		out, s = append(out, one), rest
	}
}

// within waits, since how long a fault lasts is part of it.
func (w *clients) within(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}

// some returns one of the proxies.
func (w *clients) some() *proxied { return w.links[w.rng.IntN(len(w.links))] }

// rngOf is a source of chance for one goroutine.
func (w *clients) rngOf() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), 0)) }
