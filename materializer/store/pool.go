package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// pool is a set of equal connections to the file and the statements prepared on
// them. It is safe for concurrent use once prepare has returned.
type pool struct {
	db    *sql.DB
	stmts map[string]*sql.Stmt // by text
	raw   rawStmts             // of the one connection of the writer's pool
}

// openPool opens no connection yet.
func openPool(path, params string, connections int) (*pool, error) {
	// The switches are process-wide and have to be set before the first file is
	// opened. Without OFD locks, anything in this process that opens and closes the
	// file drops SQLite's locks on it; where there are none, we do without. A commit
	// needs the data and the size of the log on disk, as fdatasync has them; fsync writes
	// the file's times too, through the file system's journal.
	if _, err := sqlite.OFDLocking(true); err != nil && !errors.Is(err, sqlite.ErrOFDLockingUnavailable) {
		return nil, fmt.Errorf("choose file locks: %w", err)
	}
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, fmt.Errorf("choose how to sync: %w", err)
	}
	sqlite.StrictPragmas(true)
	db, err := sql.Open("sqlite", dsn(path, params))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &pool{db: db, stmts: map[string]*sql.Stmt{}}, nil
}

// prepare prepares all texts at once: inside a transaction it would be too late,
// since preparing takes a connection of its own and transactions may hold them all.
func (p *pool) prepare(ctx context.Context, texts []string) error {
	for _, text := range texts {
		s, err := p.db.PrepareContext(ctx, text)
		if err != nil {
			return wrap("prepare query", err)
		}
		p.stmts[text] = s
	}
	return nil
}

func (p *pool) close() error {
	errs := []error{p.raw.close()}
	for _, s := range p.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}

// tx is one transaction on a connection of a pool.
type tx struct {
	*sql.Tx
	conn *sql.Conn
	pool *pool
	used map[string]*sql.Stmt // bound to the transaction, by text
}

// begin starts a transaction, immediate in the writer's pool.
func (p *pool) begin(ctx context.Context, readOnly bool) (*tx, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: readOnly})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &tx{Tx: t, conn: conn, pool: p, used: map[string]*sql.Stmt{}}, nil
}

// Commit ends the transaction and gives its connection back.
func (t *tx) Commit() error {
	err := t.Tx.Commit()
	t.conn.Close()
	return err
}

// Rollback does too; after Commit it does nothing.
func (t *tx) Rollback() {
	t.Tx.Rollback()
	t.conn.Close()
}

// stmt returns the prepared statement of the text. A text that was not prepared
// is a programmer's mistake, and panics.
func (t *tx) stmt(ctx context.Context, text string) *sql.Stmt {
	if s, ok := t.used[text]; ok {
		return s
	}
	prepared, ok := t.pool.stmts[text]
	if !ok {
		panic("store: query was not prepared: " + text)
	}
	s := t.StmtContext(ctx, prepared)
	t.used[text] = s
	return s
}

func (t *tx) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return t.stmt(ctx, text).ExecContext(ctx, args...)
}

func (t *tx) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return t.stmt(ctx, text).QueryContext(ctx, args...)
}

func (t *tx) row(ctx context.Context, text string, args ...any) *sql.Row {
	return t.stmt(ctx, text).QueryRowContext(ctx, args...)
}
