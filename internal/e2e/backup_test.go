//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// backupManifest is what a test reads of a manifest.
type backupManifest struct {
	Latest uint64 `json:"latest_seq"`
	Ingest uint64 `json:"ingest_seq"`
}

// backup takes a backup of the server's store beside it.
func (s *server) backup(t *testing.T) (dir string, m backupManifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "backup")
	lines := skald(t, "", "backup", dir, "--data", s.data).ok(t)
	require.Len(t, lines, 1)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &m))
	return dir, m
}

// loseStore removes the store's files.
func loseStore(t *testing.T, data string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(filepath.Join(data, "skald.db"+suffix)))
	}
}

// A backup is restored after a session was forgotten, the one of the backup's last row,
// and with INGEST trimmed beyond it or not: all numbers are what they were, and what was
// forgotten is forgotten again.
func TestBackup_Restored(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]string{"INGEST trimmed": "0s", "INGEST kept": "1h"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			s := serve(t, data, "--ingest-keep", keep)
			s.fillTrimmed(t, "b", 1, 20)
			s.settle(t)
			dir, m := s.backup(t)
			require.EqualValues(t, 60, m.Latest)
			require.EqualValues(t, 60, m.Ingest)
			skald(t, "", "backup", dir, "--data", data).fails(t, 1, "there is something already")
			skald(t, "", "restore", dir, "--data", data).fails(t, 1, "stop serve first")

			skald(t, "", "forget", "gone", "--workspace", "b", "--server", s.nats, "--yes").ok(t)
			s.fillTrimmed(t, "b", 21, 40)
			s.settle(t)
			if keep == "0s" {
				s.trimmedTo(t, m.Ingest+2) // the forget is gone from INGEST
			}
			rows, sessions := s.same(t, "b"), s.sessionsOf(t, "b")
			require.Len(t, rows, 80)
			s.stop(t)

			skald(t, "", "restore", dir, "--data", data).fails(t, 1, "nothing is overwritten")
			loseStore(t, data)
			skald(t, "", "restore", dir, "--data", data).ok(t)
			s = serve(t, data, "--ingest-keep", keep)
			require.Equal(t, rows, s.same(t, "b"))
			require.Equal(t, sessions, s.sessionsOf(t, "b"))
			s.fillTrimmed(t, "b", 1, 41) // what comes twice is known, what is forgotten stays so
			again := s.same(t, "b")
			require.Len(t, again, 82)
			require.Equal(t, rows, again[:80])
			skald(t, "", "verify", "--data", data, "--server", s.nats).ok(t)
			s.stop(t)
		})
	}
}

// The whole machine is lost, and a backup is all there is: EVENTS is made again from the
// table under the same numbers, and publishing goes on. A reader has seen what came after
// the backup, whose numbers are given again now: the epoch is a new one, and that reader is
// refused everywhere, before and after they are.
func TestBackup_StreamsLostToo(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serve(t, data)
	s.fillTrimmed(t, "b", 1, 10)
	s.settle(t)
	rows, sessions := s.same(t, "b"), s.sessionsOf(t, "b")
	dir, _ := s.backup(t)
	s.fillTrimmed(t, "b", 11, 12) // after it: lost with the machine, unless a sender still has it
	s.settle(t)
	was, seen := s.epoch(t), s.same(t, "b")
	require.Len(t, seen, 36)
	kill(s.process)

	data = filepath.Join(t.TempDir(), "another machine")
	skald(t, "", "restore", dir, "--data", data).ok(t)
	shown := skald(t, "", "repair", "--data", data)
	require.Equal(t, 4, shown.code, shown.stderr)
	require.Contains(t, shown.stdout, "the store was restored")
	done := repaired(t, "--data", data)
	require.Equal(t, "rebuild", done.Action)
	require.Equal(t, was, done.Epoch)
	require.NotEqual(t, was, done.NewEpoch)
	s = launchDegraded(t, data) // what INGEST held may be lost: an operator has to say that this is known
	skald(t, "", "rejects", "discard", "--all", "--data", data, "--server", s.nats).ok(t)
	skaldtest.Eventually(t, patience, s.ready)
	require.Equal(t, done.NewEpoch, s.epoch(t))
	require.Equal(t, rows, s.same(t, "b"))
	require.Equal(t, sessions, s.sessionsOf(t, "b"))
	s.refusesCursor(t, was, 36, done.NewEpoch)
	s.fillTrimmed(t, "b", 9, 13)
	again := s.same(t, "b")
	require.Len(t, again, 39)
	require.Equal(t, rows, again[:30])
	s.refusesCursor(t, was, 36, done.NewEpoch)
	s.refusesCursor(t, was, 1, done.NewEpoch)
	s.stop(t)
}

// A backup becomes another store of the bus, beside the one it was taken of.
func TestBackup_Replica(t *testing.T) {
	t.Parallel()
	data, other := t.TempDir(), t.TempDir()
	s := serve(t, data)
	s.fillTrimmed(t, "b", 1, 10)
	s.settle(t)
	dir, _ := s.backup(t)
	s.fillTrimmed(t, "b", 11, 20)
	skald(t, "", "restore", dir, "--data", other, "--replica").ok(t)
	r := serve(t, other, "--server", s.nats)
	s.fillTrimmed(t, "b", 21, 30)
	s.settle(t)
	r.settle(t) // either may answer over NATS
	require.Equal(t, s.same(t, "b"), r.same(t, "b"))
	require.Equal(t, s.sessionsOf(t, "b"), r.sessionsOf(t, "b"))
	list := skald(t, "", "replicas", "--json", "--server", s.nats).ok(t)
	require.Len(t, list, 2, strings.Join(list, "\n"))
	r.stop(t)
	s.stop(t)
}
