//go:build unix

package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/skaldbus/skald/internal/skaldtest"
)

const (
	millionSessions = 1000
	millionBatch    = 1000
	millionBody     = 300 // bytes
	// millionPatience is how long one step may take at full length.
	millionPatience = 20 * time.Minute
	// streamsDir is where the embedded server keeps streams, below the data directory.
	streamsDir = "jetstream/jetstream/$G/streams/"
)

// million is a bus of many events that is lost and comes back, and what each step took.
type million struct {
	t      *testing.T
	stored int // messages of errors so far, one fact each
	began  time.Time
}

// step tells how long a step took.
func (m *million) step(format string, args ...any) {
	m.t.Logf("%7.1f s  %s", time.Since(m.began).Seconds(), fmt.Sprintf(format, args...))
	m.began = time.Now()
}

// serve starts a server on data that may have much to do before it is ready.
func (m *million) serve(data string) *server {
	m.t.Helper()
	s, err := launchWithin(skaldtest.Binary(m.t), data, millionPatience, "--ingest-max-bytes", "4000000000", "--ingest-keep", "0s")
	require.NoError(m.t, err)
	m.t.Cleanup(func() {
		s.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-s.exited
		if m.t.Failed() {
			m.t.Log(s.text())
		}
	})
	return s
}

// run runs a command to its end and returns its status.
func (m *million) run(args ...string) result {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), millionPatience)
	defer cancel()
	return runCommand(m.t, exec.CommandContext(ctx, skaldtest.Binary(m.t), args...), "")
}

// publish stores n more messages in atomic batches.
func (m *million) publish(s *server, n int) error {
	js := s.js(m.t)
	for end := m.stored + n; m.stored < end; {
		batch := make([]*nats.Msg, 0, millionBatch)
		for ; m.stored < end && len(batch) < millionBatch; m.stored++ {
			i := m.stored
			msg := nats.NewMsg(ingestSubject(fmt.Sprint("w", i%10), fmt.Sprint("session-", i%millionSessions), "error"))
			msg.Header = withCount("p", fmt.Sprint(i/millionSessions+1))
			body := fmt.Sprintf(`{"recorded_at_ms":%d,"message":"%d `, i, i)
			msg.Data = []byte(body + strings.Repeat("x", millionBody-2-len(body)) + `"}`)
			batch = append(batch, msg)
		}
		if _, err := jetstreamext.PublishMsgBatch(m.t.Context(), js, batch); err != nil {
			return fmt.Errorf("store messages: %w", err)
		}
	}
	return nil
}

// settle is server.settle with more patience.
func (m *million) settle(s *server) (st busStatus) {
	m.t.Helper()
	skaldtest.Eventually(m.t, millionPatience, func() bool {
		resp, err := client.Get(s.http + "/api/v1/status")
		if err != nil {
			return !s.running()
		}
		defer resp.Body.Close()
		st = busStatus{}
		if json.NewDecoder(resp.Body).Decode(&st) != nil || st.Ingest.Lag == nil || st.Events.Lag == nil {
			return false
		}
		return *st.Ingest.Lag == 0 && *st.Events.Lag == 0
	}, "lag is 0")
	require.True(m.t, s.running(), "serve still runs")
	return st
}

// millionRow is a number and what stands under it.
type millionRow struct {
	Seq    uint64
	Digest [16]byte // of the epoch and the event, as pages have it
}

// table reads every row.
func (m *million) table(s *server) (rows []millionRow) {
	m.t.Helper()
	for after := uint64(0); ; {
		code, _, body := s.fetch(m.t, fmt.Sprintf("/api/v1/events?after_seq=%d&limit=1000", after))
		require.Equal(m.t, http.StatusOK, code, "%s", body)
		var p eventPage
		require.NoError(m.t, json.Unmarshal(body, &p))
		if len(p.Events) == 0 && p.Next == p.Latest {
			return rows
		}
		for _, e := range p.Events {
			var n struct{ Seq uint64 }
			require.NoError(m.t, json.Unmarshal(e, &n))
			sum := sha256.Sum256(append([]byte(p.Epoch), e...))
			rows = append(rows, millionRow{n.Seq, [16]byte(sum[:16])})
		}
		after = p.Next
	}
}

// same fails unless the table has the rows, the same bytes under the same numbers in the
// same epoch, and verify finds nothing that is off.
func (m *million) same(s *server, want []millionRow) {
	m.t.Helper()
	got := m.table(s)
	require.Len(m.t, got, len(want))
	for i := range want {
		require.Equal(m.t, want[i], got[i])
	}
	m.step("read and compared %d rows", len(got))
	m.run("verify", "--data", s.data, "--server", s.nats).ok(m.t)
	m.step("skald verify: status 0")
}

