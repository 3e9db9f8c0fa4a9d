//go:build linux

package torture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// The faults that take files away or set them back: of a store, and of JetStream.

// holder is the process that holds JetStream's files.
func (f *fleet) holder() *process {
	if f.broker != nil {
		return f.broker
	}
	return f.stores[0].process
}

// stopped kills what holds JetStream's files, lets do work on them, and starts it again.
func (f *fleet) stopped(do func() error) error {
	h := f.holder()
	h.kill()
	err := do()
	f.restart(h)()
	return err
}

func (f *fleet) single() bool {
	return len(f.stores) == 1 && f.holder().running() && f.stores[0].running()
}

// copyJetStream keeps a copy of JetStream's directory as a crash leaves it.
func (f *fleet) copyJetStream() (func(), string) {
	if !f.holder().running() {
		return nil, ""
	}
	to := filepath.Join(f.dir, "jetstream-copy")
	err := f.stopped(func() error {
		return replaceDir(to, f.jsDir())
	})
	if err != nil {
		f.broken("copy JetStream: %v", err)
	}
	f.jsOld = to
	return nil, f.holder().name
}

// restoreJetStream sets JetStream back to the copy: it loses what it acknowledged since.
// A copy of the store that is as old would be a second loss of the same data, and so would
// a number that a reader of EVENTS was given and no table has: that is why it is quiet.
func (f *fleet) restoreJetStream() (func(), string) {
	if !f.holder().running() || f.jsOld == "" {
		return nil, ""
	}
	f.ledger.ingestLost()
	defer f.quiet()()
	if end, err := f.eventsEnd(); err == nil {
		f.lostTo = max(f.lostTo, end)
	}
	err := f.stopped(func() error {
		f.setBacks.Add(1)
		return replaceDir(f.jsDir(), f.jsOld)
	})
	if err != nil {
		f.broken("set JetStream back: %v", err)
	}
	for _, s := range f.stores {
		s.old = ""
	}
	return nil, f.holder().name
}

// loseUnread has INGEST lose messages that it has acknowledged while no store ran, and
// nothing else. No store can notice: those messages are where their publishers keep them,
// or nowhere.
func (f *fleet) loseUnread() (func(), string) {
	for _, s := range f.stores {
		s.kill()
	}
	f.holder().kill()
	ingest := f.streamDir(streams()[0])
	copied := filepath.Join(f.dir, "ingest-copy")
	if ingest == "" || replaceDir(copied, ingest) != nil {
		f.broken("copy INGEST: %q", ingest)
		return nil, "not copied"
	}
	keeper := f.broker
	if keeper == nil {
		// What serve has embedded, without a materializer.
		keeper = f.natsServer("keeper", filepath.Join(f.stores[0].data, "jetstream"))
		defer keeper.kill()
	}
	f.restart(keeper)()
	const unread = 20
	var from, now uint64
	f.await("INGEST grows by what outboxes keep", func() error {
		n, err := f.fromOutboxes()
		if err != nil {
			return err
		}
		if now = n; from == 0 {
			from = now
		}
		if now < from+unread {
			return fmt.Errorf("from %d to %d", from, now)
		}
		return nil
	})
	keeper.kill()
	if err := replaceDir(ingest, copied); err != nil {
		f.broken("set INGEST back: %v", err)
	}
	if f.broker != nil {
		f.restart(f.broker)()
	}
	for _, s := range f.stores {
		f.restart(s.process)()
	}
	return nil, fmt.Sprintf("more than %d messages", now-from)
}

// fromOutboxes counts the messages without a chain that INGEST holds from workers with an
// outbox. What comes after one that is lost is applied without it.
func (f *fleet) fromOutboxes() (uint64, error) {
	st, err := f.js.Stream(f.ctx, streams()[0])
	if err != nil {
		return 0, err
	}
	info, err := st.Info(f.ctx, jetstream.WithSubjectFilter("skald.in.>"))
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, a := range f.ledger.snapshot() {
		for _, class := range []string{"activity", "error", "session"} {
			if a.outbox {
				n += info.State.Subjects[a.subject(class)]
			}
		}
	}
	return n, nil
}

func replaceDir(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// loseIngest and loseEvents take a stream's files away, and repair as serve says then.
func (f *fleet) loseIngest() (func(), string) {
	f.ledger.ingestLost()
	return f.loseStream(streams()[0])
}

func (f *fleet) loseEvents() (func(), string) { return f.loseStream(streams()[1]) }

// streamDir is where JetStream keeps the stream.
func (f *fleet) streamDir(name string) string {
	for _, above := range []string{"*", "*/*"} { // serve has a directory of its own around it
		if found, err := filepath.Glob(filepath.Join(f.jsDir(), above, "streams", name)); err == nil && len(found) == 1 {
			return found[0]
		}
	}
	f.broken("find the directory of %s", name)
	return ""
}

func (f *fleet) loseStream(name string) (func(), string) {
	if !f.single() || f.broker != nil {
		return nil, ""
	}
	s := f.stores[0]
	defer f.quiet()()
	s.kill()
	f.setBacks.Add(1)
	os.RemoveAll(f.streamDir(name))
	s.old, f.jsOld = "", ""
	out, err := exec.CommandContext(f.ctx, f.bin, "repair", "--data", s.data, "--yes").CombinedOutput()
	if err != nil {
		f.broken("repair: %v: %s", err, out)
	}
	f.restart(s.process)()
	return nil, fmt.Sprintf("%s: %s", name, lastLine(string(out)))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// files are those of a store.
func files(dir string) []string {
	all, _ := filepath.Glob(filepath.Join(dir, "skald.db*"))
	return slices.DeleteFunc(all, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.IsDir() // a checkpoint that a kill has interrupted
	})
}

func copyFiles(from []string, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range from {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyStore keeps a copy of a store's files as a crash leaves them.
func (f *fleet) copyStore() (func(), string) {
	s := f.some()
	if s == nil {
		return nil, ""
	}
	s.kill()
	to := s.data + "-copy"
	os.RemoveAll(to)
	if err := copyFiles(files(s.data), to); err != nil {
		f.broken("copy %s: %v", s.name, err)
	}
	s.old = to
	return f.restart(s.process), s.name
}

// restoreStore sets a store back to the copy.
func (f *fleet) restoreStore() (func(), string) {
	s := f.some()
	if s == nil || s.old == "" {
		return nil, ""
	}
	s.kill()
	s.setBacks.Add(1)
	for _, name := range files(s.data) {
		os.Remove(name)
	}
	if err := copyFiles(files(s.old), s.data); err != nil {
		f.broken("restore %s: %v", s.name, err)
	}
	return f.restart(s.process), s.name
}

// loseStore takes a store's files away.
func (f *fleet) loseStore() (func(), string) {
	s := f.some()
	if s == nil {
		return nil, ""
	}
	s.kill()
	s.setBacks.Add(1)
	for _, name := range files(s.data) {
		os.Remove(name)
	}
	return f.restart(s.process), s.name
}
