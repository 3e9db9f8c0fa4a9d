package store

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
)

// applicationID marks the file as Skald's in its header: "skld".
const applicationID = 0x736B6C64

// schema1 makes the tables in an empty file.
//
//go:embed schema.sql
var schema1 string

// schema2 adds going back in INGEST, and entries that are discarded but known.
//
//go:embed schema2.sql
var schema2 string

// schema3 gives the store an id of its own.
//
//go:embed schema3.sql
var schema3 string

// schema4 adds forgotten sessions whose bytes are overwritten and a list of all tombstones, and
// marks a store that came out of a backup.
//
//go:embed schema4.sql
var schema4 string

// migrations returns the scripts by which a schema becomes the next one; the first
// makes schema 1 out of an empty file. Scripts that were released never change.
func migrations() []string { return []string{schema1, schema2, schema3, schema4} }

// schemaVersion is the schema that this program reads and writes.
func schemaVersion() int { return len(migrations()) }

// fileID is what a file's header says about whose it is.
type fileID struct {
	application int
	version     int // the schema's, 0 in an empty file
	objects     int // tables and indexes
}

// querier is a pool's database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func identify(ctx context.Context, q querier) (id fileID, err error) {
	err = q.QueryRowContext(ctx, sqlIdentify).Scan(&id.application, &id.version, &id.objects)
	return id, err
}

// empty reports whether no program has written the file yet.
func (id fileID) empty() bool { return id == fileID{} }

// check returns ErrNotDatabase for another program's file, and ErrNewer for one
// that this program can not know.
func (id fileID) check() error {
	switch {
	case id.empty():
		return nil
	case id.application != applicationID:
		return fmt.Errorf("%w: application id %#x, want %#x", ErrNotDatabase, id.application, applicationID)
	case id.version > schemaVersion():
		return fmt.Errorf("%w: its schema is %d, this program knows %d; upgrade the program", ErrNewer, id.version, schemaVersion())
	}
	return nil
}

// migrate brings the file to this program's schema, all steps in one transaction,
// and returns the schema that it found. p must begin immediate transactions. made is
// called in that transaction if the file was empty.
func migrate(ctx context.Context, p *pool, made func() error) (found int, err error) {
	// Before the lock: another program's file is to be named, not touched.
	id, err := identify(ctx, p.db)
	if err == nil {
		err = id.check()
	}
	if err != nil {
		return 0, err
	}
	t, err := p.begin(ctx, false)
	if err != nil {
		return 0, err
	}
	defer t.Rollback()
	// Again under the lock: another process may have been faster.
	if id, err = identify(ctx, t); err == nil {
		err = id.check()
	}
	if err != nil {
		return 0, err
	}
	if id.empty() {
		if err := made(); err != nil {
			return 0, err
		}
	}
	if id.version == schemaVersion() {
		return id.version, nil
	}
	for v, script := range migrations()[id.version:] {
		if _, err := t.ExecContext(ctx, script); err != nil {
			return 0, fmt.Errorf("make schema %d: %w", id.version+v+1, err)
		}
	}
	if _, err := t.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion())); err != nil {
		return 0, fmt.Errorf("write schema version: %w", err)
	}
	return id.version, t.Commit()
}
