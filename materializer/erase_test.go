package materializer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/checkpoint"
)

// secret stands in all that alpha says.
const secret = "s3cr3t-of-alpha"

// confess says something of everything for alpha, between what others say.
func (w *world) confess(round int) {
	w.t.Helper()
	w.fail(beta, fmt.Sprint("before ", round))
	w.fail(alpha, secret+strings.Repeat(" long", round*500))
	w.say(alpha, bus.ClassSession, fmt.Sprintf(`{"op":"save","title":"%s %d"}`, secret, round))
	w.say(alpha, bus.ClassActivity, fmt.Sprintf(`{"activity":{"%s":%d}}`, secret, round))
	w.say(alpha, bus.ClassError, `{"message":7,"x":"`+secret+`"}`) // rejected
	w.fail(beta, fmt.Sprint("after ", round))
}

// filesWith returns the files below dir that hold the text. One that is taken away
// meanwhile holds nothing.
func filesWith(t *testing.T, dir string, text []byte) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var b []byte
			if b, err = os.ReadFile(path); bytes.Contains(b, text) {
				found = append(found, path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	return found
}

// chunk returns a part of a checkpoint as it is stored.
func (w *world) chunk(c *checkpoint.Checkpoint) []byte {
	w.t.Helper()
	b, err := w.bucket().Objects().GetBytes(w.t.Context(), c.State.Parts[0].Name)
	require.NoError(w.t, err)
	return b[len(b)/2:][:64] // what follows its beginning is like no other
}

// erased waits until the node has overwritten all that it was to.
func (n *node) erased() {
	n.w.t.Helper()
	skaldtest.Eventually(n.w.t, 2*skaldtest.Timeout, func() bool {
		s, err := n.st.Reader().Status(n.w.t.Context())
		return err == nil && s.Erasures == 0
	}, "it is not overwritten")
}

// A forgotten session that was to be overwritten is in no file of the stores and of the
// streams when that is done, nor in a checkpoint, whichever steps were cut short by a
// crash; everybody else's messages and rows stay, and INGEST has no hole.
func TestForget_Secure(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "removed from EVENTS", "checkpoint written", "before trim", "overwritten in INGEST", "trimmed"} {
		t.Run(strings.ReplaceAll(at, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n, other := w.trimmer(), w.node()
			w.fail(beta, "first")
			w.fail(beta, "second")
			other.start(nil)
			other.finish() // it is registered, so that INGEST is kept from there on
			for round := range 20 {
				w.confess(round)
			}
			n.start(nil)
			n.catchUp()
			skaldtest.Eventually(t, 2*skaldtest.Timeout, func() bool { return n.m.Stats().Checkpoints >= 2 })
			old := w.checkpoints()
			for _, s := range []jetstream.Stream{w.streams.Ingest, w.streams.Events} {
				dir := w.streamDir(s.CachedInfo().Config.Name)
				skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(filesWith(t, dir, []byte(secret))) > 0 })
			}
			chunks := [][]byte{w.chunk(&old[0]), w.chunk(&old[1])}
			for _, c := range chunks {
				require.NotEmpty(t, filesWith(t, w.streamDir("OBJ_"+w.subj.StateBucket()), c))
			}
			n.stop()

			w.say(alpha, bus.ClassControl, `{"op":"forget","secure":true}`)
			w.fail(beta, "last")
			forgotten := func() bool {
				all, err := n.st.Reader().Erasures(t.Context())
				return err == nil && len(all) == 1
			}
			if at != "" {
				n.start(crashAt(at, 1))
				skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return len(n.done) > 0 || forgotten() })
				other.start(nil) // without it INGEST is not trimmed
				require.ErrorIs(t, n.wait(), errCrash)
				other.finish()
			}
			n.start(nil)
			skaldtest.Eventually(t, skaldtest.Timeout, forgotten)
			other.start(nil)
			n.catchUp()
			other.catchUp()
			n.erased()
			other.erased()

			require.Empty(t, filesWith(t, w.o.Dir, []byte(secret)))
			for _, c := range chunks {
				require.Empty(t, filesWith(t, w.o.Dir, c))
			}
			for _, x := range []*node{n, other} {
				require.Empty(t, filesWith(t, filepath.Dir(x.path), []byte(secret)))
			}
			require.Equal(t, n.lines(), other.lines())
			info, err := w.streams.Events.Info(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 43, info.State.Msgs, "beta's")
			require.Empty(t, n.wentBack())
			require.True(t, n.check("ingest_loss").OK)
			require.True(t, other.check("ingest_loss").OK)
			n.stop()
			other.stop()
		})
	}
}

// Where INGEST is not trimmed the session stays on the list, and what it said stays in
// INGEST alone.
func TestForget_SecureUntrimmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	n.start(nil)
	w.confess(1)
	w.say(alpha, bus.ClassControl, `{"op":"forget","secure":true}`)
	n.catchUp()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		all, err := n.st.Reader().Erasures(t.Context())
		return err == nil && len(all) == 1 && all[0].Cut
	})
	require.Empty(t, filesWith(t, w.streamDir(w.subj.EventsStream()), []byte(secret)))
	require.Empty(t, filesWith(t, filepath.Dir(n.path), []byte(secret)))
	n.stop()

	// A store that trims it later ends it.
	n.trims = true
	n.start(nil)
	w.fail(beta, "more")
	n.erased()
	require.Empty(t, filesWith(t, w.o.Dir, []byte(secret)))
	n.stop()
}
