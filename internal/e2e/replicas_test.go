//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// sessionsOf is what the gateway says of the workspace's sessions, sorted.
func (s *server) sessionsOf(t *testing.T, workspace string) []string {
	t.Helper()
	var list struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	status, _, body := s.fetch(t, "/api/v1/sessions?limit=1000&workspace_id="+workspace)
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NoError(t, json.Unmarshal(body, &list))
	require.NotEmpty(t, list.Sessions)
	var out []string
	for _, v := range list.Sessions {
		out = append(out, string(v))
	}
	slices.Sort(out)
	return out
}

// trimmedTo waits until INGEST begins at a sequence, or behind it.
func (s *server) trimmedTo(t *testing.T, seq uint64) {
	t.Helper()
	js := s.js(t)
	skaldtest.Eventually(t, patience, func() bool {
		in, err := js.Stream(t.Context(), "SKALD_INGEST")
		return err == nil && in.CachedInfo().State.FirstSeq >= seq
	}, "INGEST is trimmed")
}

// fillTrimmed publishes into a workspace: counts, ids, repeated ones, and a session that is
// forgotten.
func (s *server) fillTrimmed(t *testing.T, workspace string, from, to int) {
	t.Helper()
	w := s.worker(t)
	for i := from; i <= to; i++ {
		w.put(ingestSubject(workspace, "counted", "error"), withCount("p", fmt.Sprint(i)), failed(fmt.Sprint("c", i)))
		w.put(ingestSubject(workspace, fmt.Sprint("named", i%5), "error"), withID(fmt.Sprint("id", i)), failed(fmt.Sprint("n", i)))
		w.put(ingestSubject(workspace, "gone", "error"), withID(fmt.Sprint("id", i)), failed("gone"))
	}
}

// Crash table, "store lost or new": INGEST was trimmed, the store's file is deleted, and
// serve comes back with the same numbers and sessions, and knows again what comes twice.
func TestCrash_StoreLost(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data, "--ingest-keep", "0s")
	s.fillTrimmed(t, "lost", 1, 40)
	s.settle(t)
	require.Equal(t, 0, skald(t, "", "forget", "gone", "--workspace", "lost", "--server", s.nats, "--yes").code)
	s.settle(t)
	s.trimmedTo(t, 121)
	s.fillTrimmed(t, "lost", 41, 50) // these are in INGEST alone, or in a newer checkpoint
	rows, sessions, before := s.same(t, "lost"), s.sessionsOf(t, "lost"), s.settle(t)
	require.Len(t, rows, 100)
	s.stop(t)

	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(filepath.Join(data, "skald.db"+suffix)))
	}
	s = serve(t, data, "--ingest-keep", "0s")
	require.Equal(t, rows, s.same(t, "lost"))
	require.Equal(t, sessions, s.sessionsOf(t, "lost"))
	require.Equal(t, before, s.settle(t), "counters, too")
	s.fillTrimmed(t, "lost", 1, 51)
	again := s.same(t, "lost")
	require.Equal(t, rows, again[:len(rows)])
	require.Len(t, again, len(rows)+2)
	st := s.settle(t)
	require.Equal(t, before.Duplicates+100, st.Duplicates)
	require.Equal(t, before.Dropped+51, st.Dropped)
	s.stop(t)
}

