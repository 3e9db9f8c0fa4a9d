package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
	"github.com/skaldbus/skald/publisher/outbox"
)

// freeURL is an address at which nobody listens yet.
func freeURL(t *testing.T, w *world) string {
	t.Helper()
	return "nats://" + w.o.Listen
}

// away is a world whose server does not run.
func away(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.stopNode()
	w.nc.Close()
	w.stopServer()
	return w
}

// back starts the server and the materializer.
func (w *world) back() {
	w.t.Helper()
	w.startServer()
	w.startNode()
}

// say publishes the texts alternately as errors and observations.
func say(t testing.TB, s *publisher.Session, texts []string) (out []*publisher.Receipt) {
	t.Helper()
	ctx := within(t, skaldtest.Timeout)
	for i, text := range texts {
		var r *publisher.Receipt
		var err error
		if i%2 == 0 {
			r, err = s.Error(ctx, text, "")
		} else {
			r, err = s.Observe(ctx, ended(text), publisher.ObserveOptions{})
		}
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// crash has the publisher end as if its process was killed, and returns a copy of what is
// on the disk at that moment.
func (p *pub) crash(dir string) string {
	p.t.Helper()
	to := copyOf(p.t, dir)
	p.nc.Close()
	<-p.done
	return to
}

// copyOf copies the outbox as it is now, anew if a file goes meanwhile that is not
// needed any more.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	for {
		to := filepath.Join(t.TempDir(), "outbox")
		err := os.CopyFS(to, os.DirFS(dir))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		return to
	}
}

// A worker publishes before its first connection was ever there, and in new sessions;
// it dies; another one finds all of it, goes on with the same counts and the same chain,
// and once the server is there everything is in the table once, in order.
func TestOutbox_BeforeTheFirstConnection(t *testing.T) {
	t.Parallel()
	w := away(t)
	dir := t.TempDir()
	o := publisher.Options{Outbox: dir}
	p := w.publisherAt(freeURL(t, w), o, nats.RetryOnFailedConnect(true))
	s := p.open(key("s"))
	all := names("m", 20)
	receipts := say(t, s, all[:10])
	require.Zero(t, receipts[1].Ordinal())
	require.Zero(t, s.Position())
	skaldtest.EventuallyWith(t, skaldtest.Timeout, func(c *assert.CollectT) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := receipts[0].Stored(ctx)
		require.ErrorIs(c, err, context.DeadlineExceeded)
		require.ErrorIs(c, err, publisher.ErrDisconnected)
	})

	o.Outbox = p.crash(dir)
	next := w.publisherAt(freeURL(t, w), o, nats.RetryOnFailedConnect(true))
	s = next.open(key("s"))
	receipts = say(t, s, all[10:])
	w.back()
	materialized(t, receipts[9])
	materialized(t, receipts[8])
	require.Equal(t, uint64(10), receipts[9].Ordinal())
	next.shut()
	require.Equal(t, all, w.ids(key("s")))

	// Nothing is left, and the session goes on where it was.
	last := w.publisherAt(freeURL(t, w), o)
	r := observe(t, last.open(key("s")), "later")
	require.Equal(t, uint64(11), r.Ordinal())
	materialized(t, r)
	last.shut()
	require.Equal(t, append(all, "later"), w.ids(key("s")))
	status, err := w.node.st.Reader().Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Rejects)
}

// What an earlier process has left is sent although nobody opens its session.
func TestOutbox_ResumesByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	o := publisher.Options{Outbox: dir}
	nc := w.connect(w.server.ClientURL())
	idle, err := publisher.New(nc, o) // nobody runs it
	require.NoError(t, err)
	for i := range 5 {
		s, err := idle.Session(t.Context(), key(fmt.Sprint("s", i)))
		require.NoError(t, err)
		say(t, s, names("m", 6))
	}
	_, err = publisher.New(nc, o)
	require.ErrorIs(t, err, outbox.ErrInUse)
	var unconfirmed *publisher.UnconfirmedError
	require.ErrorAs(t, idle.Close(t.Context()), &unconfirmed)
	require.Len(t, unconfirmed.Sessions, 5)
	require.True(t, unconfirmed.Sessions[0].Kept)
	require.ErrorContains(t, unconfirmed, "30 messages are not confirmed")
	require.ErrorContains(t, unconfirmed, "kept in the outbox")

	p := w.publisher(o)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(w.ids(key("s4"))) == 6 })
	s := p.open(key("s0")) // the one that runs already
	materialized(t, observe(t, s, "more"))
	_, err = p.Session(t.Context(), key("s0"))
	require.ErrorIs(t, err, publisher.ErrOpen)
	p.shut()
	require.Equal(t, append(names("m", 6), "more"), w.ids(key("s0")))
	for i := 1; i < 5; i++ {
		require.Equal(t, names("m", 6), w.ids(key(fmt.Sprint("s", i))))
	}
}

// A process that dies at any moment between accepting and hearing, again and again,
// leaves all in the table once, in order.
func TestOutbox_Crashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := publisher.Options{Outbox: t.TempDir()}
	all := names("m", 60)
	for at := 0; at < len(all); at += 6 {
		p := w.publisher(o)
		receipts := say(t, p.open(key("s")), all[at:at+6])
		if at%12 == 0 {
			materialized(t, receipts[at/12%6])
		}
		o.Outbox = p.crash(o.Outbox)
	}
	p := w.publisher(o)
	require.NoError(t, p.open(key("s")).Flush(within(t, skaldtest.Timeout)))
	p.shut()
	require.Equal(t, all, w.ids(key("s")))
	require.Zero(t, w.settle().Rejects)
}

