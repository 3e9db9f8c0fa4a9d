package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// logKeep is what the log is cut to, the limit in writerParams.
const logKeep = 64 << 20

// Size returns the size of the file in bytes, without the write-ahead log.
func (s *Store) Size() (int64, error) {
	st, err := os.Stat(s.path)
	if err != nil {
		return 0, fmt.Errorf("size of the store: %w", err)
	}
	return st.Size(), nil
}

// WALSize returns the size of the write-ahead log in bytes, 0 if there is none. It
// grows while a reader holds an old snapshot, and is cut to 64 MiB by a commit after
// the reader has gone, by [Store.CutLog], or to nothing by [Store.Checkpoint].
func (s *Store) WALSize() (int64, error) {
	st, err := os.Stat(walPath(s.path))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of the write-ahead log: %w", err)
	}
	return st.Size(), nil
}

// Checkpoint moves the log into the file and cuts it to nothing. It waits for readers
// up to [BusyTimeout] and returns [ErrBusy] if one still holds an old snapshot then;
// commits wait for it. Commits move the log by themselves: this is for a store that
// has come to rest with a large one.
func (s *Store) Checkpoint(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("checkpoint: %w", context.Cause(ctx))
	}
	var busy, log, moved int
	err := s.writer.stmts[sqlCheckpoint].QueryRowContext(context.WithoutCancel(ctx)).Scan(&busy, &log, &moved)
	if err != nil {
		return wrap("checkpoint", err)
	}
	if busy != 0 {
		return fmt.Errorf("checkpoint: %w: a reader holds an old snapshot", ErrBusy)
	}
	return nil
}

// CutLog gives a log that has grown beyond 64 MiB back to the file system, if no reader
// holds it: it waits for none, and leaves the rest to a later call. Commits do so by
// themselves: this is for a store that has come to rest behind a reader that is gone now.
func (s *Store) CutLog(ctx context.Context) error {
	size, err := s.WALSize()
	if err != nil || size <= logKeep {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.cutLog(ctx)
	return err
}

// cutLog cuts the log to nothing, unless a reader holds it: then done is false. s.mu is
// held.
func (s *Store) cutLog(ctx context.Context) (done bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("cut the log: %w", context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	if _, err := s.writer.db.ExecContext(ctx, waitForNobody); err != nil {
		return false, wrap("cut the log", err)
	}
	var busy, log, moved int
	err = s.writer.stmts[sqlCheckpoint].QueryRowContext(ctx).Scan(&busy, &log, &moved)
	_, waitErr := s.writer.db.ExecContext(ctx, waitAsUsual)
	if err = errors.Join(err, waitErr); err != nil {
		return false, wrap("cut the log", err)
	}
	return busy == 0, nil
}

func walPath(path string) string { return path + "-wal" }
