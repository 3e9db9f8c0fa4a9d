package materializer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// copying is a running node whose files are copied with cp, part by part, while it writes.
type copying struct {
	*node
	rng   *rand.Rand
	n     int         // messages said
	count int         // the last one of the publisher
	known []*nats.Msg // what was said with an identity
	most  int         // bytes of a message, about
}

// write has some messages more committed, with counts, with ids, and bare.
func (c *copying) write(messages int) {
	c.w.t.Helper()
	var msgs []*nats.Msg
	for range messages {
		c.n++
		k := bus.Key{Workspace: "w", Session: fmt.Sprint("s", c.rng.IntN(5))}
		header := nats.Header{}
		switch c.rng.IntN(4) {
		case 0:
			c.count++
			k = alpha
			header[bus.HeaderPublisher], header[bus.HeaderPublisherSeq] = []string{"p"}, []string{fmt.Sprint(c.count)}
		case 1:
			header[bus.HeaderEventID] = []string{fmt.Sprintf("ascending-%08d", c.n)}
		case 2:
			header[bus.HeaderEventID] = []string{fmt.Sprintf("%016x", c.rng.Uint64())}
		}
		m := &nats.Msg{Subject: c.w.subj.Ingest(k, bus.ClassError), Header: header,
			Data: fmt.Appendf(nil, `{"recorded_at_ms":1,"message":"%d %s"}`, c.n, strings.Repeat("x", c.rng.IntN(c.most)))}
		msgs = append(msgs, m)
		if len(header) > 0 {
			c.known = append(c.known, m)
		}
	}
	c.w.sayAll(msgs)
}

// some is a number of messages: what fits into a page of the file, or into many.
func (c *copying) some() int { return 1 + c.rng.IntN(80) }

// move moves the log into the file, as SQLite does by itself when the log is long, or as
// the store does. What is written next begins the log anew.
func (c *copying) move() {
	t := c.w.t
	t.Helper()
	c.catchUp()
	if c.rng.IntN(2) == 0 {
		require.NoError(t, c.st.Checkpoint(t.Context()))
		return
	}
	other := c.beside()
	_, err := other.Exec("PRAGMA wal_checkpoint(PASSIVE)")
	require.NoError(t, errors.Join(err, other.Close()))
}

// copy copies parts of the files one after the other, and lets something happen between.
// It returns where the copy is.
func (c *copying) copy(parts []string, between func()) (path string) {
	t := c.w.t
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Join(parts, ", then "))
	require.NoError(t, os.Mkdir(dir, 0o700))
	for i, part := range parts {
		if i > 0 {
			between()
		}
		var names []string
		for _, suffix := range strings.Fields(part) {
			names = append(names, c.path+strings.TrimPrefix(suffix, "file"))
		}
		out, err := exec.CommandContext(t.Context(), "cp", append(names, dir)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return filepath.Join(dir, filepath.Base(c.path))
}

// refused reports whether the copy says by itself that it is none, when it is opened or
// audited.
func (n *node) refused() bool {
	n.w.t.Helper()
	found, _, err := n.tryAudit(false)
	if errors.Is(err, store.ErrCorrupt) {
		return true
	}
	require.NoError(n.w.t, err)
	return len(errorsOf(found)) > 0
}

// A plain copy of a store's files, taken while they were written, is no backup: cp reads
// the file and its log at different times. It is refused, or the audit finds fault with
// it, or it is a store that was set back: that goes on to the same table, and knows what
// comes twice. It is never another one without a word.
func TestCopy_WhileWriting(t *testing.T) {
	t.Parallel()
	skaldtest.NeedProgram(t, "cp")
	w := newWorld(t)
	c := &copying{node: w.node(), rng: rand.New(rand.NewPCG(seed(t), 0)), most: 1000}
	c.start(nil)
	nothing := func() {}
	write := func() { c.write(c.some()) }
	moved := func() { c.write(c.some()); c.move(); c.write(c.some()) }
	twice := func() { moved(); moved() }
	fileFirst, logFirst := []string{"file", "-wal"}, []string{"-wal -shm", "file"}
	c.write(200)
	c.catchUp()
	// Of the rows in between neither has any.
	lacking := c.copy(fileFirst, func() { c.write(200); c.move(); c.write(1); c.catchUp() })
	copies := []string{c.copy([]string{"file"}, nothing), c.copy(fileFirst, moved), c.copy(logFirst, moved), c.copy([]string{"file -wal -shm"}, nothing)}
	if long() {
		for range 8 {
			for _, between := range []func(){nothing, write, moved, func() { c.move(); write() }, twice} {
				for _, parts := range [][]string{{"file"}, fileFirst, {"-wal", "file"}, logFirst, {"file -wal -shm"}} {
					write()
					copies = append(copies, c.copy(parts, between))
				}
			}
		}
	}
	c.catchUp()
	want := rawTable(t, c.path)
	c.stop()

	n := w.node()
	n.path = lacking
	require.True(t, n.refused(), "the copy lacks rows")
	whole := 0
	for _, n.path = range copies {
		if n.refused() {
			continue
		}
		whole++
		n.start(nil)
		n.catchUp()
		same(t, "the table of "+n.path, want, rawTable(t, n.path))
		for at := 0; at < len(c.known); at += 1000 {
			w.sayAll(c.known[at:min(len(c.known), at+1000)])
		}
		n.catchUp()
		same(t, "the table after repetitions of "+n.path, want, rawTable(t, n.path))
		found, _ := n.audit()
		require.Empty(t, errorsOf(found), n.path)
		n.stop()
	}
	t.Logf("of %d copies %d went on, the others were found", len(copies), whole)
	require.NotZero(t, whole, "the file alone is a store that was set back")
}
