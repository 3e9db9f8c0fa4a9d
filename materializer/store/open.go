package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	lib "modernc.org/sqlite/lib"
)

// readerConnections is how many snapshots one process reads at a time.
const readerConnections = 4

// Options are the settings of a store that writes.
type Options struct {
	// Logger takes notes of files made and schemas changed. Defaults to none.
	Logger *slog.Logger
}

// Store is the one writer of a file. Its methods are safe for concurrent use and
// wait for each other: one transaction at a time. A context that ends while a
// transaction runs does not interrupt it.
type Store struct {
	path        string
	log         *slog.Logger
	writer      *pool
	reader      *Reader
	rejectBytes int64 // MaxRejectBytes, unless a test lowers it

	mu     sync.Mutex // one transaction at a time; guards what follows, all of it as committed
	head   head
	mark   Mark // the newest of marks
	cache  sessionCache
	closed bool
	pruned uint64 // rows up to here that are still there wait for Removed, not for PruneStep
}

// Open opens the store at path for writing, makes it if there is no file or an
// empty one, and brings an older schema up to date. The directory must exist. There
// must be no other writer: the caller holds a lock on the directory. The error is
// [ErrNotDatabase], [ErrNewer], [ErrReadOnly], [ErrCorrupt] or [ErrNetworkFile]
// where it is one of these; a file that is not a store of this version or an older
// one is left as it is.
func Open(path string, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{log: o.Logger, rejectBytes: MaxRejectBytes}
	if err := s.open(context.Background(), path); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	// Connections are opened again later, so a relative path must not follow the
	// process to another directory.
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s.path = abs
	if err := checkFilesystem(filepath.Dir(abs)); err != nil {
		return err
	}
	if err := s.prepareFile(ctx); err != nil {
		return err
	}
	if s.writer, err = openPool(abs, writerParams, 1); err != nil {
		return err
	}
	var mode string
	if err := s.writer.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return wrapOpen("switch to the write-ahead log", err)
	}
	if mode != "wal" {
		return fmt.Errorf("switch to the write-ahead log: the journal mode stays %s", mode)
	}
	if err := s.writer.prepare(ctx, writerTexts()); err != nil {
		return err
	}
	s.reader = &Reader{path: abs, shared: true, examine: maxExamined}
	if s.reader.pool, err = openPool(abs, readerParams, readerConnections); err != nil {
		return err
	}
	if err := s.reader.pool.prepare(ctx, readerTexts()); err != nil {
		return err
	}
	err = s.write(ctx, "read position", func(ctx context.Context, t *tx) (err error) {
		if s.head, err = readHead(ctx, t); err == nil {
			s.mark, err = newestMark(ctx, t)
		}
		return err
	})
	if err != nil {
		return err
	}
	// A file that may only be read opens without an error, and lets transactions
	// begin: the first write would tell, when messages have been taken on already.
	err = s.write(ctx, "try to write", func(ctx context.Context, t *tx) error { return s.head.write(ctx, t) })
	if errors.Is(err, ErrFull) {
		return nil // passes without anyone opening the store again
	}
	return err
}

// prepareFile makes the file or brings its schema up to date. It does so on a
// connection of its own that sets nothing in the file, so that another program's
// database is recognized before it is touched.
func (s *Store) prepareFile(ctx context.Context) error {
	params := probeParams
	size, err := fileSize(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		params = createParams
		if _, err := os.Stat(filepath.Dir(s.path)); err != nil {
			return err
		}
	case err != nil:
		return err
	case size == 0:
		params = createParams
	}
	p, err := openPool(s.path, params, 1)
	if err != nil {
		return err
	}
	found, err := migrate(ctx, p, s.restrict)
	if err = errors.Join(err, p.close()); err != nil {
		return wrapOpen("prepare file", err)
	}
	switch {
	case found == 0:
		s.log.InfoContext(ctx, "store made", "path", s.path, "schema", schemaVersion())
	case found < schemaVersion():
		s.log.InfoContext(ctx, "store brought up to date", "path", s.path, "from", found, "schema", schemaVersion())
	}
	return nil
}

// fileSize returns the file's size in bytes, and ErrNotDatabase for what can be none
// by its kind or length. SQLite takes a file shorter than the smallest database for an
// empty one, and would write over it.
func fileSize(path string) (int64, error) {
	const smallest = 512 // one page of the least size
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return 0, err
	case !st.Mode().IsRegular():
		return 0, fmt.Errorf("%w: not a regular file but %s", ErrNotDatabase, st.Mode().Type())
	case 0 < st.Size() && st.Size() < smallest:
		return 0, fmt.Errorf("%w: it is only %d bytes long", ErrNotDatabase, st.Size())
	}
	return st.Size(), nil
}

// restrict takes from a file that SQLite has just made what others could do with
// it. The umask decided what owner and group may; -wal and -shm take the file's
// permissions. By path, since opening and closing the file drops SQLite's locks.
func (s *Store) restrict() error {
	st, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	return os.Chmod(s.path, st.Mode().Perm()&0o640)
}

// wrapOpen is wrap for errors of opening a file that is known to exist, or whose
// directory is: then SQLite's "unable to open" is a matter of permissions.
func wrapOpen(doing string, err error) error {
	if code(err)&0xFF == lib.SQLITE_CANTOPEN {
		return fmt.Errorf("%s: %w: %w", doing, ErrReadOnly, err)
	}
	return wrap(doing, err)
}

// Reader returns the store's readers, which are closed with the store. It never
// fails, and is the same at each call.
func (s *Store) Reader() *Reader { return s.reader }

// Close closes the store and its readers. What was committed is durable without it;
// it moves the log into the file. A second call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	// The writer last: the last connection that may write moves the log into the
	// file and removes it.
	if s.reader != nil && s.reader.pool != nil {
		errs = append(errs, s.reader.pool.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(errs...)
}
