//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skaldbus/skald/bus"
)

// keep saves what a failed test leaves.
func (w *world) keep() {
	if !w.t.Failed() {
		return
	}
	to, err := os.MkdirTemp("", "skald-failed-")
	if err == nil {
		err = os.CopyFS(to, os.DirFS(w.dir))
	}
	for i, p := range w.processes {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, fmt.Sprintf("serve-%d.log", i+1)), []byte(p.text()+"\n"), 0o600))
	}
	w.t.Logf("store, streams and logs were copied to %s (error: %v)", to, err)
}

// note adds to what was done.
func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8s  %6d acknowledged  ", time.Since(w.began).Round(time.Millisecond), w.acked.Load())+fmt.Sprintf(format, args...))
}

// give fails the test with what happened, what was done to the processes, and the
// messages around the one where it shows; without one, the last ones of all
// sessions.
func (w *world) give(what string, f *fault) {
	w.t.Helper()
	w.cancel(nil)
	w.wg.Wait() // plans belong to their publishers until then
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nprocesses:\n", what)
	for _, line := range w.log {
		b.WriteString("  " + line + "\n")
	}
	for _, s := range w.sessions {
		switch {
		case f == nil:
			fmt.Fprintf(&b, "\n%s/%s, last messages:\n%s", s.key.Workspace, s.key.Session, w.messages(s, len(s.plan), 3))
		case f.key == s.key:
			fmt.Fprintf(&b, "\n%s/%s, around message %d:\n%s", s.key.Workspace, s.key.Session, f.number, w.messages(s, f.number, 12))
		}
	}
	w.t.Fatal(b.String())
}

// messages shows the messages of a session around one, a line each, and a line
// with the rows of their facts.
func (w *world) messages(s *session, around, most int) string {
	var b strings.Builder
	from := min(max(0, around-most), len(s.plan))
	for _, m := range s.plan[from:min(len(s.plan), around+most/2)] {
		fmt.Fprintf(&b, "  %d %s %s: %d facts, %d tries, acknowledged %d", m.number, m.class, m.identity(), len(m.facts), m.tries, m.ack)
		if m.held {
			b.WriteString(", ahead of the next")
		}
		if copies := w.copies[m]; len(copies) > 0 {
			fmt.Fprintf(&b, ", INGEST %v", copies)
		}
		if m.last != nil {
			fmt.Fprintf(&b, ", sent again after: %v", m.last)
		}
		if found := w.rowsOf(s.key, m); len(found) > 0 {
			fmt.Fprintf(&b, "\n      read: %s", strings.Join(found, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// rowsOf returns what readers were given of a message's facts, by number.
func (w *world) rowsOf(k bus.Key, m *message) []string {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	var seqs []uint64
	for seq, raw := range w.ledger.rows {
		e, err := bus.ParseEvent([]byte(raw))
		if err == nil && e.Key() == k && slices.ContainsFunc(m.facts, func(f fact) bool { return f.data == string(e.Data) }) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	var found []string
	for _, seq := range seqs {
		head, _, _ := strings.Cut(w.ledger.rows[seq], `,"data":`)
		found = append(found, head+"}")
	}
	return found
}
