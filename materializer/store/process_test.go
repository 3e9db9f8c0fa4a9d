package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/materializer/store"
)

// The test binary plays another process if childMode is set.
const (
	childMode = "SKALD_STORE_TEST_MODE"
	childPath = "SKALD_STORE_TEST_PATH"
)

// playChild is the other process. It says one line for each thing done: "opened", then
// what it has written or read.
//
//	write  commits one row after the other, without end
//	read   reads all rows for each line it is given, and says how many and how it reads
//	open   opens for writing, and says the error's kind
func playChild(mode, path string) int {
	ctx := context.Background()
	switch mode {
	case "write":
		s, err := store.Open(path, store.Options{})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("opened")
		p, err := s.Reader().Position(ctx)
		for seq := p.EventsSeq + 1; err == nil; seq++ {
			if err = s.Commit(ctx, &store.Commit{Position: at(seq, seq), Rows: []store.Row{row(seq, alpha, "error")}}); err == nil {
				fmt.Println(seq)
			}
		}
		fmt.Println("error", err)
		return 1
	case "read":
		r, err := store.OpenReader(path)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		defer r.Close()
		fmt.Println("opened")
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			n, err := count(ctx, r)
			if err != nil {
				fmt.Println("error", err)
				continue
			}
			fmt.Println(n, r.Frozen())
		}
		return 0
	case "open":
		s, err := store.Open(path, store.Options{})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("opened")
		if err := s.Close(); err != nil {
			fmt.Println("error", err)
			return 1
		}
		return 0
	}
	return 2
}

// count walks the table and fails if a row has not its own number.
func count(ctx context.Context, r *store.Reader) (int, error) {
	n := 0
	q := store.PageQuery{After: after(0), Limit: store.MaxLimit}
	for {
		p, err := r.Page(ctx, q)
		if err != nil {
			return n, err
		}
		for _, e := range p.Events {
			if want := fmt.Sprintf(`{"n":%d}`, e.Seq); string(e.Data) != want {
				return n, fmt.Errorf("row %d holds %s", e.Seq, e.Data)
			}
			n++
		}
		if len(p.Events) == 0 && p.NextAfter == p.Latest {
			return n, nil
		}
		q.After = after(p.NextAfter)
	}
}

// child is a running other process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts the test binary in a mode. unprivileged lets it run as a user who owns
// nothing, which needs root; without root it runs as the present user.
func start(t *testing.T, unprivileged bool, mode, path string) *child {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	c := &child{cmd: exec.Command(binary)}
	if unprivileged && os.Getuid() == 0 {
		// The binary's own directory is closed to others.
		dir := shared(t)
		b, err := os.ReadFile(binary)
		require.NoError(t, err)
		c.cmd = exec.Command(filepath.Join(dir, "child"))
		require.NoError(t, os.WriteFile(c.cmd.Path, b, 0o755))
		c.cmd.Dir = "/"
		dropPrivileges(c.cmd)
	}
	c.cmd.Env = append(os.Environ(), childMode+"="+mode, childPath+"="+path)
	c.cmd.Stderr = t.Output()
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewScanner(out)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// shared returns a directory that every user may enter.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

// line returns the next line that the process says.
func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.out.Scan(), "the other process has ended")
	return c.out.Text()
}

// ask lets a reading process read, and returns how many rows it saw and whether it
// took the file for one that nobody writes.
func (c *child) ask(t *testing.T) (rows int, frozen bool) {
	t.Helper()
	_, err := io.WriteString(c.in, "\n")
	require.NoError(t, err)
	n, kind, ok := strings.Cut(c.line(t), " ")
	require.True(t, ok)
	rows, err = strconv.Atoi(n)
	require.NoError(t, err, kind)
	return rows, kind == "true"
}

// What Commit has acknowledged is there after the process is killed, whole, and a
// reader in another process has seen no more than that and one commit.
func TestCommit_SurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	acknowledged := 0
	for round := range 5 {
		w := start(t, false, "write", path)
		require.Equal(t, "opened", w.line(t))
		for range 20 + 30*round {
			n, err := strconv.Atoi(w.line(t))
			require.NoError(t, err)
			acknowledged = n
		}
		require.NoError(t, w.cmd.Process.Kill())
		for w.out.Scan() {
			n, err := strconv.Atoi(w.out.Text())
			require.NoError(t, err)
			acknowledged = n
		}
		w.cmd.Wait()

		// Beside the killed writer's log, and without anybody having cleaned up.
		r, err := store.OpenReader(path)
		require.NoError(t, err)
		n, err := count(t.Context(), r)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, acknowledged)
		require.LessOrEqual(t, n, acknowledged+1)
		st := status(t, r)
		require.EqualValues(t, n, st.EventsSeq, "rows and position are one transaction")
		require.EqualValues(t, n, st.IngestSeq)
		require.NoError(t, r.Close())
	}
}

// A reader in another process follows a running writer, and never sees it closed.
func TestReader_BesideRunningWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	r := start(t, false, "read", path)
	require.Equal(t, "opened", r.line(t))
	for seq := uint64(2); seq < 30; seq++ {
		put(t, s, row(seq, alpha, "error"))
		rows, frozen := r.ask(t)
		require.EqualValues(t, seq, rows, "a commit is seen by the next read")
		require.False(t, frozen)
	}
	require.NoError(t, s.Close())
	rows, _ := r.ask(t)
	require.Equal(t, 29, rows)
	s = openAt(t, path)
	put(t, s, row(30, alpha, "error"))
	rows, _ = r.ask(t)
	require.Equal(t, 30, rows)
}

