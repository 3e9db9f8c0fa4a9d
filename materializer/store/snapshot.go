package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/skaldbus/skald/bus"
)

// A snapshot is the store without its events, at one position and number: a file of the
// same schema with the sessions' states, held pages, rejects, marks and counters. The
// event ids go into a file of their own, since most of them stay what they were at the
// snapshot before. [AddIDs] puts them together again, [Store.Take] brings the result into
// a store that has the events.

// scratchParams are those of files that nobody needs after a crash.
const scratchParams = "mode=rw&_journal_mode=MEMORY&_synchronous=OFF&_pragma=cache_size(-16384)&_busy_timeout=5000&_error_rc=1&_dqs=0"

// SnapshotOptions say what a snapshot is to hold and where.
type SnapshotOptions struct {
	// Path is the file to make. It must not exist.
	Path string
	// IDs is the file to make for event ids. It must not exist.
	IDs string
	// IDsAfter leaves out ids that INGEST's messages up to this sequence brought. 0
	// takes all.
	IDsAfter uint64
}

// Snapshot says what a snapshot holds.
type Snapshot struct {
	Bus
	Position
	StoreID  string // of the store that it was taken of
	Schema   int
	IDs      int64 // event ids in its file
	NewestID int64 // the highest [ID].AppliedTime of them, ns since 1970; 0 if none
}

// Snapshot writes the store as of now into new files. Commits go on meanwhile; the log
// grows as long as it takes, about a second for each 100 MB of state. It writes
// nothing durable: who keeps the files syncs them. After an error they may be there.
func (r *Reader) Snapshot(ctx context.Context, o SnapshotOptions) (Snapshot, error) {
	s, err := r.takeSnapshot(ctx, o)
	if err != nil {
		return Snapshot{}, wrap("take snapshot", err)
	}
	return s, nil
}

func (r *Reader) takeSnapshot(ctx context.Context, o SnapshotOptions) (s Snapshot, err error) {
	for _, path := range []string{o.Path, o.IDs} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return s, err
		}
		if err := f.Close(); err != nil {
			return s, err
		}
	}
	if err := makeSchema(ctx, o.Path); err != nil {
		return s, err
	}
	params := readerParams
	if r.isFrozen() {
		params = frozenParams
	}
	c, err := openScratch(ctx, o.Path, r.path, params)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, err := c.ExecContext(ctx, snapAttachIDs, dsn(o.IDs, "mode=rw")); err != nil {
		return s, err
	}
	if _, err := c.ExecContext(ctx, snapMakeIDs); err != nil {
		return s, err
	}
	t, err := c.BeginTx(ctx, nil)
	if err != nil {
		return s, err
	}
	defer t.Rollback()
	if err := copyTables(ctx, t); err != nil {
		return s, err
	}
	for _, text := range []string{snapTombstones, snapPruned} {
		if _, err := t.ExecContext(ctx, text); err != nil {
			return s, err
		}
	}
	if _, err := t.ExecContext(ctx, snapCopyIDs, int64(min(o.IDsAfter, bus.MaxSeq))); err != nil {
		return s, err
	}
	if s, err = describe(ctx, t); err != nil {
		return s, err
	}
	if err := t.QueryRowContext(ctx, snapStoreID).Scan(&s.StoreID); err != nil {
		return s, err
	}
	if err := t.QueryRowContext(ctx, snapNewestID).Scan(&s.IDs, &s.NewestID); err != nil {
		return s, err
	}
	return s, t.Commit()
}

func (r *Reader) isFrozen() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.frozen != nil
}

// makeSchema makes the file a store of this program's schema.
func makeSchema(ctx context.Context, path string) error {
	p, err := openPool(path, "mode=rw&_txlock=immediate&_journal_mode=MEMORY&_synchronous=OFF&_error_rc=1&_dqs=0", 1)
	if err != nil {
		return err
	}
	_, err = migrate(ctx, p, func() error { return nil })
	return errors.Join(err, p.close())
}

// copyTables fills main's tables with src's, all in one snapshot of src.
func copyTables(ctx context.Context, t *sql.Tx) error {
	tables, err := texts(ctx, t, snapTables)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := replaceTable(ctx, t, table); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

func replaceTable(ctx context.Context, t *sql.Tx, table string) error {
	columns, err := texts(ctx, t, snapColumns, table)
	if err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, fill(snapEmpty, table, nil)); err != nil {
		return err
	}
	_, err = t.ExecContext(ctx, fill(snapCopy, table, columns))
	return err
}

// describe reads where main stands.
func describe(ctx context.Context, t *sql.Tx) (Snapshot, error) {
	id, err := identify(ctx, t)
	if err != nil {
		return Snapshot{}, err
	}
	h, err := scanHead(t.QueryRowContext(ctx, sqlHead))
	return Snapshot{Bus: h.Bus, Position: h.Position, Schema: id.version}, err
}

// texts returns the first column of a query's rows.
func texts(ctx context.Context, t *sql.Tx, query string, args ...any) ([]string, error) {
	rows, err := t.QueryContext(ctx, query, args...)
	return collect(rows, err, scanText)
}

// scratch is the one connection to a file of ours, with another one attached as src.
type scratch struct {
	*sql.Conn
	pool *pool
}

func openScratch(ctx context.Context, path, attach, params string) (*scratch, error) {
	p, err := openPool(path, scratchParams, 1)
	if err != nil {
		return nil, err
	}
	c, err := p.db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	s := &scratch{c, p}
	if _, err := c.ExecContext(ctx, snapAttach, dsn(attach, params)); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *scratch) close() error { return errors.Join(s.Conn.Close(), s.pool.close()) }

// AddIDs puts the event ids of a snapshot's second file into the first, but for those
// applied before notBefore (ns since 1970), and brings a snapshot of an older schema up
// to date. Files with older ids come first: a later one replaces what it repeats.
func AddIDs(ctx context.Context, path string, notBefore int64, ids ...string) (Snapshot, error) {
	s, err := addIDs(ctx, path, notBefore, ids)
	if err != nil {
		return Snapshot{}, wrap("read snapshot", err)
	}
	return s, nil
}

func addIDs(ctx context.Context, path string, notBefore int64, ids []string) (s Snapshot, err error) {
	if err := makeSchema(ctx, path); err != nil {
		return s, err
	}
	for _, from := range ids {
		err := func() (err error) {
			c, err := openScratch(ctx, path, from, "mode=ro")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.close()) }()
			_, err = c.ExecContext(ctx, snapAddIDs, notBefore)
			return err
		}()
		if err != nil {
			return s, err
		}
	}
	p, err := openPool(path, scratchParams, 1)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	t, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return s, err
	}
	defer t.Rollback()
	return describe(ctx, t)
}
