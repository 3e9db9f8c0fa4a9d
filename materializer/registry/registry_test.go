package registry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/registry"
)

// Entries are written in the place of what their writer has seen, listed, and removed.
func TestRegistry(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := skaldtest.Subjects(t)
	ctx := t.Context()
	_, err := registry.Find(ctx, js, s)
	require.ErrorIs(t, err, bus.ErrNotFound)
	r, err := registry.Open(ctx, js, s, 1)
	require.NoError(t, err)
	list, err := r.List(ctx)
	require.NoError(t, err)
	require.Empty(t, list)

	b := registry.Entry{ID: "b", Label: "host", Run: "1", Epoch: "e", IngestID: "i", Contract: 1, Position: 7, Number: 5}
	b.Revision, err = r.Put(ctx, b, 0)
	require.NoError(t, err)
	_, err = r.Put(ctx, registry.Entry{ID: "a"}, 0)
	require.NoError(t, err)
	other, err := registry.Open(ctx, js, s, 1)
	require.NoError(t, err)
	got, err := other.Get(ctx, "b")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), got.Seen, time.Minute)
	b.Seen = got.Seen
	require.Equal(t, b, got)
	list, err = other.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"a", "b"}, []string{list[0].ID, list[1].ID})

	_, err = other.Put(ctx, b, 0)
	require.ErrorIs(t, err, registry.ErrChanged)
	b.Number = 6
	next, err := other.Put(ctx, b, b.Revision)
	require.NoError(t, err)
	_, err = r.Put(ctx, b, b.Revision)
	require.ErrorIs(t, err, registry.ErrChanged)
	require.ErrorIs(t, r.Remove(ctx, b), registry.ErrChanged)
	b.Revision = next
	require.NoError(t, r.Remove(ctx, b))
	_, err = r.Get(ctx, "b")
	require.ErrorIs(t, err, bus.ErrNotFound)
	_, err = r.Get(ctx, "no key at all")
	require.ErrorIs(t, err, bus.ErrNotFound)
	list, err = r.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = r.Put(ctx, b, 0)
	require.NoError(t, err, "one that was removed registers anew")
}
