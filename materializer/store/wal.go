package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// WALSize returns the size of the write-ahead log in bytes, 0 if there is none. It
// grows while a reader holds an old snapshot, and is cut to 64 MiB by a commit after
// the reader has gone, or by [Store.Checkpoint].
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

func walPath(path string) string { return path + "-wal" }
