package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/materializer/store"
)

// RestoreOptions are what Restore needs beside the directories.
type RestoreOptions struct {
	// Progress is told every 4 MiB. Nil tells nobody.
	Progress Progress
	// Replica gives the store an id of its own: for one that is to run beside the store
	// that the backup was taken of.
	Replica bool
}

// Restore puts the store of the backup in from into the data directory, which is made if
// it is missing. It overwrites nothing: the error is [ErrExists] if the directory has
// a store, and a [dirlock.HeldError] if a service has it. It is [ErrDamaged] if the
// backup is not what its manifest says. The store is marked as one that may lack numbers
// that were seen, until it has come as far as EVENTS ([store.Reader.Restored]). It is
// durable when Restore returns; after an error there is none.
func Restore(ctx context.Context, from, data string, o RestoreOptions) (m Manifest, err error) {
	if m, err = ReadManifest(from); err != nil {
		return m, err
	}
	if err := os.MkdirAll(data, 0o750); err != nil {
		return m, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := dirlock.Acquire(data)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	final := filepath.Join(data, StoreFile)
	for _, path := range []string{final, final + "-wal", final + "-shm"} {
		if err := absent(path); err != nil {
			return m, err
		}
	}
	dir, err := os.MkdirTemp(data, "restore-")
	if err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, StoreFile)
	sum, err := copyHashed(ctx, filepath.Join(from, StoreFile), file, "bytes copied", o.Progress)
	if err != nil {
		return m, fmt.Errorf("copy store: %w", err)
	}
	if got := hex.EncodeToString(sum.hash); sum.size != m.Size || got != m.SHA256 {
		return m, fmt.Errorf("%s: %w: %s has %d bytes of hash %s, the manifest says %d of %s", from, ErrDamaged, StoreFile, sum.size, got, m.Size, m.SHA256)
	}
	if err := settle(ctx, file, o.Replica); err != nil {
		return m, fmt.Errorf("open the restored store: %w", err)
	}
	if err := syncPath(file); err != nil {
		return m, fmt.Errorf("copy store: %w", err)
	}
	if err := os.Rename(file, final); err != nil {
		return m, fmt.Errorf("name the restored store: %w", err)
	}
	return m, syncPath(data)
}

// settle opens the file as a service does and closes it again, which shows that this
// program can, and leaves nothing in a log beside it. The store is marked: what was seen
// since the backup it does not know.
func settle(ctx context.Context, file string, replica bool) error {
	s, err := store.Open(file, store.Options{})
	if err != nil {
		return err
	}
	if err = s.SetRestored(ctx, true); err == nil && replica {
		err = s.NewID(ctx)
	}
	return errors.Join(err, s.Close())
}

type hashed struct {
	size int64
	hash []byte
}

// copyHashed reads a file, hashes it, and writes it to another one if that is named.
func copyHashed(ctx context.Context, from, to, doing string, progress Progress) (h hashed, err error) {
	in, err := os.Open(from)
	if err != nil {
		return h, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return h, err
	}
	sum := sha256.New()
	w := io.Writer(sum)
	if to != "" {
		out, openErr := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
		if openErr != nil {
			return h, openErr
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		w = io.MultiWriter(sum, out)
	}
	for {
		if err := ctx.Err(); err != nil {
			return h, err
		}
		n, err := io.CopyN(w, in, 4<<20)
		h.size += n
		if errors.Is(err, io.EOF) {
			h.hash = sum.Sum(nil)
			return h, nil
		}
		if err != nil {
			return h, err
		}
		if progress != nil {
			progress(doing, uint64(h.size), uint64(info.Size()))
		}
	}
}
