//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Numbers were taken when a row was inserted and seen when it was committed, so a big
// event appeared behind the cursor of whoever polled. Here a number is the place in
// EVENTS, and rows are committed in that order: a poller with small pages and every
// follower see the final list.
func TestB01_LateCommit(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	feeds := []*feed{
		pageFeed(t, s.nats, "skald.api.b01.events", map[string]string{"after_seq": "0", "limit": "7"}, 2*time.Millisecond),
		goFeed(t, s.nats, consumer.FollowOptions{Workspace: "b01", From: &bus.Cursor{}}),
		commandFeed(t, "events", "--follow", "--after-seq", "0", "--workspace", "b01", "--data", s.data),
		commandFeed(t, "events", "--follow", "--after-seq", "0", "--workspace", "b01", "--url", s.http),
		commandFeed(t, "events", "--follow", "--after-seq", "0", "--workspace", "b01", "--server", s.nats),
		commandFeed(t, "tail", "--after-seq", "0", "--workspace", "b01", "--server", s.nats),
	}
	const workers, each = 8, 60
	var wg sync.WaitGroup
	for i := range workers {
		nc := connect(t, s.nats)
		wg.Go(func() {
			w := &plainWorker{t, nc}
			for n := range each {
				size := 100
				if n%20 == 10 {
					size = 900_000
				}
				_, err := w.send(ingestSubject("b01", fmt.Sprint("s", i), "error"), nil, failed(fmt.Sprint(n)+strings.Repeat("x", size)))
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	want := s.same(t, "b01")
	require.Len(t, want, workers*each)
	for _, f := range feeds {
		f.reach(len(want))
		f.end()
		require.True(t, slices.Equal(want, f.seen()), "%s: %d lines of %d", f.name, len(f.seen()), len(want))
	}
}

// A reader took the backlog and then subscribed, and what came between was in
// neither; or after a cut it was given everything once more. Here readers begin
// anywhere in a history that grows, connections are cut, serve restarts, and a reader
// that is called again with the cursor that it has named gets each event once.
func TestB04_B24_BacklogThenLive(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--listen", skaldtest.FreeAddress(t), "--http", skaldtest.FreeAddress(t))
	network := skaldtest.NewProxy(t, strings.TrimPrefix(s.nats, "nats://"))
	w := s.worker(t)
	subject := ingestSubject("b04", "s", "error")
	for n := range 500 {
		w.put(subject, nil, failed(fmt.Sprint(n)))
	}
	s.settle(t)
	stop, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		nc := connect(t, s.nats)
		for n := 500; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			// Sent again after a restart, under its id.
			for {
				m := &nats.Msg{Subject: subject, Header: nats.Header{"Skald-Event-Id": {fmt.Sprint("e", n)}}, Data: []byte(failed(fmt.Sprint(n)))}
				if _, err := nc.RequestMsg(m, 2*time.Second); err == nil {
					break
				}
			}
			time.Sleep(2 * time.Millisecond) // 500 a second
		}
	}()
	type run struct {
		*feed
		from uint64
	}
	var runs []run
	for i := range 24 {
		from := uint64(500 - i*20)
		at := bus.Cursor{Seq: from}
		var f *feed
		if i%4 == 0 {
			f = commandFeed(t, "events", "--follow", "--server", network.URL(), "--after-seq", at.String())
		} else {
			f = goFeed(t, network.URL(), consumer.FollowOptions{From: &at})
		}
		f.reach(i*20 + 5) // beyond where the history ended
		network.Cut()
		f.reach(i*20 + 30)
		runs = append(runs, run{f, from})
	}
	// One is called again and again with the cursor that it gave.
	var joined []string
	cursor := "0"
	for range 5 {
		f := commandFeed(t, "events", "--follow", "--server", s.nats, "--after-seq", cursor)
		f.reach(100)
		f.end()
		joined = append(joined, f.seen()...)
		_, rest, ok := strings.Cut(f.said(), "--after-seq ")
		require.True(t, ok, f.said())
		cursor, _, _ = strings.Cut(rest, " ")
	}
	s.signal(t, syscall.SIGKILL)
	<-s.exited
	s = s.revive(t)
	close(stop)
	<-written
	s.settle(t)
	all := s.doors()[0].walk(t, url.Values{}, 1000)
	for _, r := range runs {
		want := behindSeq(all, r.from)
		r.reach(len(want))
		r.end()
		require.Equal(t, want, r.seen(), r.name)
	}
	require.Equal(t, all[:len(joined)], joined)
}

// A reader whose cursor lay ahead of the log was told that it was up to date, and
// missed what came. Here every reader is told at once, with the end that there is.
func TestB10_CursorAhead(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for n := range 120 {
		w.put(ingestSubject("b10", "s", "error"), nil, failed(fmt.Sprint(n)))
	}
	s.settle(t)
	for _, args := range [][]string{
		{"events", "--data", s.data}, {"events", "--url", s.http}, {"events", "--server", s.nats},
		{"events", "--follow", "--data", s.data}, {"events", "--follow", "--url", s.http}, {"events", "--follow", "--server", s.nats},
		{"tail", "--server", s.nats}, {"tail", "--server", s.nats, "--durable", "ahead"},
	} {
		began := time.Now()
		skald(t, "", append(args, "--after-seq", "5000")...).fails(t, 1, "cursor is ahead of the newest event", "120", "--after-seq 0")
		require.Less(t, time.Since(began), patience/2, args)
	}
	f := goFeed(t, s.nats, consumer.FollowOptions{From: &bus.Cursor{Seq: 5000}})
	<-f.done
	require.ErrorIs(t, f.failed(), bus.ErrCursorAhead)
	require.ErrorContains(t, f.failed(), "1 to 120")
	require.Empty(t, s.readersConsumers(t), "nobody waits at a place that is not there")
	for n := range 10 {
		w.put(ingestSubject("b10", "s", "error"), nil, failed(fmt.Sprint(120+n)))
	}
	s.settle(t)
	require.Len(t, skald(t, "", "tail", "--server", s.nats, "--after-seq", "120", "--count", "10").ok(t), 10)
}

// Two readers of one name shared the events, and each believed it had them all. Here
// readers without a name have one each, and a name has one reader.
func TestB16_SharedDurable(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	tail := func(args ...string) *feed {
		return commandFeed(t, append(args, "tail", "--server", s.nats, "--workspace", "acme", "--after-seq", "0")...)
	}
	feeds := []*feed{tail(), tail(), tail("--durable", "pager")}
	skaldtest.Eventually(t, patience, func() bool { return len(s.readersConsumers(t)) == 3+2 }, "two of the named one: place and lease")
	began := time.Now()
	skald(t, "", "tail", "--server", s.nats, "--workspace", "acme", "--durable", "pager").fails(t, 1, "in use by another process", "pager", "--durable")
	require.Less(t, time.Since(began), patience/2)
	for n := range 100 {
		w.put(ingestSubject("acme", fmt.Sprint("s", n%3), "error"), nil, failed(fmt.Sprint(n)))
	}
	want := s.same(t, "acme")
	for _, f := range feeds {
		f.reach(100)
		f.end()
		require.Equal(t, want, f.seen(), f.name)
	}
	// The name goes on where its reader ended.
	w.put(ingestSubject("acme", "s", "error"), nil, failed("later"))
	got := skald(t, "", "tail", "--server", s.nats, "--workspace", "acme", "--durable", "pager", "--count", "1").ok(t)
	require.Equal(t, s.same(t, "acme")[100:], got)
}

// A consumer that someone deleted under a running reader left it waiting for ever,
// and one made anew began at the wrong place. Here all go on where they were, and a
// name is kept however long its reader is away.
func TestB29_ConsumersDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	n := 0
	put := func(k int) {
		for range k {
			n++
			w.put(ingestSubject("b29", "s", "error"), nil, failed(fmt.Sprint(n)))
		}
	}
	put(20)
	feeds := []*feed{
		commandFeed(t, "tail", "--server", s.nats, "--after-seq", "0"),
		commandFeed(t, "tail", "--server", s.nats, "--after-seq", "0", "--durable", "stays"),
		commandFeed(t, "events", "--follow", "--server", s.nats, "--after-seq", "0"),
		goFeed(t, s.nats, consumer.FollowOptions{From: &bus.Cursor{}}),
	}
	away := commandFeed(t, "tail", "--server", s.nats, "--after-seq", "0", "--durable", "away")
	away.reach(20)
	away.end()
	for _, stream := range []string{"SKALD_INGEST", "SKALD_EVENTS"} {
		for _, f := range feeds {
			f.reach(n)
		}
		info, err := s.js(t).Stream(t.Context(), stream)
		require.NoError(t, err)
		names := info.ConsumerNames(t.Context())
		for name := range names.Name() {
			if name == "away" {
				continue
			}
			if err := info.DeleteConsumer(t.Context(), name); err != nil {
				require.ErrorIs(t, err, jetstream.ErrConsumerNotFound, "it has ended by itself")
			}
		}
		put(20)
	}
	want := s.same(t, "b29")
	require.Len(t, want, n)
	for _, f := range feeds {
		f.reach(n)
		require.Equal(t, want, f.seen(), f.name)
	}
	for _, f := range feeds {
		f.end()
	}
	// What the others left is gone by now or soon, and the names stay.
	skaldtest.EventuallyWith(t, patience, func(c *assert.CollectT) {
		require.Equal(c, []string{"away", "stays"}, sorted(s.readersConsumers(t)))
	})
	got := skald(t, "", "tail", "--server", s.nats, "--durable", "away", "--count", "40").ok(t)
	require.Equal(t, want[20:], got)
}

// Readers that came and went left consumers that nobody removed. Here, of followers
// that end in order or are killed, none stays beyond the time that is documented, and
// the named ones do; 1,000 events of 50 sessions are read whole by each.
func TestB39_ReadersComeAndGo(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for n := range 1000 {
		w.put(ingestSubject(fmt.Sprint("w", n%10), fmt.Sprint("s", n%50), "error"), nil, failed(fmt.Sprint(n)))
	}
	s.settle(t)
	skald(t, "", "tail", "--server", s.nats, "--durable", "named", "--after-seq", "0", "--count", "5").ok(t)
	var killed []*feed
	for i := range 16 {
		workspace := fmt.Sprint("w", i%10)
		var f *feed
		if i%2 == 0 {
			f = commandFeed(t, "tail", "--server", s.nats, "--workspace", workspace, "--after-seq", "0")
		} else {
			f = commandFeed(t, "events", "--follow", "--server", s.nats, "--workspace", workspace, "--after-seq", "0")
		}
		f.reach(100)
		if i%4 < 2 {
			f.kill()
			killed = append(killed, f)
		} else {
			f.end()
		}
	}
	for _, f := range killed {
		<-f.done
	}
	began := time.Now()
	skaldtest.Eventually(t, patience, func() bool { return slices.Equal([]string{"named"}, s.readersConsumers(t)) }, "consumers stay")
	t.Logf("the consumers of %d killed readers are gone after %s", len(killed), time.Since(began).Round(time.Second))
}

// Followers take ids, not patterns: none reads another workspace through one, and
// what is no cursor is wrong usage, not a beginning.
func TestB42_B46_Followers(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir()) // other tests write into a workspace called * too
	w := s.worker(t)
	w.put(ingestSubject("b42", "s-1", "error"), nil, failed("mine"))
	s.settle(t)
	ways := [][]string{
		{"events", "--follow", "--data", s.data}, {"events", "--follow", "--url", s.http}, {"events", "--follow", "--server", s.nats}, {"tail", "--server", s.nats},
	}
	for i, way := range ways {
		for _, v := range []string{"bad", "-1", "1.5", "1e3", " 5", "9223372036854775808", "a:b:5"} {
			r := skald(t, "", append(way, "--after-seq="+v)...)
			r.fails(t, 2, "after")
		}
		skald(t, "", append(way, "--after-seq", "0", "--after-seq", "0")...).fails(t, 2, "twice")
		skald(t, "", append(way, "--workspace", "")...).fails(t, 2, "workspace")
		for _, v := range []string{"*", ">", "b42.>", "%"} {
			f := commandFeed(t, append(way, "--after-seq", "0", "--workspace", v)...)
			w.put(ingestSubject(v, "own", "error"), nil, failed("its own"))
			f.reach(i + 1)
			f.end()
			require.Len(t, f.seen(), i+1, f.name)
			for _, line := range f.seen() {
				require.Contains(t, line, `"workspace_id":`+quoted(v))
			}
		}
	}
}

// A data directory is a directory, whatever its name: two that differ behind a
// question mark are not followed as one.
func TestB47_FollowFile(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	var feeds []*feed
	for _, name := range []string{"a?b", "a#b", "a%20b", "we ird", "über"} {
		dir := filepath.Join(top, name)
		s := serve(t, dir)
		f := commandFeed(t, "events", "--follow", "--after-seq", "0", "--data", dir+"/")
		s.worker(t).put(ingestSubject("b47", name, "error"), nil, failed(name))
		f.reach(1)
		feeds = append(feeds, f)
		s.stop(t)
	}
	for _, f := range feeds {
		f.end()
		require.Len(t, f.seen(), 1, f.name)
	}
}
