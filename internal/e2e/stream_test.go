//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/sse"
)

// scaled returns n, or at full length long.
func scaled(n, long int) int {
	if os.Getenv("SKALD_TEST_LONG") != "" {
		return long
	}
	return n
}

// load publishes n errors into the workspace, at a pace of so many a second or, with 0,
// as fast as they go, and waits until they are in the table.
func (s *server) load(t *testing.T, workspace string, n, perSecond, size int) {
	t.Helper()
	js := s.js(t)
	begin := time.Now()
	for i := range n {
		if perSecond > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))) // the pace
		}
		subject := ingestSubject(workspace, fmt.Sprint("s", i%5), "error")
		_, err := js.PublishAsync(subject, []byte(failed(strconv.Itoa(i)+strings.Repeat("x", size))), jetstream.WithStallWait(patience))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
}

// What was published between a reader's backlog and its subscription was in neither.
// Here streams that open behind a cursor while facts are published get exactly the
// table's list from there on.
func TestB04_HistoryThenLive(t *testing.T) {
	t.Parallel()
	r := skaldtest.Rand(t)
	s := serve(t, t.TempDir())
	s.load(t, "w", scaled(2000, 5000), 0, 10)
	s.settle(t)
	opens, reading := scaled(60, 200), time.Duration(scaled(300, 3000))*time.Millisecond
	var publisher sync.WaitGroup
	publisher.Go(func() { s.load(t, "w", 500*opens*int(reading/time.Millisecond)/6/1000, 500, 10) })
	list := make([]*sseStream, opens)
	from := make([]uint64, opens)
	for at := 0; at < opens; at += 6 {
		var six sync.WaitGroup
		for i := at; i < min(at+6, opens); i++ {
			p, _ := s.get(t, "/api/v1/events")
			from[i] = p.Latest - min(p.Latest, r.Uint64N(2000))
			list[i] = s.follow(t, nil, fmt.Sprint(from[i]))
			six.Go(func() {
				if err := list[i].read(1<<30, reading); err != nil {
					t.Errorf("stream behind %d: %v", from[i], err)
				}
			})
		}
		six.Wait()
	}
	publisher.Wait()
	all := s.same(t, "w")
	got := 0
	for i, one := range list {
		want := all[from[i]:]
		require.LessOrEqual(t, len(one.facts), len(want))
		require.Equal(t, want[:len(one.facts)], append([]string{}, one.facts...), "behind %d", from[i])
		got += len(one.facts)
	}
	require.Greater(t, got, opens*10)
}

// A client that came back was given what it had already, or its place was ignored. Here
// a reader that is cut off again and again, and goes on behind its last id over
// restarts and kills of the server, has the table's list.
func TestB24_Resume(t *testing.T) {
	t.Parallel()
	r := skaldtest.Rand(t)
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	s := serveAt(t, dir, at, web)
	first, err := follow(s.http, nil, "")
	require.NoError(t, err)
	defer first.close()
	n := scaled(900, 6000)
	go func() { _ = first.read(5, patience) }()
	var have []string
	last, sent := "0", 0
	for round := range scaled(9, 30) {
		step := n / scaled(9, 30)
		s.load(t, "w", step, 0, 10)
		sent += step
		one := s.follow(t, nil, last)
		require.NoError(t, one.read(r.IntN(sent-len(have)+1), 200*time.Millisecond))
		have, last = append(have, one.facts...), one.last
		one.close()
		if round%3 == 2 {
			if r.IntN(2) == 0 {
				kill(s.process)
			} else {
				s.stop(t)
			}
			s = serveAt(t, dir, at, web)
		}
	}
	s.settle(t)
	one := s.follow(t, nil, last)
	have = append(have, one.need(t, sent-len(have))...)
	require.Equal(t, s.same(t, "w"), have)
}

