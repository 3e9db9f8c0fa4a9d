//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// B28: while the service writes, another program takes the write lock for half a second
// again and again, and commands read and prune in loops. Nobody is told "locked", nothing
// is lost or twice.
func TestB28_LockContention(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	w := s.worker(t)
	w.put(ingestSubject("w", "first", "error"), nil, failed("first"))
	s.settle(t)
	db := beside(t, data)
	stop := make(chan struct{})
	end := time.AfterFunc(long(8*time.Second, time.Minute), func() { close(stop) })
	defer end.Stop()
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	var wg sync.WaitGroup
	var failures atomic.Value
	loop := func(step func() error) {
		wg.Go(func() {
			for !stopped() {
				if err := step(); err != nil {
					failures.Store(err.Error())
					return
				}
			}
		})
	}
	held := 0
	loop(func() error {
		if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
			return fmt.Errorf("the other program waits no longer than the timeout: %w", err)
		}
		held++
		select { // it holds the lock for this long: that is the fault
		case <-time.After(500 * time.Millisecond):
		case <-stop:
		}
		_, err := db.Exec("ROLLBACK")
		// So that others get a turn: SQLite's lock has no queue, who waits for it looks each 100 ms.
		time.Sleep(150 * time.Millisecond)
		return err
	})
	nats := s.nats
	loop(func() error {
		r := skald(t, "", "events", "--data", data, "--after-seq", "0", "--limit", "5")
		if r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	loop(func() error {
		r := skald(t, "", "prune", "--before-seq", "2", "--server", nats)
		if r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	loop(func() error {
		resp, err := client.Get(s.http + "/api/v1/events?after_seq=1&limit=100")
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		return err
	})
	sent := 0
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !stopped() {
		w.put(ingestSubject("w", fmt.Sprint("s", sent%5), "error"), withID(fmt.Sprint(sent)), failed(fmt.Sprint(sent)))
		sent++
		<-tick.C
	}
	wg.Wait()
	require.Nil(t, failures.Load())
	require.Greater(t, held, 3)
	st := s.settle(t)
	require.EqualValues(t, sent+1, st.Latest)
	require.Len(t, s.stream(t, "w"), sent+1, "EVENTS keeps what was pruned")
	page, refused := s.get(t, "/api/v1/events?after_seq=0&limit=1")
	require.Nil(t, refused)
	require.EqualValues(t, 2, page.Oldest)
	require.Zero(t, st.Rejects)
	require.NotContains(t, s.text(), "database is locked")
	s.stop(t)
}

// B38: with readers of every kind, slow ones among them, the log beside the store stays
// bounded while much is written. One that another program's snapshot has made grow shrinks
// again when that is gone, without a restart.
func TestB38_LogBounded(t *testing.T) {
	t.Parallel()
	const mostLog, afterLog = 256 << 20, 64<<20 + 1<<20
	data := t.TempDir()
	s := serve(t, data, "--ingest-max-bytes", "2000000000")
	wal := filepath.Join(data, "skald.db-wal")
	logSize := func() int64 {
		info, err := os.Stat(wal)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 5 {
		f := s.follow(t, url.Values{}, "0")
		readers.Go(func() { _ = f.read(1<<30, time.Hour) })
		t.Cleanup(f.close)
	}
	readers.Go(func() { // takes 1 KB a second of an answer of 4 MiB
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.http, "http://"))
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/v1/events?after_seq=0&limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
		for ctx.Err() == nil {
			if _, err := conn.Read(make([]byte, 1024)); err != nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	readers.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			resp, err := client.Get(s.http + "/api/v1/events?after_seq=0&limit=100")
			if err != nil {
				return
			}
			io.Copy(io.Discard, resp.Body) //nolint:errcheck // what it says is no matter here
			resp.Body.Close()
			<-tick.C
		}
	})
	js := s.js(t)
	body := failed(strings.Repeat("x", 3300))
	var highest int64
	write := func(n int) {
		for i := range n {
			_, err := js.PublishMsgAsync(&nats.Msg{Subject: ingestSubject("w", fmt.Sprint("s", i%20), "error"), Data: []byte(body)})
			require.NoError(t, err)
			if i%500 == 0 {
				<-js.PublishAsyncComplete()
				highest = max(highest, logSize())
			}
		}
		<-js.PublishAsyncComplete()
		s.settle(t)
	}
	n := long(20_000, 300_000)
	write(n)
	require.Less(t, highest, int64(mostLog))
	t.Logf("%d events, the log was %d MiB at most", n, highest>>20)

	// A snapshot that stays open: nothing that was written since can leave the log.
	db := beside(t, data)
	_, err := db.Exec("BEGIN")
	require.NoError(t, err)
	var count int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM events").Scan(&count))
	write(n)
	grown := logSize()
	t.Logf("with a snapshot held, the log is %d MiB", grown>>20)
	require.Greater(t, grown, int64(afterLog), "else this shows nothing")
	_, err = db.Exec("ROLLBACK")
	require.NoError(t, err)
	cancel()
	skaldtest.Eventually(t, patience, func() bool { return logSize() < afterLog }, "the log is cut")
	s.stop(t)
	readers.Wait()
}