// A session that is closed with messages in it can be opened again in the same process.
func TestOutbox_CloseAndOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stopNode()
	p := w.publisher(publisher.Options{Outbox: t.TempDir()})
	s := p.open(key("s"))
	say(t, s, names("m", 4))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Close(ctx), "4 messages are not confirmed")
	s = p.open(key("s"))
	w.startNode()
	r := say(t, s, []string{"m4"})[0]
	materialized(t, r)
	p.shut()
	require.Equal(t, names("m", 5), w.ids(key("s")))
}

// What a session was closed with is still not confirmed when the publisher is closed: whoever
// looks only at that learns of it, and the next process sends it.
func TestOutbox_CloseListsClosedSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stopNode()
	o := publisher.Options{Outbox: t.TempDir()}
	p := w.publisher(o)
	s := p.open(key("s"))
	say(t, s, names("m", 4))
	require.Error(t, s.Close(within(t, 50*time.Millisecond)))
	require.NoError(t, p.open(key("t")).Close(within(t, skaldtest.Timeout))) // it has nothing to list
	for _, err := range []error{p.Close(within(t, skaldtest.Timeout)), <-p.done} {
		var unconfirmed *publisher.UnconfirmedError
		require.ErrorAs(t, err, &unconfirmed)
		require.Len(t, unconfirmed.Sessions, 1)
		u := unconfirmed.Sessions[0]
		require.Equal(t, key("s"), u.Key)
		require.Equal(t, 4, u.Messages)
		require.Error(t, u.Err)
		require.True(t, u.Kept)
	}

	w.startNode()
	next := w.publisher(o)
	<-next.Started()
	next.shut()
	require.Equal(t, names("m", 4), w.ids(key("s")))
}

// Two workers with copies of one outbox: the second learns it, by the count or by the
// chain, keeps what it had, and does not go on by itself when it is started again.
func TestOutbox_TwoWorkers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		publish func(s *publisher.Session, text string) (*publisher.Receipt, error)
		is      error
	}{
		"count": {func(s *publisher.Session, text string) (*publisher.Receipt, error) {
			return s.Error(context.Background(), text, "")
		}, publisher.ErrConflict},
		"chain": {func(s *publisher.Session, text string) (*publisher.Receipt, error) {
			return s.Observe(context.Background(), ended(text), publisher.ObserveOptions{})
		}, publisher.ErrForked},
	} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s deaf=%v", name, deaf), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				o := publisher.Options{Outbox: t.TempDir()}
				p := w.publisher(o)
				s := p.open(key("s"))
				materialized(t, say(t, s, []string{"a", "b"})[1])
				p.shut()
				copied := publisher.Options{Outbox: copyOf(t, o.Outbox)}

				first := w.publisher(o)
				r, err := c.publish(first.open(key("s")), "first")
				require.NoError(t, err)
				materialized(t, r)

				// The second does not hear hints when it is deaf, and asks.
				second := w.publisher(copied)
				other := second.open(key("s"))
				if deaf {
					other.Deafen()
				}
				r, err = c.publish(other, "second")
				require.NoError(t, err)
				_, err = r.Materialized(within(t, skaldtest.Timeout))
				require.ErrorIs(t, err, c.is)
				require.ErrorIs(t, other.Err(), publisher.ErrForked)
				_, err = c.publish(other, "third")
				require.ErrorIs(t, err, c.is)
				err = second.Close(within(t, skaldtest.Timeout))
				var unconfirmed *publisher.UnconfirmedError
				require.ErrorAs(t, err, &unconfirmed)
				require.Equal(t, 1, unconfirmed.Sessions[0].Messages)

				again := w.publisher(copied)
				_, err = again.Session(t.Context(), key("s"))
				require.ErrorIs(t, err, c.is)
				require.ErrorContains(t, err, "1 messages in the outbox "+copied.Outbox)
				require.NotContains(t, w.ids(key("s")), "second")
			})
		}
	}
}

// While INGEST is full everything is kept, callers block at the bound and say why, and
// with room all goes on by itself.
func TestOutbox_FullIngest(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute})
	w.create(bus.StreamOptions{IngestBytes: 64 << 10})
	w.startNode()
	p := w.publisher(publisher.Options{Outbox: t.TempDir(), MaxPendingMessages: 30})
	s := p.open(key("s"))
	var err error
	var said []string // large, since each costs a sync of the disk
	for end := time.Now().Add(skaldtest.Timeout); !errors.Is(err, publisher.ErrFull) && time.Now().Before(end); {
		text := fmt.Sprint("m", len(said), strings.Repeat(" large", 400))
		if _, err = s.Error(within(t, 500*time.Millisecond), text, ""); err == nil {
			said = append(said, text)
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.ErrorIs(t, err, publisher.ErrFull)
	cfg := w.streams.Ingest.CachedInfo().Config
	cfg.MaxBytes = 64 << 20
	_, err = w.js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	p.shut()
	require.Equal(t, said, w.ids(key("s")))
}
