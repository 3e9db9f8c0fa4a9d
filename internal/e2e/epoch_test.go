//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

// A whole data directory is set back to a snapshot, table and streams together, and looks
// as if nothing had happened. Who knows says so, and readers of before are refused.
func TestRepair_DirectorySetBack(t *testing.T) {
	t.Parallel()
	data, snapshot := t.TempDir(), filepath.Join(t.TempDir(), "snapshot")
	s := serve(t, data)
	s.fillTrimmed(t, "b", 1, 4)
	s.settle(t)
	s.stop(t)
	require.NoError(t, os.CopyFS(snapshot, os.DirFS(data)))
	s = serve(t, data)
	s.fillTrimmed(t, "b", 5, 8)
	s.settle(t)
	was := s.epoch(t)
	kill(s.process)
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.CopyFS(data, os.DirFS(snapshot)))

	require.Equal(t, 0, skald(t, "", "repair", "--data", data).code, "nobody can tell")
	shown := skald(t, "", "repair", "--data", data, "--new-epoch")
	require.Equal(t, 4, shown.code, shown.stderr)
	require.Contains(t, shown.stderr, "--new-epoch --yes")
	done := repaired(t, "--data", data, "--new-epoch")
	require.Equal(t, "new epoch", done.Action)
	require.NotEqual(t, was, done.NewEpoch)
	s = serve(t, data)
	s.refusesCursor(t, was, 24, done.NewEpoch)
	s.fillTrimmed(t, "b", 3, 8)
	require.Len(t, s.same(t, "b"), 24)
	s.refusesCursor(t, was, 24, done.NewEpoch)
	skald(t, "", "verify", "--data", data, "--server", s.nats).ok(t)
	s.stop(t)
}

// repair is what a test reads of a repair.
type repair struct {
	Action   string `json:"action"`
	Epoch    string `json:"epoch"`
	NewEpoch string `json:"new_epoch"`
}

// repaired carries a repair out.
func repaired(t *testing.T, args ...string) (done repair) {
	t.Helper()
	lines := skald(t, "", append([]string{"repair", "--yes"}, args...)...).ok(t)
	require.Len(t, lines, 1)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &done))
	return done
}

// epoch returns the epoch of the numbers.
func (s *server) epoch(t *testing.T) string {
	t.Helper()
	p, r := s.get(t, "/api/v1/events")
	require.Nil(t, r)
	require.NotEmpty(t, p.Epoch)
	return p.Epoch
}

// refusesCursor requires that a cursor of an epoch that is over is refused by everything
// that reads, and that each says which epoch holds now.
func (s *server) refusesCursor(t *testing.T, was string, seq uint64, now string) {
	t.Helper()
	cursor := fmt.Sprintf("%s:%d", was, seq)
	for _, d := range s.doors() {
		r := d.refuses(t, url.Values{"after_seq": {cursor}}, http.StatusConflict, "other_epoch", "")
		require.Contains(t, r.Text, "epoch "+now, d.name)
		if !d.shell {
			require.Equal(t, now, r.Epoch, d.name)
			require.NotNil(t, r.Latest, d.name)
			require.NotNil(t, r.Oldest, d.name)
		}
	}
	status, body := s.fetchWith(t, "/api/v1/events?after_seq="+cursor, "Accept", "text/event-stream")
	require.Equal(t, http.StatusConflict, status, "%s", body)
	require.Contains(t, string(body), "epoch "+now)
	_, err := follow(s.http, nil, cursor)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, `"code":"other_epoch"`)
	tail := skald(t, "", "tail", "--after-seq", cursor, "--server", s.nats)
	require.Equal(t, 1, tail.code, tail.stdout)
	require.Contains(t, tail.stderr, "epoch "+now)

	// A reader in Go gets a typed error.
	subjects, err := bus.NewSubjects("skald")
	require.NoError(t, err)
	c, err := consumer.New(s.js(t), consumer.Options{Subjects: subjects, From: &bus.Cursor{Epoch: was, Seq: seq}})
	require.NoError(t, err)
	err = c.Run(t.Context(), func(context.Context, bus.Event) error { return errors.New("an event came") })
	require.ErrorIs(t, err, bus.ErrOtherEpoch)
	var misplaced *consumer.CursorError
	require.ErrorAs(t, err, &misplaced)
	require.Equal(t, now, misplaced.Epoch)
}
