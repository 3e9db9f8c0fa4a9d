//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Followers of every kind come and go at random cursors while events are written,
// serve is killed and started again, connections are cut, and consumers are deleted.
// Each is given what the table lists behind its cursor, byte for byte and in order:
// those that stay all of it, those that were ended before a beginning of it.
func TestFollowers_Random(t *testing.T) {
	t.Parallel()
	w := &followers{t: t, rng: rand.New(rand.NewPCG(seed(t), 7)), dir: t.TempDir()}
	w.s = serve(t, w.dir, "--listen", skaldtest.FreeAddress(t), "--http", skaldtest.FreeAddress(t))
	w.nats, w.http = skaldtest.NewProxy(t, strings.TrimPrefix(w.s.nats, "nats://")), skaldtest.NewProxy(t, strings.TrimPrefix(w.s.http, "http://"))
	steps := 45
	if os.Getenv("SKALD_TEST_LONG") != "" {
		steps = 600
	}
	w.write()
	for range steps {
		switch n := w.rng.IntN(20); {
		case n < 8:
			w.write()
		case n < 13:
			w.open()
		case n < 15:
			w.close()
		case n < 18:
			[]*skaldtest.Proxy{w.nats, w.http}[w.rng.IntN(2)].Cut()
		case n < 19:
			w.restart()
		default:
			w.deleteConsumers()
		}
	}
	w.s.settle(t)
	for _, f := range w.stay {
		f.reach(len(w.table(f)))
		f.end()
		require.Equal(t, w.table(f), f.seen(), f.name)
	}
	for _, f := range w.ended {
		got, want := f.seen(), w.table(f)
		require.LessOrEqual(t, len(got), len(want), f.name)
		require.Equal(t, want[:len(got)], got, f.name)
	}
	t.Logf("%d followers stayed, %d were ended before", len(w.stay), len(w.ended))
	require.NotEmpty(t, w.stay)
}

// followers is a bus and those who follow it.
type followers struct {
	t          *testing.T
	rng        *rand.Rand
	dir        string
	s          *server
	nats, http *skaldtest.Proxy
	n          int
	stay       []*follower
	ended      []*follower
}

// follower is a feed and what it was asked for.
type follower struct {
	*feed
	q    url.Values
	from uint64
}

func (w *followers) write() {
	w.t.Helper()
	worker := w.s.worker(w.t)
	for range 1 + w.rng.IntN(40) {
		w.n++
		k := bus.Key{Workspace: []string{"w", "ä.*"}[w.rng.IntN(2)], Session: []string{"a", "b", ">"}[w.rng.IntN(3)]}
		body, class := failed(fmt.Sprint(w.n)+strings.Repeat("x", w.rng.IntN(2000))), "error"
		if w.rng.IntN(4) == 0 {
			body, class = fmt.Sprintf(`{"activity":{"n":%d}}`, w.n), "activity"
		}
		worker.put(ingestSubject(k.Workspace, k.Session, class), nats.Header{"Skald-Event-Id": {fmt.Sprint(w.n)}}, body)
	}
}

// table lists what the follower is to be given.
func (w *followers) table(f *follower) []string {
	w.t.Helper()
	return behindSeq(w.s.doors()[0].walk(w.t, f.q, 1000), f.from)
}

func (w *followers) open() {
	w.t.Helper()
	if len(w.stay) >= 10 {
		return
	}
	w.s.settle(w.t)
	f := &follower{q: url.Values{}}
	var flags []string
	request, o := map[string]string{}, consumer.FollowOptions{}
	subject := "skald.op.events"
	if w.rng.IntN(2) == 0 {
		f.q.Set("workspace_id", "ä.*")
		flags = append(flags, "--workspace", "ä.*")
		o.Workspace, subject = "ä.*", "skald.api."+bus.Escape("ä.*")+".events"
		if w.rng.IntN(2) == 0 {
			f.q.Set("session_id", ">")
			flags = append(flags, "--session", ">")
			o.Session, request["session_id"] = ">", ">"
		}
	}
	if w.rng.IntN(3) == 0 {
		f.q.Set("type", bus.TypeActivityChanged)
		flags = append(flags, "--type", bus.TypeActivityChanged)
		o.Types, request["type"] = []string{bus.TypeActivityChanged}, bus.TypeActivityChanged
	}
	all := w.table(f)
	if len(all) == 0 {
		return
	}
	// Behind any number before the last line, so that the first one shows that it runs.
	f.from = w.rng.Uint64N(lineSeq(all[len(all)-1]))
	cursor := bus.Cursor{Seq: f.from}
	flags = append(flags, "--after-seq", cursor.String())
	o.From, request["after_seq"] = &cursor, cursor.String()
	nc, web := "nats://"+w.nats.Addr(), "http://"+w.http.Addr()
	switch w.rng.IntN(7) {
	case 0:
		f.feed = commandFeed(w.t, append(flags, "events", "--follow", "--data", w.dir)...)
	case 1:
		f.feed = commandFeed(w.t, append(flags, "events", "--follow", "--url", web)...)
	case 2:
		f.feed = commandFeed(w.t, append(flags, "events", "--follow", "--server", nc)...)
	case 3:
		f.feed = commandFeed(w.t, append(flags, "tail", "--server", nc)...)
	case 4:
		f.feed = pageFeed(w.t, nc, subject, request, 0)
	case 5:
		f.feed = goFeed(w.t, nc, o)
	case 6:
		q := maps.Clone(f.q)
		q.Del("limit") // both are of the pages that it is compared with
		q.Del("after_seq")
		f.feed = sseFeed(w.t, web, q, cursor.String())
	}
	f.reach(1)
	w.stay = append(w.stay, f)
}

// close ends one in order, or at once.
func (w *followers) close() {
	w.t.Helper()
	if len(w.stay) == 0 {
		return
	}
	i := w.rng.IntN(len(w.stay))
	f := w.stay[i]
	w.stay = append(w.stay[:i], w.stay[i+1:]...)
	w.ended = append(w.ended, f)
	if w.rng.IntN(2) == 0 {
		f.end()
	} else {
		f.kill()
		<-f.done
	}
}

// restart ends serve, in order or not, and starts it again.
func (w *followers) restart() {
	w.t.Helper()
	how := []os.Signal{syscall.SIGKILL, syscall.SIGTERM}[w.rng.IntN(2)]
	w.s.signal(w.t, how)
	<-w.s.exited
	w.s = w.s.revive(w.t)
}

func (w *followers) deleteConsumers() {
	w.t.Helper()
	for _, name := range w.s.consumers(w.t) {
		_ = w.s.js(w.t).DeleteConsumer(w.t.Context(), "SKALD_EVENTS", name) // it may be gone by now
	}
}

// consumers lists those of EVENTS.
func (s *server) consumers(t *testing.T) []string {
	t.Helper()
	var out []string
	skaldtest.Eventually(t, patience, func() bool {
		stream, err := s.js(t).Stream(t.Context(), "SKALD_EVENTS")
		if err != nil {
			return false
		}
		out = nil
		names := stream.ConsumerNames(t.Context())
		for name := range names.Name() {
			out = append(out, name)
		}
		return names.Err() == nil
	})
	return out
}
