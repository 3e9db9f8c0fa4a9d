package materializer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/registry"
	"github.com/skaldbus/skald/materializer/store"
)

func TestTrim_WaitsForRegisteredStores(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, down := w.trimmer(), w.node()
	n.start(nil)
	down.start(nil)
	w.failMany(alpha, 10)
	n.catchUp()
	down.finish() // its last position is registered as it ends
	w.failMany(beta, 10)
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.begins() == 10 })
	// Another two checkpoints do not change that.
	made := n.m.Stats().Checkpoints
	w.failMany(beta, 10)
	n.catchUp()
	require.EqualValues(t, 10, w.first(w.streams.Ingest))
	require.GreaterOrEqual(t, n.m.Stats().Checkpoints, made)
	entries := w.entries()
	require.Len(t, entries, 2)
	for _, e := range entries {
		if e.Position == 10 {
			require.Equal(t, "test", e.Label)
			w.removeEntry(e)
		}
	}
	w.trimmedTo(30)
	// It comes back all the same.
	down.start(nil)
	down.catchUp()
	require.Equal(t, n.lines(), down.lines())
	n.stop()
	down.stop()
}

func TestTrim_KeepWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.trimmer()
	n.keep = time.Hour
	n.start(nil)
	w.failMany(alpha, 100)
	n.catchUp()
	n.stop()
	require.EqualValues(t, 1, w.first(w.streams.Ingest))
	require.Empty(t, rawCheckpoints(t, w), "none is written for nothing")
}

func TestTrim_NearlyFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, down := w.trimmer(), w.node()
	n.keep = time.Hour
	n.start(nil)
	down.start(nil)
	w.failMany(alpha, 10)
	n.catchUp()
	down.finish()
	away, err := storeID(down) // the other's entry may lag, and name the same position
	require.NoError(t, err)
	w.failMany(alpha, 990)
	n.catchUp()
	info, err := w.streams.Ingest.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.State.FirstSeq)
	c := info.Config
	c.MaxBytes = int64(info.State.Bytes) * 100 / 85
	_, err = w.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	w.trimmedTo(10)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		detail := n.check("checkpoints").Detail
		return strings.Contains(detail, "INGEST is nearly full and is not trimmed beyond 10, where store "+away) &&
			strings.Contains(detail, "`skald replicas rm "+away+"`")
	})
	// Its own entry lags, too: trimmed to there, INGEST would be nearly full no longer.
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return slices.ContainsFunc(w.listed(), func(e registry.Entry) bool { return e.Position == 1000 })
	})
	for _, e := range w.entries() {
		if e.ID == away {
			w.removeEntry(e)
		}
	}
	w.trimmedTo(1000)
	n.stop()
}

func rawCheckpoints(t *testing.T, w *world) []string {
	b, err := checkpoint.Find(t.Context(), w.js, w.subj)
	if err != nil {
		require.ErrorIs(t, err, bus.ErrNotFound)
		return nil
	}
	all, err := b.Objects().List(t.Context())
	if err != nil {
		require.ErrorIs(t, err, jetstream.ErrNoObjectsFound)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

func TestKeep_SeveralStores(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := []*node{w.trimmer(), w.trimmer(), w.node()}
	for _, n := range nodes {
		n.start(nil)
	}
	for round := range 6 {
		w.mix(round)
		switch round {
		case 1: // one is lost
			nodes[1].stop()
			for _, e := range w.entries() {
				if id, _ := storeID(nodes[1]); id == e.ID {
					w.removeEntry(e)
				}
			}
			nodes[1] = w.trimmer()
		case 3:
			nodes[1].start(nil)
			nodes[2].stop()
		case 4:
			nodes[2].start(nil)
		}
	}
	for _, n := range nodes {
		n.catchUp()
	}
	w.trimmedTo(w.last(w.streams.Ingest))
	late := w.node()
	late.start(nil)
	late.catchUp()
	for _, n := range append(nodes, late) {
		n.catchUp()
		require.Equal(t, late.lines(), n.lines())
	}
	for _, n := range append(nodes, late) {
		n.stop()
	}
}

func storeID(n *node) (string, error) {
	st, err := store.Open(n.path, store.Options{})
	if err != nil {
		return "", err
	}
	defer st.Close()
	return st.Reader().ID(context.Background())
}
