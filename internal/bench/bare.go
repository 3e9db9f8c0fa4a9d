package bench

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver under the store
)

// eventRow is a row of the table of events, as the driver gives and takes it.
type eventRow struct {
	seq, pk, recorded, oseq, otime, oindex int64
	typ, source                            string
	trace                                  sql.NullString
	data                                   []byte
}

const (
	eventColumns = `seq,session_pk,type,recorded_at_ms,origin_seq,origin_time,origin_index,source,trace,data`
	bareParams   = "?_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_pragma=journal_size_limit(67108864)"
)

func openFile(dir, name, params string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(dir, name)}).EscapedPath()+params)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// bareInsert copies the store's event rows into a fresh file with nothing but the
// driver: the same table and index, a prepared statement, batches of 1,000, FULL.
// Reading them is not counted.
func bareInsert(ctx context.Context, dir string) (rows int, took, processor time.Duration, err error) {
	all, schema, err := readRows(ctx, dir)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read rows: %w", err)
	}
	dst, err := openFile(dir, "bare.db", bareParams)
	if err != nil {
		return 0, 0, 0, err
	}
	defer dst.Close()
	if _, err := dst.ExecContext(ctx, schema); err != nil {
		return 0, 0, 0, fmt.Errorf("make bare table: %w", err)
	}
	stmt, err := dst.PrepareContext(ctx, `INSERT INTO events (`+eventColumns+`) VALUES (?,?,?,?,?,?,?,?,?,?)`)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("prepare bare insert: %w", err)
	}
	defer stmt.Close()
	before, start := processorTime(), time.Now()
	for at := 0; at < len(all); at += 1000 {
		if err := insertRows(ctx, dst, stmt, all[at:min(at+1000, len(all))]); err != nil {
			return 0, 0, 0, fmt.Errorf("insert bare rows: %w", err)
		}
	}
	return len(all), time.Since(start), processorTime() - before, nil
}

func insertRows(ctx context.Context, db *sql.DB, stmt *sql.Stmt, rows []eventRow) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	in := tx.StmtContext(ctx, stmt)
	for _, r := range rows {
		if _, err := in.Exec(r.seq, r.pk, r.typ, r.recorded, r.oseq, r.otime, r.oindex, r.source, r.trace, string(r.data)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// readRows returns the store's event rows and the texts that make their table.
func readRows(ctx context.Context, dir string) (all []eventRow, schema string, err error) {
	src, err := openFile(dir, storeFile, "?mode=ro")
	if err != nil {
		return nil, "", err
	}
	defer src.Close()
	const texts = `SELECT group_concat(sql, ';') FROM sqlite_schema WHERE tbl_name='events' AND sql IS NOT NULL`
	if err := src.QueryRowContext(ctx, texts).Scan(&schema); err != nil {
		return nil, "", err
	}
	rows, err := src.QueryContext(ctx, `SELECT `+eventColumns+` FROM events ORDER BY seq`)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var r eventRow
		if err := rows.Scan(&r.seq, &r.pk, &r.typ, &r.recorded, &r.oseq, &r.otime, &r.oindex, &r.source, &r.trace, &r.data); err != nil {
			return nil, "", err
		}
		all = append(all, r)
	}
	return all, schema, rows.Err()
}