// A reader whose phone had lost its network held up all others, or lost what it could
// not take. Here the others get everything while it takes nothing, and it resumes.
func TestB33_SlowReader(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	stuck, err := net.Dial("tcp", strings.TrimPrefix(s.http, "http://"))
	require.NoError(t, err)
	defer stuck.Close()
	_, err = fmt.Fprint(stuck, "GET /api/v1/events HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	require.NoError(t, err)
	n := scaled(600, 2000) // more than the sockets hold
	list := make([]*sseStream, 49)
	var others sync.WaitGroup
	for i := range list {
		list[i] = s.follow(t, nil, "")
		others.Go(func() {
			if err := list[i].read(n, patience); err != nil {
				t.Error(err)
			}
		})
	}
	s.load(t, "w", n, 200, 10<<10)
	others.Wait()
	all := s.same(t, "w")
	for _, one := range list {
		require.Equal(t, all, one.facts)
	}
	// The one that took nothing gets what its socket holds, and all the rest.
	slow := &sseStream{resp: &http.Response{Body: stuck}, d: sse.NewDecoder(stuck), cancel: func() { stuck.Close() }}
	require.NoError(t, slow.read(n, patience))
	require.Equal(t, all[:len(slow.facts)], slow.facts)
	rest := s.follow(t, nil, slow.last)
	require.Equal(t, all[len(slow.facts):], append([]string{}, rest.need(t, n-len(slow.facts))...))
	open := sockets(t, s.pid())
	for _, one := range append(list, slow, rest) {
		one.close()
	}
	if open > 0 {
		skaldtest.Eventually(t, patience, func() bool { return sockets(t, s.pid()) <= open-50 }, "their sockets are given back")
	}
}

// sockets counts the open sockets of a process; where the system does not tell it is 0.
func sockets(t *testing.T, pid int) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	list, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	for _, e := range list {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Stopping waited for event streams, which never end. Here clients see a clean end at
// once, one that takes nothing holds nobody up, and the next serve has the address.
func TestB37_StopWithStreams(t *testing.T) {
	t.Parallel()
	for _, signals := range []int{1, 2} {
		dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
		s := serveAt(t, dir, at, web)
		stuck, err := net.Dial("tcp", web)
		require.NoError(t, err)
		defer stuck.Close()
		require.NoError(t, stuck.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprint(stuck, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		require.NoError(t, err)
		var readers, caughtUp sync.WaitGroup
		caughtUp.Add(20)
		for range 20 {
			one := s.follow(t, nil, "")
			readers.Go(func() {
				err := one.read(60, patience)
				caughtUp.Done()
				if err == nil {
					err = one.read(1<<30, patience)
				}
				if err != nil && signals == 1 {
					t.Errorf("no clean end: %v", err)
				}
			})
		}
		s.load(t, "w", 60, 0, 100_000)
		s.settle(t)
		caughtUp.Wait()
		begun := time.Now()
		for range signals {
			s.signal(t, syscall.SIGINT)
		}
		<-s.exited
		require.Less(t, time.Since(begun), 10*time.Second)
		if signals == 1 {
			require.Equal(t, 0, s.code, s.text())
			require.NotContains(t, s.text(), "cut off")
		}
		readers.Wait()
		s = serveAt(t, dir, at, web)
		s.stop(t)
	}
}

// Readers that came and went left consumers behind. Streams here have none.
func TestB39_NoConsumersLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.load(t, "w", 100, 0, 10)
	s.settle(t)
	for range scaled(40, 250) {
		a, b := s.follow(t, nil, "0"), s.follow(t, url.Values{"workspace_id": {"none"}}, "")
		a.need(t, 100)
		a.close()
		b.close()
	}
	require.Empty(t, s.readersConsumers(t))
}

// readersConsumers names those of both streams that readers of Skald's have made. The
// materializer has more of its own for a while when it was cut off, on a busy machine also
// by itself; those with a _ are the ordered ones with which the tests read a stream.
func (s *server) readersConsumers(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range []string{"SKALD_INGEST", "SKALD_EVENTS"} {
		stream, err := s.js(t).Stream(t.Context(), name)
		require.NoError(t, err)
		list := stream.ListConsumers(t.Context())
		for c := range list.Info() {
			if !strings.HasPrefix(c.Config.Description, "materializer") && !strings.Contains(c.Name, "_") {
				names = append(names, c.Name)
			}
		}
		require.NoError(t, list.Err())
	}
	return names
}

// A wildcard in a filter was pasted into a subject and read everyone's events. Here a
// filter is an id, at the stream as at every other door.
func TestB42_WildcardFilters(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.load(t, "other", 10, 0, 10)
	s.load(t, "acme", 1, 0, 10)
	s.settle(t)
	for _, id := range []string{"*", ">", "acme.>", "other.s1", "%", "_", "../other", "..%2Fother", "oth*", "OTHER", ""} {
		for _, name := range []string{"workspace_id", "session_id", "type"} {
			q := url.Values{name: {id}}
			one, err := follow(s.http, q, "0")
			if err != nil {
				require.ErrorContains(t, err, "400", "%s=%q", name, id)
			} else {
				require.NoError(t, one.read(1, 50*time.Millisecond))
				require.Empty(t, one.facts, "%s=%q", name, id)
				one.close()
			}
			q.Set("after_seq", "0")
			for _, d := range s.doors() {
				if d.shell || d.name == "NATS" && name == "workspace_id" && id == "" {
					continue
				}
				if p, _ := d.ask(t, q); p != nil {
					require.Empty(t, p.Events, "%s %s=%q", d.name, name, id)
				}
			}
		}
	}
	require.Empty(t, s.readersConsumers(t))
}

// A line break in a worker's text ended its line, and the rest was read as fields: it
// set the reader's place or made up events. Here a fact is one frame, whatever is in it.
func TestB45_LineBreaks(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	n := 0
	for _, text := range []string{"\r", "\n", "\r\n", "\u2028", "\u0085", "x\n\nid: 999999\nevent: error\ndata: forged\n\n", "\ufeff", ": comment"} {
		w.put(ingestSubject("b45", "s", "error"), nil, failed(text))
		w.put(ingestSubject("b45", "s", "activity"), nil, `{"activity":{`+quoted(text)+`:`+quoted(text)+`}}`)
		// Line breaks between the tokens, as a worker may send them.
		w.put(ingestSubject("b45", "s", "error"), nil, "{\r\"message\"\n:\r\n"+quoted(text)+"\n}")
		n += 3
	}
	w.put(ingestSubject("b45", "a\u2028id: 7", "error"), nil, failed("x"))
	n++
	all := s.same(t, "b45")
	require.Len(t, all, n)
	one := s.follow(t, url.Values{"workspace_id": {"b45"}}, "0")
	require.Equal(t, all, one.need(t, n))
	shipped := skald(t, "", "events", "--follow", "--url", s.http, "--workspace", "b45", "--after-seq", "0", "--count", fmt.Sprint(n))
	require.Equal(t, all, shipped.ok(t))
}

// A bad place was read as 0, or as an outage that a client repeats for ever. A status
// makes an EventSource stop.
func TestB46_StreamCursors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, v := range []string{"bad", "-1", "1.5", "0x10", "1e3", "5,6", "9223372036854775808", strings.Repeat("9", 10<<10), "null", ":5"} {
		_, err := follow(s.http, nil, v)
		require.ErrorContains(t, err, `"parameter":"Last-Event-ID"`, "%.30s", v)
		require.ErrorContains(t, err, "400")
		_, err = follow(s.http, url.Values{"after_seq": {v}}, "")
		require.ErrorContains(t, err, `"parameter":"after_seq"`, "%.30s", v)
	}
	_, err := follow(s.http, url.Values{"after_seq": {"0"}}, "1")
	require.ErrorContains(t, err, "not the same place")
	_, err = follow(s.http, nil, "9223372036854775807")
	require.ErrorContains(t, err, `"code":"cursor_ahead"`)
	require.ErrorContains(t, err, `"latest_seq":`)
	one := s.follow(t, url.Values{"workspace_id": {"nobody"}}, "")
	require.NoError(t, one.read(1, time.Duration(rand.IntN(50))*time.Millisecond))
	require.Empty(t, one.facts, "no place is no replay")
}
