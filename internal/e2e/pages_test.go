//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxPage is what a page's rows come to at most, unless it is one row.
const maxPage = 4 << 20

// A negative limit meant no limit, so that one request returned everything; pages
// were bounded in rows but not in bytes; and where they were, one large event made
// its page fail for ever. Here nonsense is refused by name, large limits are cut, and
// a walk gets past the largest row that there can be.
func TestB40_Limits(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	at := ingestSubject("b40", "s", "error")
	const most = 8<<20 - 16<<10 // that INGEST takes
	for i := range 21 {
		size := 900_000
		if i == 10 {
			size = most - len(at) - 100
		}
		w.put(at, nil, failed(fmt.Sprint(i, " ")+strings.Repeat("x", size-len(failed("00 ")))))
	}
	rows := s.same(t, "b40")
	require.Len(t, rows, 21)

	doors := s.doors()
	for _, d := range doors {
		for _, v := range []string{"-1", "0", "ten", "1.5", "1e3", "0x10", " 5", "5 ", "+5"} {
			r := d.refuses(t, url.Values{"after_seq": {"0"}, "limit": {v}}, 400, "bad_parameter", "limit")
			require.Contains(t, r.Text, "limit: must be ")
		}
		d.refuses(t, url.Values{"after_seq": {"0"}, "limit": {"5", "6"}}, 400, "bad_parameter", "limit")
		for _, v := range []string{"", "200", "1000", "1001", "1000000000", "9223372036854775808", strings.Repeat("9", 10_000)} {
			if d.shell && v != "9223372036854775808" {
				continue // a process and 4 MB each; the answer is made at one place
			}
			p, r := d.ask(t, url.Values{"after_seq": {"0"}, "limit": {v}})
			require.Nil(t, r, "%s %.40s", d.name, v)
			require.Equal(t, rows[:len(p.Events)], p.lines())
			require.Greater(t, len(p.Events), 1)
			require.LessOrEqual(t, len(strings.Join(p.lines(), ",")), maxPage)
		}
		p, r := d.ask(t, url.Values{"after_seq": {"10"}, "limit": {"1000"}})
		require.Nil(t, r)
		require.Equal(t, rows[10:11], p.lines(), "%s: one row always fits", d.name)
		p, r = d.ask(t, url.Values{"limit": {"1000000000"}})
		require.Nil(t, r)
		require.Empty(t, p.Events, "without a cursor a page begins at the newest")
		require.EqualValues(t, 21, p.Next)
	}

	// Twenty at once that all ask for everything.
	var wg sync.WaitGroup
	counts := make([]int, 20)
	for i := range counts {
		wg.Go(func() {
			p, r := doors[i%2].ask(t, url.Values{"after_seq": {"0"}, "limit": {"1000000000"}})
			if r == nil {
				counts[i] = len(p.Events)
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		require.Greater(t, n, 1)
	}
	if runtime.GOOS == "linux" {
		require.Less(t, peak(t, s.pid()), 700<<20, "bytes of memory at most")
	}
}

// peak is the most memory in bytes that the process has had.
func peak(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// A cursor that was no number reached the store, or was read as 0: clients that
// reconnect by themselves repeated it without end, or were given everything once more.
// Here empty is absent and all else is refused with the parameter's name.
func TestB46_MalformedCursors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.worker(t).put(ingestSubject("b46", "s", "error"), nil, failed("x"))
	latest := s.settle(t).Latest
	epoch := func() string { p, _ := s.get(t, "/api/v1/events"); return p.Epoch }()
	for _, d := range s.doors() {
		bad := []string{
			"bad", "-1", "1.5", "0x10", "1e3", " 5", "5 ", "5,6", "+5", "9223372036854775808", strings.Repeat("9", 10<<10),
			":5", epoch + ":", epoch + ":x", epoch + ":-1", "a:b:5", "٣", "null",
		}
		if d.name == "url" {
			bad = bad[:11] // a process each; what they send is what HTTP has answered
		}
		for _, v := range bad {
			r := d.refuses(t, url.Values{"after_seq": {v}}, 400, "bad_parameter", "after_seq")
			if !d.shell {
				require.True(t, strings.HasPrefix(r.Text, "after_seq: must be a number"), r.Text)
			}
			require.Less(t, len(r.Text), 400)
		}
		d.refuses(t, url.Values{"after_seq": {"0", "0"}}, 400, "bad_parameter", "after_seq")

		p, r := d.ask(t, url.Values{"after_seq": {""}, "workspace_id": {"b46"}})
		require.Nil(t, r, d.name)
		require.Empty(t, p.Events, "%s: empty is absent, which is the newest", d.name)
		require.GreaterOrEqual(t, p.Next, latest)
		p, r = d.ask(t, url.Values{"after_seq": {epoch + ":0"}, "workspace_id": {"b46"}})
		require.Nil(t, r, d.name)
		require.Len(t, p.Events, 1)

		ahead := d.refuses(t, url.Values{"after_seq": {"9223372036854775807"}}, 400, "cursor_ahead", "")
		gone := d.refuses(t, url.Values{"after_seq": {"otherepoch:0"}}, 409, "other_epoch", "")
		if !d.shell {
			require.GreaterOrEqual(t, *ahead.Latest, latest)
			require.Equal(t, epoch, gone.Epoch)
		} else {
			require.Contains(t, ahead.Text, "cursor is ahead of the newest event: cursor 9223372036854775807")
			require.Contains(t, gone.Text, "cursor belongs to another epoch: cursor otherepoch:0, epoch "+epoch)
		}
	}
	// What resumes a stream is not ignored where there are pages.
	for _, v := range []string{"5", "bad"} {
		status, body := s.fetchWith(t, "/api/v1/events", "Last-Event-ID", v)
		_, r := decodePage(t, status, false, body)
		require.Equal(t, 400, r.Status)
		require.Equal(t, "bad_parameter", r.Code)
		require.Equal(t, "Last-Event-ID", r.Parameter)
	}
}
