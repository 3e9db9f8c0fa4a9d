//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// filesWith returns the files below dir that hold the text. Files that go meanwhile are passed.
func filesWith(dir, text string) (found []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// What was said in a session that was forgotten with --secure is in no file of the data
// directory once status counts no erasures, also if serve is stopped meanwhile. What others
// said stays. (A NATS server that is killed while it overwrites a message may have noted before
// that the message is gone: nobody can overwrite it then.)
func TestForget_SecureCommand(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-a-session"
	data := t.TempDir()
	s := serve(t, data, "--ingest-keep", "1h") // what is trimmed before stays in its block for a while
	w := s.worker(t)
	for range 20 {
		w.put(ingestSubject("f", "stays", "error"), nil, failed("stays"))
		w.put(ingestSubject("f", "goes", "error"), nil, failed(secret+strings.Repeat(" and more", 500)))
		w.put(ingestSubject("f", "goes", "session"), nil, `{"op":"save","title":"`+secret+`"}`)
		w.put(ingestSubject("f", "goes", "error"), nil, `{"nothing":"`+secret+`"}`) // rejected
	}
	s.settle(t)
	skaldtest.Eventually(t, patience, func() bool { return len(filesWith(data, secret)) >= 2 })
	result := skald(t, "", "forget", "goes", "--secure", "--workspace", "f", "--server", s.nats, "--yes")
	require.Equal(t, []string{"forgotten f/goes"}, result.ok(t))
	require.Contains(t, result.stderr, "overwritten")
	s.stop(t)
	s = serve(t, data, "--ingest-keep", "0s")
	s.worker(t).put(ingestSubject("f", "stays", "error"), nil, failed("last"))
	skaldtest.Eventually(t, patience, func() bool {
		resp, err := client.Get(s.http + "/api/v1/status")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var st struct{ Erasures *int }
		return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&st) == nil && st.Erasures != nil && *st.Erasures == 0
	}, "it is overwritten")
	require.Empty(t, filesWith(data, secret))
	require.Len(t, s.same(t, "f"), 21)
	skald(t, "", "verify", "--data", data, "--server", s.nats).ok(t)
	s.stop(t)
	require.Empty(t, filesWith(data, secret))
}
