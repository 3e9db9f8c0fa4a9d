//go:build linux

package torture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// late are the stores that join a fleet when the others have run for long, and what they
// start from.
type late struct {
	*fleet
	from   string // the directory of the backup
	backup struct {
		Latest uint64 `json:"latest_seq"`
		Ingest uint64 `json:"ingest_seq"`
	}
	restored, empty *store
	started         time.Time // they
	listed          time.Time // when the stores were listed last
}

// Three serve with stores of their own beside a nats-server are hurt all the time. Halfway
// one of the stores is backed up. When the others have trimmed INGEST beyond that, and the
// end is near, one more serve starts from the backup and one from nothing, and they are hurt
// as well. At the end all five tables are the same bytes, and EVENTS.
//
// It takes 20 seconds, or 10 minutes with SKALD_TEST_LONG=1, or at most those if
// SKALD_TORTURE_FOR says how long; from a minute on with the faults of the long run.
func TestTorture_LateStores(t *testing.T) {
	const most = 10 * time.Minute
	d := 20 * time.Second
	if os.Getenv("SKALD_TEST_LONG") != "" {
		d = most
	}
	d = min(duration(t, d), most)
	seed := firstSeed(t)
	t.Logf("SKALD_TEST_SEED=%d", seed)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f := newFleet(t, ctx, seed)
	f.every = d >= time.Minute
	l := &late{fleet: f}
	// The longer, the slower, so that five tables can be held and compared.
	f.start(plan{stores: 3, outside: true, pause: max(50, int(d.Seconds())/3)})
	f.torture(d,
		step{"a backup is taken", d / 2, l.backUp},
		step{"INGEST is trimmed beyond the backup", d / 2, l.trimmed},
		step{"the late stores start", d * 4 / 5, l.begin},
		step{"the late stores are hurt", 0, func() bool { return time.Since(l.started) > d/5 }},
	)
	l.happened("no more faults")
	f.finish()
	l.happened("checked")
	l.startedLate()
	f.stop()
	rows, sum := f.compareDumps()
	t.Logf("%d stores hold the same %d rows, %s, as EVENTS does", len(f.stores), rows, sum)
}

// backUp takes a backup of one of the stores, while it is written.
func (l *late) backUp() bool {
	s := l.some()
	if s == nil {
		return false
	}
	l.from = filepath.Join(l.dir, "backup")
	cmd := exec.CommandContext(l.ctx, l.bin, "backup", "--json", "--data", s.data, l.from)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &l.backup)
	}
	if err != nil || l.backup.Latest == 0 {
		l.give(fmt.Sprintf("back up %s: %v: %s%s", s.name, err, out, &said))
	}
	l.happened("backup of %s: numbers to %d, INGEST to %d", s.name, l.backup.Latest, l.backup.Ingest)
	return true
}

// trimmed reports whether INGEST begins so late that the backup can not be read on from.
func (l *late) trimmed() bool {
	first := l.begins()
	if first <= l.backup.Ingest+1 {
		l.removeLost()
		return false
	}
	l.happened("INGEST begins at %d", first)
	return true
}

// removeLost does what an operator has to when a store was lost: what stands for it in the
// list of stores holds the trim. The store that came in its place has the same label.
func (l *late) removeLost() {
	if time.Since(l.listed) < 3*time.Second {
		return
	}
	l.listed = time.Now()
	out, err := exec.CommandContext(l.ctx, l.bin, "replicas", "--json", "--server", "nats://"+l.natsAt).Output()
	if err != nil {
		return // the broker is hurt
	}
	type entry struct {
		ID, Label string
		SeenAt    int64 `json:"seen_at_ms"`
	}
	newest := map[string]entry{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var e entry
		if err := d.Decode(&e); err != nil {
			return // the end
		}
		gone := newest[e.Label]
		if e.SeenAt > gone.SeenAt {
			newest[e.Label] = e
		} else {
			gone = e
		}
		if gone.ID == "" {
			continue
		}
		out, err := exec.CommandContext(l.ctx, l.bin, "replicas", "rm", gone.ID, "--force", "--server", "nats://"+l.natsAt).CombinedOutput()
		l.note("the lost store's entry %s: %v %s", gone.ID, err, bytes.TrimSpace(out))
	}
}

// begins is where INGEST begins, 0 while the broker is hurt.
func (l *late) begins() uint64 {
	ctx, cancel := context.WithTimeout(l.ctx, time.Second)
	defer cancel()
	st, err := l.js.Stream(ctx, streams()[0])
	if err != nil {
		return 0
	}
	return st.CachedInfo().State.FirstSeq
}

// begin starts two more stores.
func (l *late) begin() bool {
	if l.begins() <= l.backup.Ingest+1 {
		l.removeLost() // JetStream was set back since, and the list with it
		return false
	}
	l.restored, l.empty = l.makeStore(len(l.stores)), l.makeStore(len(l.stores)+1)
	out, err := exec.CommandContext(l.ctx, l.bin, "restore", "--replica", "--data", l.restored.data, l.from).CombinedOutput()
	if err != nil {
		l.give(fmt.Sprintf("restore: %v: %s", err, out))
	}
	for _, s := range []*store{l.restored, l.empty} {
		l.join(s)
	}
	l.started = time.Now()
	l.happened("%s starts from the backup, %s from nothing", l.restored.name, l.empty.name)
	return true
}

// join starts a store that the fleet has not had.
func (f *fleet) join(s *store) {
	f.restart(s.process)()
	f.mu.Lock()
	f.stores = append(f.stores, s)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(f.ctx)
	before := f.unwatch
	f.unwatch = func() { cancel(); before() }
	f.wg.Go(func() { f.watchStore(ctx, s) })
}

// happened notes what the schedule does not say when all goes well.
func (l *late) happened(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	l.note("%s", what)
	l.t.Logf("after %.1fs: %s", time.Since(l.began).Seconds(), what)
}

// startedLate requires that the stores have begun where they were to begin, and could not
// read on from there.
func (l *late) startedLate() {
	l.t.Helper()
	for _, x := range []struct {
		s           *store
		ingest, seq uint64
	}{{l.restored, l.backup.Ingest, l.backup.Latest}, {l.empty, 0, 0}} {
		said, err := os.ReadFile(x.s.log)
		if err != nil {
			l.give(err.Error())
		}
		taken := false
		for line := range bytes.Lines(said) {
			var took struct {
				Msg    string  `json:"msg"`
				Ingest *uint64 `json:"ingest_seq"`
				Seq    *uint64 `json:"seq"`
			}
			if json.Unmarshal(line, &took) == nil && took.Msg == "the store takes a checkpoint" {
				taken = taken || *took.Ingest == x.ingest && *took.Seq == x.seq
			}
		}
		if !taken {
			l.give(fmt.Sprintf("%s has taken no checkpoint at number %d and INGEST %d", x.s.name, x.seq, x.ingest))
		}
	}
}

// stop stops the stores as an operator would.
func (f *fleet) stop() {
	f.t.Helper()
	f.unwatch() // they answer no longer
	for _, s := range f.stores {
		s.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // what it ends with tells
	}
	for _, s := range f.stores {
		f.await(s.name+" stops", func() error {
			if s.running() {
				return fmt.Errorf("it runs")
			}
			return nil
		})
		if s.err != nil {
			f.give(fmt.Sprintf("%s stopped with %v", s.name, s.err))
		}
	}
}