// Three services with stores of their own are on one outside server. They are listed, one
// dies and comes back, one is new after the others have trimmed INGEST; their tables are
// the same.
func TestReplicas_Three(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	url := broker.ClientURL()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var all []*server
	for _, d := range dirs {
		all = append(all, serve(t, d, "--server", url, "--ingest-keep", "0s"))
	}
	all[0].fillTrimmed(t, "three", 1, 20)
	for _, s := range all {
		s.settle(t)
	}
	list := func() (lines []map[string]any) {
		for _, line := range skald(t, "", "replicas", "--json", "--server", url).ok(t) {
			var e map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			lines = append(lines, e)
		}
		return lines
	}
	idOf := func(dir string) string {
		for _, e := range list() {
			if strings.HasSuffix(e["label"].(string), ":"+dir) {
				return e["id"].(string)
			}
		}
		return ""
	}
	require.Len(t, list(), 3)
	for _, d := range dirs {
		require.NotEmpty(t, idOf(d))
	}
	all[0].trimmedTo(t, 2)

	// One dies. It is waited for, until it is taken off the list.
	require.NoError(t, all[2].cmd.Process.Kill())
	<-all[2].exited
	skald(t, "", "replicas", "rm", idOf(dirs[1]), "--server", url).fails(t, 1, "was heard of", "--force")
	skald(t, "", "replicas", "rm", "0123456789abcdef", "--server", url).fails(t, 3, "not registered")
	dead := idOf(dirs[2])
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, []string{"removed " + dead + " " + host + ":" + dirs[2]}, skald(t, "", "replicas", "rm", dead, "--force", "--server", url).ok(t))
	require.Len(t, list(), 2)
	all[1].fillTrimmed(t, "three", 21, 40)
	all[0].trimmedTo(t, 100)

	all[2] = serve(t, dirs[2], "--server", url, "--ingest-keep", "0s")
	late := serve(t, t.TempDir(), "--server", url)
	all[1].fillTrimmed(t, "three", 35, 45)
	for _, s := range append(all, late) { // any of them may answer over NATS
		s.settle(t)
	}
	want := all[0].same(t, "three")
	require.Len(t, want, 135)
	for _, s := range append(all[1:], late) {
		require.Equal(t, want, s.same(t, "three"))
		require.Equal(t, all[0].sessionsOf(t, "three"), s.sessionsOf(t, "three"))
	}
	require.Len(t, list(), 4)
	skaldtest.Eventually(t, patience, func() bool { return strings.Contains(late.text(), "several stores are on this bus") })
	for _, s := range append(all, late) {
		s.stop(t)
	}
}

// A keep window that can not be kept is refused before anything is made.
func TestServe_IngestKeep(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"-1s", "673h"} {
		skald(t, "", "serve", "--data", filepath.Join(t.TempDir(), "none"), "--ingest-keep", v).fails(t, 2, "--ingest-keep: must be 0 to 672h0m0s")
	}
}

// listedStores waits until so many stores are on the bus's list, and returns their ids by label.
func listedStores(t *testing.T, url string, n int) map[string]string {
	t.Helper()
	ids := map[string]string{}
	skaldtest.Eventually(t, patience, func() bool {
		clear(ids)
		r := skald(t, "", "replicas", "--json", "--server", url)
		for line := range strings.Lines(r.stdout) {
			var one struct{ ID, Label string }
			require.NoError(t, json.Unmarshal([]byte(line), &one))
			ids[one.Label] = one.ID
		}
		return len(ids) == n
	}, "they are listed")
	return ids
}

// A store of two is lost for good. The other one stays ready, and says everywhere that
// INGEST is kept for it and with which command that ends; when it is run, that is over.
func TestReplicas_LostIsSaid(t *testing.T) {
	t.Parallel()
	url := outsideNATS(t, natsd.Options{}).ClientURL()
	s := serve(t, t.TempDir(), "--server", url)
	lost := serve(t, t.TempDir(), "--server", url)
	id := ""
	for label, one := range listedStores(t, url, 2) {
		if strings.HasSuffix(label, ":"+lost.data) {
			id = one
		}
	}
	require.NotEmpty(t, id)
	kill(lost.process)

	said := func() string {
		status, _, body := s.fetch(t, "/readyz")
		require.Equal(t, http.StatusOK, status, "%s", body)
		return string(body)
	}
	skaldtest.Eventually(t, patience, func() bool { return strings.Contains(said(), "`skald replicas rm "+id+"`") }, "it is said")
	require.Contains(t, said(), lost.data)
	st := skald(t, "", "status", "--json", "--url", s.http)
	require.Contains(t, strings.Join(st.ok(t), ""), `"silent_stores":1`)
	require.Contains(t, st.stderr, "skald replicas rm ID")
	checked := skald(t, "", "check", "--url", s.http)
	require.Equal(t, 1, checked.code, checked.stdout)
	require.Contains(t, checked.stdout, "silent-stores: 1, above 0")
	require.Contains(t, s.text(), "skald replicas rm "+id)

	skald(t, "", "replicas", "rm", id, "--server", url).ok(t)
	skaldtest.Eventually(t, patience, func() bool { return !strings.Contains(said(), id) }, "it is over")
	st = skald(t, "", "status", "--json", "--url", s.http)
	require.Contains(t, strings.Join(st.ok(t), ""), `"silent_stores":0`)
	require.NotContains(t, st.stderr, "replicas")
}
