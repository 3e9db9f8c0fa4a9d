//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// refusesToServe runs serve, which must end by itself with words.
func refusesToServe(t *testing.T, data string, words ...string) {
	t.Helper()
	skald(t, "", "serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000", "--sync-interval", "1m").
		fails(t, 1, words...)
}

// streamDir is where the embedded server keeps a stream.
func streamDir(data, name string) string {
	return filepath.Join(data, "jetstream", "jetstream", "$G", "streams", name)
}

// The EVENTS stream of a stopped serve is removed from the disk. serve stops and names
// the command that makes it again; after that numbers are the same, and cursors and
// readers go on.
func TestCrash_EventsRemoved(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "the data")
	s := serve(t, data)
	w := s.worker(t)
	for range 30 {
		w.put(ingestSubject("w", "s", "error"), nil, failed("x"))
		w.put(ingestSubject("w", "gone", "error"), nil, failed("x"))
	}
	s.settle(t)
	skald(t, "", "forget", "--workspace", "w", "gone", "--server", s.nats).ok(t)
	s.settle(t)
	before := skald(t, "", "events", "--url", s.http, "--after-seq", "0", "--limit", "1000").ok(t)
	require.Len(t, before, 30)
	s.stop(t)
	require.NoError(t, os.RemoveAll(streamDir(data, "SKALD_EVENTS")))

	serveArgs := []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000"}
	r := skald(t, "", serveArgs...)
	r.fails(t, 1, "stream is missing", "SKALD_EVENTS", "skald repair --data '"+data+"'")

	// It shows what it would do, changes nothing, and names the command that does it.
	repair := []string{"repair", "--data", data}
	shown := skald(t, "", repair...)
	require.Equal(t, 4, shown.code, shown.stderr)
	var d map[string]any
	require.NoError(t, json.Unmarshal([]byte(shown.stdout), &d))
	require.Equal(t, "rebuild", d["action"])
	require.Equal(t, false, d["done"])
	require.Contains(t, shown.stderr, "--yes")
	require.NoDirExists(t, streamDir(data, "SKALD_EVENTS"))
	skald(t, "", append(repair, "--yes")...).ok(t)
	require.Equal(t, 0, skald(t, "", repair...).code, "nothing is left to do")
	require.Equal(t, 0, skald(t, "", "verify", "--data", data, "--full").code)

	s = serve(t, data)
	w = s.worker(t)
	w.put(ingestSubject("w", "s", "error"), nil, failed("after"))
	s.settle(t)
	after := skald(t, "", "events", "--url", s.http, "--after-seq", "0", "--limit", "1000").ok(t)
	require.Equal(t, before, after[:30])
	require.Len(t, skald(t, "", "events", "--url", s.http, "--after-seq", d["epoch"].(string)+":60").ok(t), 1, "an old cursor goes on")
	verified := skald(t, "", "verify", "--data", data, "--server", s.nats)
	require.Equal(t, 0, verified.code, verified.stdout+verified.stderr)
	require.Contains(t, verified.stderr, "0 findings")
	// repair wants the directory for itself.
	skald(t, "", repair...).fails(t, 1, "directory is in use", "stop serve first")
	s.stop(t)
}

// repair is killed again and again, and the last one ends it. serve refuses to run in
// between.
func TestCrash_RepairKilled(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	w := s.worker(t)
	for range 50 {
		w.put(ingestSubject("w", "s", "error"), nil, failed(strings.Repeat("x", 1000)))
	}
	s.settle(t)
	before := skald(t, "", "events", "--url", s.http, "--after-seq", "0", "--limit", "1000").ok(t)
	s.stop(t)
	require.NoError(t, os.RemoveAll(streamDir(data, "SKALD_EVENTS")))
	plan := filepath.Join(data, "repair.json")
	killed := 0
	for range 10 {
		cmd := exec.Command(skaldtest.Binary(t), "repair", "--data", data, "--yes")
		cmd.Env = environment()
		p, err := spawn(cmd)
		require.NoError(t, err)
		skaldtest.Eventually(t, patience, func() bool {
			_, err := os.Stat(plan)
			return err == nil || !p.running()
		})
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-p.exited
		if _, err := os.Stat(plan); err != nil {
			break // it was faster
		}
		killed++
		refusesToServe(t, data, "a repair was begun and has not ended", "skald repair --data "+data+" --yes")
	}
	t.Logf("killed %d times", killed)
	skald(t, "", "repair", "--data", data, "--yes").ok(t)
	require.NoFileExists(t, plan)
	s = serve(t, data)
	require.Equal(t, before, skald(t, "", "events", "--url", s.http, "--after-seq", "0", "--limit", "1000").ok(t))
	s.stop(t)
}

