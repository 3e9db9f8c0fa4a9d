package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// backupParams allow VACUUM INTO, which writes another file than the one that is read.
const backupParams = "mode=ro&_pragma=cache_size(-16384)" + commonParams

// Backup says what a copy of the store holds.
type Backup struct {
	Status
	Schema  int
	StoreID string
}

// Backup writes the whole store, as of one commit, into a new file at path. Commits go
// on meanwhile; the log grows as long as it takes. The file is not durable yet: who
// keeps it syncs it. After an error, also that of ctx, it may be there.
func (r *Reader) Backup(ctx context.Context, path string) (Backup, error) {
	b, err := r.backup(ctx, path)
	if err != nil {
		return Backup{}, wrap("back up", err)
	}
	return b, nil
}

func (r *Reader) backup(ctx context.Context, path string) (b Backup, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return b, err
	}
	params := backupParams
	if r.isFrozen() {
		params = frozenParams
	}
	p, err := openPool(r.path, params, 1)
	if err != nil {
		return b, err
	}
	_, err = p.db.ExecContext(ctx, snapVacuum, abs)
	if err = errors.Join(err, p.close()); err != nil {
		return b, err
	}
	// What it holds is read from the copy: the store has gone on.
	c, err := OpenReader(abs)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	id, err := identify(ctx, c.pool.db)
	if err != nil {
		return b, fmt.Errorf("read the copy: %w", err)
	}
	if b.Status, err = c.Status(ctx); err != nil {
		return b, err
	}
	b.Schema = id.version
	b.StoreID, err = c.ID(ctx)
	return b, err
}