// sizes are those of the store and of the streams, in MB.
func (m *million) sizes(data string) string {
	var out []string
	for _, name := range []string{"skald.db", streamsDir + "SKALD_INGEST", streamsDir + "SKALD_EVENTS", streamsDir + "OBJ_SKALD_STATE"} {
		var size int64
		err := filepath.WalkDir(filepath.Join(data, name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				size += info.Size()
			}
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(m.t, err)
		}
		out = append(out, fmt.Sprintf("%s %.0f MB", filepath.Base(name), float64(size)/1e6))
	}
	return strings.Join(out, ", ")
}

// A bus of a million events comes back from each loss with every row as it was, under the
// same number and in the same epoch: from a backup that was taken while it was written,
// with a session forgotten and INGEST trimmed since; with no backup, from checkpoint,
// EVENTS and INGEST; and with EVENTS lost, by a repair. Without SKALD_TEST_LONG it is a
// bus of twenty thousand. With -v it tells times and sizes.
func TestMillion(t *testing.T) {
	t.Parallel()
	n := long(20_000, 1_000_000)
	m := &million{t: t, began: time.Now()}
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }

	s := m.serve(dir("a"))
	m.began = time.Now()
	require.NoError(t, m.publish(s, n*9/10))
	m.step("published %d messages of %d bytes in %d sessions", m.stored, millionBody, millionSessions)
	m.settle(s)
	m.step("materialized")
	published := make(chan error, 1)
	go func() { published <- m.publish(s, n/20) }()
	line := m.run("backup", dir("backup"), "--data", s.data).ok(t)
	took := time.Since(m.began)
	require.NoError(t, <-published)
	var manifest backupManifest
	require.NoError(t, json.Unmarshal([]byte(line[0]), &manifest))
	m.step("skald backup while %d more were published; it took %.1f s and reaches number %d: %s", n/20, took.Seconds(), manifest.Latest, m.sizes(dir("backup")))
	m.settle(s)
	m.run("forget", "session-7", "--workspace", "w7", "--server", s.nats, "--yes").ok(t)
	m.settle(s)
	m.step("skald forget of a session of %d rows", m.stored/millionSessions)
	require.NoError(t, m.publish(s, n-m.stored))
	last := m.settle(s).Ingest.Position
	skaldtest.Eventually(t, millionPatience, func() bool {
		in, err := s.js(t).Stream(t.Context(), "SKALD_INGEST")
		return err == nil && in.CachedInfo().State.FirstSeq >= last
	}, "INGEST is trimmed")
	m.step("published the rest and trimmed INGEST to its last message, %d", last)
	rows := m.table(s)
	m.step("read %d rows: %s", len(rows), m.sizes(s.data))
	m.run("verify", "--data", s.data, "--server", s.nats).ok(t)
	m.step("skald verify: status 0")
	s.stop(t)

	m.began = time.Now()
	m.run("restore", dir("backup"), "--data", dir("b")).ok(t)
	m.step("skald restore into an empty directory")
	require.NoError(t, os.Rename(filepath.Join(dir("a"), "jetstream"), filepath.Join(dir("b"), "jetstream")))
	require.NoError(t, os.RemoveAll(dir("a")))
	s = m.serve(dir("b"))
	m.settle(s)
	m.step("caught up from number %d to %d", manifest.Latest, n)
	m.same(s, rows)
	s.stop(t)

	m.began = time.Now()
	require.NoError(t, os.Mkdir(dir("c"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir("b"), "jetstream"), filepath.Join(dir("c"), "jetstream")))
	require.NoError(t, os.RemoveAll(dir("b")))
	s = m.serve(dir("c"))
	m.settle(s)
	m.step("without a backup: a new store from checkpoint, EVENTS and INGEST: %s", m.sizes(s.data))
	m.same(s, rows)
	s.stop(t)

	m.began = time.Now()
	require.NoError(t, os.RemoveAll(filepath.Join(dir("c"), streamsDir, "SKALD_EVENTS")))
	require.Equal(t, 4, m.run("repair", "--data", dir("c")).code)
	m.run("repair", "--data", dir("c"), "--yes").ok(t)
	m.step("skald repair: EVENTS made again from the table: %s", m.sizes(dir("c")))
	s = m.serve(dir("c"))
	m.settle(s)
	m.step("served again")
	m.same(s, rows)
	s.stop(t)
}