// EVENTS is set back to an older copy and has gone on without the table: serve stops
// loudly, the repair it names gives new numbers and a new epoch, and nothing is lost.
func TestCrash_EventsOvertakenByAnotherStore(t *testing.T) {
	t.Parallel()
	data, copies := t.TempDir(), t.TempDir()
	s := serve(t, data)
	s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("first"))
	s.settle(t)
	s.stop(t)
	store := filepath.Join(data, "skald.db")
	older, err := os.ReadFile(store)
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(filepath.Join(copies, "js"), os.DirFS(filepath.Join(data, "jetstream"))))

	// The table goes on, and is put aside; JetStream and an older store go on otherwise.
	s = serve(t, data)
	w := s.worker(t)
	for _, text := range []string{"lost", "lost", "lost"} {
		w.put(ingestSubject("w", "s", "error"), nil, failed(text))
	}
	s.settle(t)
	s.stop(t)
	newer, err := os.ReadFile(store)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(data, "jetstream")))
	require.NoError(t, os.CopyFS(filepath.Join(data, "jetstream"), os.DirFS(filepath.Join(copies, "js"))))
	require.NoError(t, os.WriteFile(store, older, 0o600))
	s = serve(t, data)
	w = s.worker(t)
	for range 5 {
		w.put(ingestSubject("w", "t", "error"), nil, failed("other"))
	}
	s.settle(t)
	s.stop(t)
	require.NoError(t, os.WriteFile(store, newer, 0o600))

	verified := skald(t, "", "verify", "--data", data, "--json")
	require.Equal(t, 4, verified.code, verified.stderr)
	require.Contains(t, verified.stdout, `"kind":"differs","severity":"error","seq":2`)

	r := skald(t, "", "repair", "--data", data, "--yes").ok(t)
	var d map[string]any
	require.NoError(t, json.Unmarshal([]byte(r[0]), &d))
	require.Equal(t, "renumber", d["action"])
	require.EqualValues(t, 2, d["differs_from"])
	require.EqualValues(t, 3, d["appended"])
	require.NotEqual(t, d["epoch"], d["new_epoch"])
}

// The JetStream directories of two buses are swapped: a loud stop of each, no repair,
// and the way to begin anew is named; swapped back, both go on.
func TestCrash_EventsOfAnotherBus(t *testing.T) {
	t.Parallel()
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		s := serve(t, dirs[i])
		w := s.worker(t)
		for range 3 + i {
			w.put(ingestSubject("w", "s", "error"), nil, failed("x"))
		}
		s.settle(t)
		s.stop(t)
	}
	swap := func() {
		t.Helper()
		a, b := filepath.Join(dirs[0], "jetstream"), filepath.Join(dirs[1], "jetstream")
		require.NoError(t, os.Rename(a, a+".tmp"))
		require.NoError(t, os.Rename(b, a))
		require.NoError(t, os.Rename(a+".tmp", b))
	}
	swap()
	for _, dir := range dirs {
		refusesToServe(t, dir, "store and streams belong to different buses", "skald repair --data "+dir)
		skald(t, "", "repair", "--data", dir, "--yes").
			fails(t, 1, "no repair is safe", "belong to different buses", "skald serve with a new --data directory")
		require.Equal(t, 4, skald(t, "", "verify", "--data", dir).code)
	}
	swap()
	for _, dir := range dirs {
		s := serve(t, dir)
		s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed("after"))
		s.settle(t)
		s.stop(t)
		require.Equal(t, 0, skald(t, "", "verify", "--data", dir).code)
	}
}

// The whole JetStream directory is gone: looking changes nothing, and the repair makes
// both streams, EVENTS with the same numbers.
func TestCrash_EventsAndIngestRemoved(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	w := s.worker(t)
	for range 5 {
		w.put(ingestSubject("w", "s", "error"), nil, failed("x"))
	}
	s.settle(t)
	s.stop(t)
	js := filepath.Join(data, "jetstream")
	require.NoError(t, os.RemoveAll(js))
	skald(t, "", "verify", "--data", data).fails(t, 1, "name the NATS server with --server", "skald repair --data "+data)
	r := skald(t, "", "repair", "--data", data)
	require.Equal(t, 4, r.code, r.stderr)
	require.Contains(t, r.stdout, "INGEST, which is missing, is made anew")
	require.NoDirExists(t, js)
	skald(t, "", "repair", "--data", data, "--yes").ok(t)
	require.Equal(t, 0, skald(t, "", "repair", "--data", data).code)
	// The store's INGEST is gone, and verify says so; EVENTS is the table's.
	verified := skald(t, "", "verify", "--data", data, "--json")
	require.Equal(t, 4, verified.code)
	require.Contains(t, verified.stderr, "5 equal in table and EVENTS")
	require.NotContains(t, verified.stdout, "missing_in")
}

// Commands that can not mean what they are told say so.
func TestRepair_BadUsage(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, name := range []string{"repair", "verify"} {
		skald(t, "", name, "--data", empty).fails(t, 1, "no store here")
		skald(t, "", name, "--data", "").fails(t, 2, "--data")
		skald(t, "", name, "--data", empty, "--server", "").fails(t, 2, "--server")
		skald(t, "", name, "--data", empty, "--prefix", "A").fails(t, 2, "--prefix")
		skald(t, "", name, "--data", empty, "more").fails(t, 2)
	}
	require.NoFileExists(t, filepath.Join(empty, "skald.lock"))
}
