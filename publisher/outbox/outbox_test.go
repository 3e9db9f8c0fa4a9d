package outbox_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/publisher/outbox"
)

// What was kept is found again as it was, of each kind, and what was released is not.
func TestBox_RoundTrip(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{})
	at := bus.ChainPosition{Ordinal: 7, Digest: bus.Digest{1, 2}}
	last := bus.ChainPosition{Ordinal: 8, Digest: bus.Digest{3}}
	state := outbox.State{Key: bus.Key{Workspace: "w é", Session: "s"}, Publisher: "p-1", Count: 3, Placed: true, End: last, Presumed: true, UsedAt: 99}
	entries := []outbox.Entry{
		{Kind: outbox.Counted, Class: bus.ClassError, AcceptedAt: 5, Count: 3, Body: []byte("counted")},
		{Kind: outbox.Named, Class: bus.ClassActivity, AcceptedAt: 6, EventID: "e-1", Body: []byte("named")},
		{Kind: outbox.Chained, Class: bus.ClassProjection, AcceptedAt: 7, After: at, Last: last, Body: []byte("chained")},
		{Kind: outbox.Observed, Class: bus.ClassProjection, AcceptedAt: 8, RecordedAt: -9, Command: []byte(`"c"`), Body: []byte("{}")},
		{Kind: outbox.Counted, Class: bus.ClassError, AcceptedAt: 5, Count: 4, Body: []byte("released")},
	}
	entries[1].Traceparent, entries[1].Tracestate = "00-trace-span-01", "vendor=x"
	entries[2].Traceparent = "00-trace-other-01"
	batch, err := b.Add(nil, state, entries)
	require.NoError(t, err)
	require.False(t, batch.Kept())
	require.NoError(t, batch.Wait())
	require.True(t, batch.Kept())
	b.Release(entries[4].Number)
	stopped := outbox.State{Key: key(2), Publisher: "q", Stopped: 2, Why: "forked"}
	batch, err = b.Add(nil, stopped, nil)
	require.NoError(t, err)
	require.NoError(t, batch.Wait())
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())

	b = open(t, dir, outbox.Options{})
	found := b.Sessions()
	require.Len(t, found, 2)
	require.Equal(t, stopped, found[0].State)
	require.Equal(t, entries[:4], found[1].Entries)
	state.Count = 4 // of the released one: counts are not given twice
	require.Equal(t, state, found[1].State)
	require.Nil(t, b.Sessions())
}

// The directory is one process's, and one box's in it.
func TestBox_Locked(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{})
	_, err := outbox.Open(dir, outbox.Options{})
	require.ErrorIs(t, err, outbox.ErrInUse)
	var held *dirlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, os.Getpid(), held.PID)
	require.NoError(t, b.Close())
	open(t, dir, outbox.Options{})
	_, err = b.Add(nil, outbox.State{Key: key(1)}, nil)
	require.ErrorIs(t, err, outbox.ErrClosed)
}

// Those who wait at the same time share a write; all of it is there afterwards.
func TestBox_ManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{SegmentBytes: 4 << 10})
	const sessions, each = 20, 50
	var wg sync.WaitGroup
	errs := make(chan error, sessions)
	for s := range sessions {
		wg.Go(func() {
			for i := range each {
				batch, err := b.Add(nil, outbox.State{Key: key(s), Publisher: "p", Count: uint64(i + 1), UsedAt: 1}, []outbox.Entry{counted(uint64(i+1), fmt.Sprint(i))})
				if err == nil {
					err = batch.Wait()
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		})
	}
	wg.Wait()
	for range sessions {
		require.NoError(t, <-errs)
	}
	require.NoError(t, b.Close())
	got := bodies(open(t, dir, outbox.Options{}))
	require.Len(t, got, sessions)
	for s := range sessions {
		for i := range each {
			require.Equal(t, fmt.Sprint(i), got[fmt.Sprint("s", s)][i])
		}
	}
}

// Segments go when all in them is released, and what keeps an old one is moved, so that
// the directory stays within a few times of what it holds.
func TestBox_Shrinks(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	const segment = 4 << 10
	b := open(t, dir, outbox.Options{SegmentBytes: segment})
	pinned := add(t, b, 1, 1, "pinned")
	body := strings.Repeat("x", 500)
	for i := range 400 {
		n := add(t, b, 2, uint64(i+1), body)
		b.Release(n)
		if i%10 == 0 {
			require.NoError(t, b.Tend())
			require.LessOrEqual(t, len(segments(t, dir)), 6)
		}
	}
	entries, _ := b.Held()
	require.Equal(t, 1, entries)
	require.NoError(t, b.Close())
	b = open(t, dir, outbox.Options{SegmentBytes: segment})
	require.Equal(t, map[string][]string{"s1": {"pinned"}}, bodies(b))
	b.Release(pinned)
	add(t, b, 1, 2, "later")
	require.NoError(t, b.Tend())
	require.Len(t, segments(t, dir), 1)
	require.NoError(t, b.Close())
	require.Equal(t, map[string][]string{"s1": {"later"}}, bodies(open(t, dir, outbox.Options{})))
}

// An entry that is added again under its number stands for the first one.
func TestBox_Replaces(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	b := open(t, dir, outbox.Options{})
	entries := []outbox.Entry{{Kind: outbox.Observed, Class: bus.ClassProjection, Body: []byte("raw")}}
	batch, err := b.Add(nil, outbox.State{Key: key(1), Publisher: "p"}, entries)
	require.NoError(t, err)
	require.NoError(t, batch.Wait())
	last := bus.ChainPosition{Ordinal: 1, Digest: bus.Digest{1}}
	entries[0] = outbox.Entry{Number: entries[0].Number, Kind: outbox.Chained, Class: bus.ClassProjection, Last: last, Body: []byte("event")}
	batch, err = b.Add(batch, outbox.State{Key: key(1), Publisher: "p", Placed: true, End: last}, entries)
	require.NoError(t, err)
	require.NoError(t, batch.Wait())
	held, _ := b.Held()
	require.Equal(t, 1, held)
	require.NoError(t, b.Close())
	b = open(t, dir, outbox.Options{})
	found := b.Sessions()
	require.Equal(t, entries, found[0].Entries)
	require.Equal(t, last, found[0].End)
	b.Release(entries[0].Number)
	require.NoError(t, b.Close())
	require.Empty(t, bodies(open(t, dir, outbox.Options{})))
}

// What builds on entries that were not kept is refused.
func TestBox_Stale(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), outbox.Options{})
	batch, err := b.Add(nil, outbox.State{Key: key(1)}, []outbox.Entry{counted(1, "x")})
	require.NoError(t, err)
	require.NoError(t, b.Close()) // writes nothing that nobody has waited for
	require.Error(t, errors.Join(batch.Wait()))
	require.True(t, batch.Failed())
}
