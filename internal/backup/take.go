package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skaldbus/skald/materializer/store"
)

// watchEvery is how often the file that SQLite writes is looked at.
const watchEvery = 500 * time.Millisecond

// Progress hears how many bytes of about how many are done.
type Progress func(doing string, at, end uint64)

// TakeOptions are what Take needs beside the directories.
type TakeOptions struct {
	Contract int
	// Progress is told twice a second and more, by one goroutine at a time. Nil tells nobody.
	Progress Progress
	Version  string
}

// Take makes the directory to, which must not exist, a backup of the store at path.
// A service may write the store meanwhile. The error is [ErrExists] if to is there. The
// backup is durable when Take returns; after an error nothing is left.
func Take(ctx context.Context, path, to string, o TakeOptions) (m Manifest, err error) {
	if err := absent(to); err != nil {
		return m, err
	}
	r, err := store.OpenReader(path)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	dir, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".partial-")
	if err != nil {
		return m, fmt.Errorf("make backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	file := filepath.Join(dir, StoreFile)
	stop := watch(ctx, path, file, o.Progress)
	b, err := r.Backup(ctx, file)
	stop()
	if err != nil {
		return m, err
	}
	if err := syncPath(file); err != nil {
		return m, fmt.Errorf("write backup: %w", err)
	}
	m = Manifest{Format: format, CreatedAt: time.Now().UTC().Truncate(time.Second), Version: o.Version, Contract: o.Contract}
	m.describe(b)
	sum, err := copyHashed(ctx, file, "", "bytes hashed", o.Progress)
	if err != nil {
		return m, fmt.Errorf("read backup: %w", err)
	}
	m.Size, m.SHA256 = sum.size, hex.EncodeToString(sum.hash)
	if err := writeManifest(dir, &m); err != nil {
		return m, fmt.Errorf("write backup: %w", err)
	}
	if err := syncPath(dir); err != nil {
		return m, fmt.Errorf("write backup: %w", err)
	}
	if err := absent(to); err != nil { // to rename onto an empty directory would succeed
		return m, err
	}
	if err := os.Rename(dir, to); err != nil {
		return m, fmt.Errorf("name backup: %w", err)
	}
	return m, syncPath(filepath.Dir(to))
}

// absent returns ErrExists if there is something at path.
func absent(path string) error {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: %w", path, ErrExists)
}

// watch tells how far a file has grown beside the one that it is made of, until stop
// is called.
func watch(ctx context.Context, from, to string, progress Progress) (stop func()) {
	if progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			a, errA := os.Stat(from)
			b, errB := os.Stat(to)
			if errA == nil && errB == nil {
				progress("bytes copied", uint64(b.Size()), uint64(a.Size()))
			}
		}
	}()
	return func() { cancel(); <-done }
}
