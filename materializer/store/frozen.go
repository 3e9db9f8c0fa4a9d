package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	lib "modernc.org/sqlite/lib"
)

// A file in WAL mode that was closed cleanly has neither log nor index, and a reader
// has to make the index; where it may not write the directory it can only read the
// file as one that nobody writes. SQLite then takes no locks and looks at no log, so
// a service that starts meanwhile would go unnoticed: the reader compares the file
// before and after each answer, and opens it anew if it is not the same.

// fingerprint is the file as it was when it was opened frozen.
type fingerprint struct {
	info    fs.FileInfo
	size    int64
	changes time.Time
}

// takeFingerprint returns an error if the file has a log: then it is not at rest.
func takeFingerprint(path string) (*fingerprint, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(walPath(path)); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errors.New("it has a write-ahead log"), err)
	}
	return &fingerprint{info: st, size: st.Size(), changes: st.ModTime()}, nil
}

// changed reports whether the file is not at rest any more. A nil fingerprint is that
// of a file that is not read as frozen, and never changes.
func (f *fingerprint) changed(path string) bool {
	if f == nil {
		return false
	}
	now, err := takeFingerprint(path)
	return err != nil || !os.SameFile(f.info, now.info) || f.size != now.size || !f.changes.Equal(now.changes)
}

// needsDirectory reports whether reading failed since the log's index could not be
// made: SQLITE_READONLY_DIRECTORY or SQLITE_CANTOPEN.
func needsDirectory(err error) bool {
	c := code(err)
	return c&0xFF == lib.SQLITE_CANTOPEN || c&0xFF == lib.SQLITE_READONLY
}

// openFrozen reads the file as one that nobody writes, if it is at rest. cause is why
// it could not be opened otherwise.
func (r *Reader) openFrozen(ctx context.Context, cause error) error {
	f, err := takeFingerprint(r.path)
	if err != nil {
		return fmt.Errorf("open for reading: %w (and as a file at rest: %w)", cause, err)
	}
	p, err := openReaders(ctx, r.path, frozenParams)
	if err != nil {
		return wrap("open for reading as a file at rest", err)
	}
	r.pool, r.frozen = p, f
	return nil
}

// reopen opens the file anew, as it is now.
func (r *Reader) reopen(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pool, frozen := r.pool, r.frozen
	if err := r.open(ctx); err != nil {
		r.pool, r.frozen = pool, frozen
		return err
	}
	return pool.close()
}