// Where a user may read the file but not write its directory, the reader works beside
// a running writer, after a killed one and after one that closed the store; and it
// notices when a service comes back.
func TestReader_InUnwritableDirectory(t *testing.T) {
	dir := shared(t)
	path := filepath.Join(dir, "skald.db")
	s, err := store.Open(path, options(t))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o644)) // the umask of a service whose readers are others
	require.NoError(t, s.Close())
	s = openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	if os.Getuid() != 0 {
		require.NoError(t, os.Chmod(dir, 0o555))
		t.Cleanup(func() { os.Chmod(dir, 0o755) })
	}
	read := func(rows int, frozen bool) *child {
		t.Helper()
		r := start(t, true, "read", path)
		require.Equal(t, "opened", r.line(t))
		n, f := r.ask(t)
		require.Equal(t, rows, n)
		require.Equal(t, frozen, f)
		return r
	}
	besideWriter := read(1, false)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, besideWriter.in.Close())
	require.NoError(t, besideWriter.cmd.Wait())
	require.NoError(t, s.Close())
	require.NoFileExists(t, path+"-wal")

	atRest := read(1, true)
	again := read(1, true)
	s = openAt(t, path)
	put(t, s, row(2, alpha, "error"), row(3, beta, "error"))
	rows, frozen := atRest.ask(t)
	require.Equal(t, 3, rows, "a reader of a file at rest notices that it came to life")
	require.False(t, frozen)
	require.NoError(t, atRest.in.Close())
	require.NoError(t, atRest.cmd.Wait())
	put(t, s, row(4, alpha, "error"))
	require.NoError(t, s.Close())
	require.NoFileExists(t, path+"-wal")
	rows, frozen = again.ask(t)
	require.Equal(t, 4, rows, "also if the service has come and gone meanwhile")
	require.True(t, frozen)

	// Killed: log and index stay.
	w := start(t, false, "write", path)
	require.Equal(t, "opened", w.line(t))
	require.Equal(t, "5", w.line(t))
	require.NoError(t, w.cmd.Process.Kill())
	w.cmd.Wait()
	require.FileExists(t, path+"-wal")
	r := start(t, true, "read", path)
	require.Equal(t, "opened", r.line(t))
	rows, frozen = r.ask(t)
	require.GreaterOrEqual(t, rows, 5)
	require.False(t, frozen)
}

// A user who may not write the file or its directory is told so, whether or not the
// file is there.
func TestOpen_NamesMissingPermission(t *testing.T) {
	dir := shared(t)
	path := filepath.Join(dir, "skald.db")
	refused := func(path string) {
		t.Helper()
		if os.Getuid() != 0 {
			require.NoError(t, os.Chmod(dir, 0o555))
			defer os.Chmod(dir, 0o755)
		}
		c := start(t, true, "open", path)
		require.Contains(t, c.line(t), store.ErrReadOnly.Error())
	}
	refused(path)
	require.NoFileExists(t, path)
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(path, 0o444))
	refused(path)
	if os.Getuid() == 0 {
		// The file is writable, the directory is not.
		require.NoError(t, os.Chmod(path, 0o666))
		refused(path)
		// The directory is writable, the file is not.
		require.NoError(t, os.Chmod(path, 0o444))
		require.NoError(t, os.Chmod(dir, 0o777))
		refused(path)
	}
	require.NoError(t, os.Chmod(path, 0o644))
	require.Len(t, walk(t, openAt(t, path).Reader(), store.PageQuery{}), 1)
}

// A service loses the right to write its files and their directory while it runs. It has
// them open, so what it acknowledges is kept; its next start is refused and says why; and
// when the right is back nothing is missing.
func TestCommit_PermissionLost(t *testing.T) {
	dir := shared(t)
	if os.Getuid() == 0 {
		require.NoError(t, os.Chmod(dir, 0o777)) // the child is another user
	}
	path := filepath.Join(dir, "skald.db")
	w := start(t, true, "write", path)
	require.Equal(t, "opened", w.line(t))
	number := func(line string) int {
		t.Helper()
		n, err := strconv.Atoi(line)
		require.NoError(t, err, line)
		return n
	}
	for number(w.line(t)) < 10 {
	}
	modes := map[string]os.FileMode{dir: 0o555, path: 0o444, path + "-wal": 0o444, path + "-shm": 0o444}
	for name, mode := range modes {
		require.NoError(t, os.Chmod(name, mode))
	}
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	acknowledged := 0
	for acknowledged < 200 {
		acknowledged = number(w.line(t))
	}
	require.NoError(t, w.cmd.Process.Kill())
	for w.out.Scan() {
		acknowledged = number(w.out.Text())
	}
	w.cmd.Wait()

	c := start(t, true, "open", path)
	require.Contains(t, c.line(t), store.ErrReadOnly.Error())
	for name := range modes {
		require.NoError(t, os.Chmod(name, 0o777))
	}
	c = start(t, true, "open", path)
	require.Equal(t, "opened", c.line(t))
	require.NoError(t, c.cmd.Wait())
	r, err := store.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	n, err := count(t.Context(), r)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, acknowledged)
	require.LessOrEqual(t, n, acknowledged+1)
}
