package publisher_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// What the outbox could not keep was not accepted: Flush waits for what was, all the same.
func TestFlush_AfterNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := publisher.Options{Outbox: t.TempDir() + "/outbox"}
	ctx := within(t, skaldtest.Timeout)
	idle, s := w.idle(o, key("s"))
	say(t, s, []string{"kept"})
	require.Error(t, idle.Close(ctx))

	// The next process begins a file of its own with its first message.
	idle, s = w.idle(o, key("s"))
	require.NoError(t, os.Rename(o.Outbox, o.Outbox+".away"))
	_, err := s.Error(ctx, "not kept", "")
	require.ErrorIs(t, err, publisher.ErrNotKept)
	require.ErrorIs(t, s.Flush(within(t, 50*time.Millisecond)), context.DeadlineExceeded)
	require.NoError(t, os.Rename(o.Outbox+".away", o.Outbox))
	require.Error(t, idle.Close(ctx))

	p := w.publisher(o)
	require.NoError(t, p.open(key("s")).Flush(ctx))
	p.shut()
	require.Equal(t, []string{"kept"}, w.ids(key("s")))
}

// An event that the bus has from somebody else counts as stored as soon as that is known.
// What was accepted before it and is under way does not, and Flush waits for it.
func TestFlush_PassedByTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var j journal
	first, second := j.next(1, "a"), j.next(1, "b")
	other := w.publisher(publisher.Options{}).open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	r, err := other.Append(ctx, first)
	require.NoError(t, err)
	materialized(t, r)

	p := w.publisher(publisher.Options{Unplaced: true})
	leave := p.Crowd() // so that the error is on its way and gets no further
	s := p.open(key("s"))
	one, err := s.Error(ctx, "one", "")
	require.NoError(t, err)
	skaldtest.Eventually(t, skaldtest.Timeout, s.Chosen)
	mine, err := s.Append(ctx, first, second)
	require.NoError(t, err)
	r, err = other.Append(ctx, second)
	require.NoError(t, err)
	materialized(t, r)
	materialized(t, mine)
	require.ErrorIs(t, s.Flush(within(t, 50*time.Millisecond)), context.DeadlineExceeded)

	leave()
	require.NoError(t, s.Flush(ctx))
	materialized(t, one)
	p.shut()
	require.Equal(t, []string{"a", "b", "one"}, w.ids(key("s")))
}
