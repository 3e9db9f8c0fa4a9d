//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Order, or the ids that order was read from, came from the sender's clock: a machine
// five hours ahead pinned its messages to the end, one ten minutes behind had its
// answers shown above the questions. Here three workers of one session take turns,
// and each knows that the one before was stored; half way one clock jumps back by an
// hour and one to 2099. Every reader has the order in which it was said, from any
// cursor; the worker's time is kept as it was sent, and the server's stands beside it.
func TestB27_ClocksDisagree(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	var (
		began = time.Now()
		far   = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
		sent  []int64
	)
	for i := range 30 {
		now := time.Now()
		switch late := i >= 15; i % 3 {
		case 0:
			if now = now.Add(5 * time.Hour); late {
				now = far
			}
		case 1:
			if now = now.Add(-10 * time.Minute); late {
				now = now.Add(-time.Hour)
			}
		}
		sent = append(sent, now.UnixMilli())
		// Ids made of the workers' own time, as UUIDv7 are.
		id := fmt.Sprintf("%013d-worker-%d-%d", now.UnixMilli(), i%3, i)
		w.put(ingestSubject("b27", "one", "error"), withID(id), fmt.Sprintf(`{"message":"turn %d","recorded_at_ms":%d}`, i, now.UnixMilli()))
	}
	rows := s.same(t, "b27")
	require.Len(t, rows, 30)
	stored := began.UnixMilli()
	for i, text := range rows {
		var r struct {
			RecordedAt int64 `json:"recorded_at_ms"`
			StoredAt   int64 `json:"stored_at_ms"`
			Data       struct{ Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		require.Equal(t, fmt.Sprint("turn ", i), r.Data.Message)
		require.Equal(t, sent[i], r.RecordedAt)
		require.GreaterOrEqual(t, r.StoredAt, stored)
		require.LessOrEqual(t, r.StoredAt, time.Now().UnixMilli())
		stored = r.StoredAt
	}

	// From every cursor the rest comes.
	for _, d := range s.doors() {
		if d.shell {
			continue // a process each; the answer is made at one place
		}
		for after := range 30 {
			p, r := d.ask(t, url.Values{"workspace_id": {"b27"}, "after_seq": {strconv.Itoa(after)}})
			require.Nil(t, r)
			require.Equal(t, rows[after:], p.lines(), d.name)
		}
	}
}
