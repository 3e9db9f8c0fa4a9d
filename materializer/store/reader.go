package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	lib "modernc.org/sqlite/lib"
)

// How often, and how long apart at first, a reader tries again what passes by itself.
const (
	readAttempts = 6
	readPause    = 5 * time.Millisecond // doubled each time
)

// Reader reads a store, each answer in one snapshot. It is safe for concurrent use.
type Reader struct {
	path    string // absolute
	shared  bool   // with a Store, which closes it
	examine int    // maxExamined, unless a test lowers it

	mu     sync.RWMutex // held for reading while a snapshot is open
	pool   *pool
	frozen *fingerprint // the file as it was opened, if it is read as one that nobody writes
}

// OpenReader opens the store at path for reading, without a lock, beside a service in
// another process or without one. It never changes the file. The error is [ErrNoStore],
// [ErrNotDatabase], [ErrNewer] or [ErrCorrupt] where it is one of these. The caller
// closes the reader.
func OpenReader(path string) (*Reader, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	r := &Reader{path: abs, examine: maxExamined}
	if err := r.open(context.Background()); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return r, nil
}

func (r *Reader) open(ctx context.Context) error {
	_, err := fileSize(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNoStore, err)
	}
	if err != nil {
		return err
	}
	r.frozen = nil
	r.pool, err = openReaders(ctx, r.path, readerParams)
	switch {
	case err == nil:
		return nil
	case needsDirectory(err):
		return r.openFrozen(ctx, err)
	}
	return wrap("open for reading", err)
}

// openReaders returns a pool that is ready to read, if the file is a store of a
// schema that this program reads.
func openReaders(ctx context.Context, path, params string) (*pool, error) {
	p, err := openPool(path, params, readerConnections)
	if err != nil {
		return nil, err
	}
	id, err := identify(ctx, p.db)
	switch {
	case err != nil:
	case id.empty():
		err = fmt.Errorf("%w: the file is empty", ErrNoStore)
	case id.version < schemaVersion() && id.check() == nil:
		err = fmt.Errorf("%w: its schema is %d, this program reads %d; the service brings it up to date", ErrNoStore, id.version, schemaVersion())
	default:
		if err = id.check(); err == nil {
			err = p.prepare(ctx, readerTexts())
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// Close closes the reader. That of a [Store] stays open until the store is closed.
func (r *Reader) Close() error {
	if r.shared {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool.close()
}

// view runs fn in a snapshot, and again where it failed for a reason that passes. fn
// returns what it read, and nothing else of it stays.
func view[T any](ctx context.Context, r *Reader, doing string, fn func(context.Context, *tx) (T, error)) (T, error) {
	pause := readPause
	for attempt := 1; ; attempt++ {
		v, stale, err := snapshot(ctx, r, fn)
		switch {
		case stale:
			// The file came to life: nothing that was read counts.
			if err := r.reopen(ctx); err != nil {
				return v, fmt.Errorf("%s: %w", doing, err)
			}
		case err == nil:
			return v, nil
		case ctx.Err() != nil:
			// What fails then has many names, of which "statement is closed" is one.
			return v, fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		case !passes(err):
			return v, wrap(doing, err)
		}
		if attempt == readAttempts {
			if err == nil {
				err = ErrBusy
			}
			return v, wrap(doing, err)
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// snapshot runs fn once. stale says that the file is not what the reader has opened.
func snapshot[T any](ctx context.Context, r *Reader, fn func(context.Context, *tx) (T, error)) (v T, stale bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.frozen.changed(r.path) {
		return v, true, nil
	}
	t, err := r.pool.begin(ctx, true)
	if err == nil {
		// A snapshot has nothing to lose, and a context that ended has rolled back.
		defer t.Rollback()
		v, err = fn(ctx, t)
	}
	if err != nil && !r.shared && needsDirectory(err) {
		return v, true, err
	}
	return v, r.frozen.changed(r.path), err
}

// passes reports whether an error of reading goes away by itself: another process
// recovers the log, or has just made the log's index anew under us. A plain lock is
// none of these, since the statement has waited for it.
func passes(err error) bool {
	switch code(err) {
	case ioErrInPage, lib.SQLITE_BUSY_RECOVERY, lib.SQLITE_BUSY_SNAPSHOT:
		return true
	}
	return false
}

// ioErrInPage is SQLITE_IOERR_IN_PAGE, 8714: a page of the log's index was not there.
const ioErrInPage = lib.SQLITE_IOERR | 34<<8
