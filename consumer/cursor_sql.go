package consumer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// DefaultCursorTable is where a [SQLCursor] keeps cursors unless told otherwise.
const DefaultCursorTable = "skald_cursors"

// ErrCursorTaken: the database holds this cursor already, or one further on in the
// same epoch. Another process reads under the same name, or this one has the event
// a second time; the transaction that was to save it must be rolled back.
var ErrCursorTaken = errors.New("cursor was saved before")

// SQLExecer runs a statement: a *sql.Tx, *sql.Conn or *sql.DB.
type SQLExecer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// SQLCursor is a [CursorStore] in a database that an application has anyway. Its
// gain is [SQLCursor.SaveIn]: the cursor is committed with the work on the event,
// so each event has its effect exactly once.
//
// The statements are the ones that SQLite (3.24 or later) and PostgreSQL share:
// positional placeholders are written $1, $2, $3, which both read, and a row is put
// with ON CONFLICT. Drivers tried: modernc.org/sqlite.
//
//	CREATE TABLE skald_cursors (name TEXT PRIMARY KEY, epoch TEXT NOT NULL, seq BIGINT NOT NULL)
type SQLCursor struct {
	db    *sql.DB
	name  string
	table string
}

// SQLCursorOptions say which cursor it is.
type SQLCursorOptions struct {
	// Name is the reader's, 1 to 256 bytes. Required.
	Name string
	// Table is the table's name, perhaps with a schema: letters, digits, _ and one
	// point, not beginning with a digit. Defaults to DefaultCursorTable.
	Table string
}

// NewSQLCursor returns the store of one reader in db. It asks the database nothing.
// The error is a *[bus.InvalidError] that names the option.
func NewSQLCursor(db *sql.DB, o SQLCursorOptions) (*SQLCursor, error) {
	if o.Table == "" {
		o.Table = DefaultCursorTable
	}
	if err := bus.CheckID("name", o.Name); err != nil {
		return nil, fmt.Errorf("cursor options: %w", err)
	}
	if !tableName(o.Table) {
		return nil, fmt.Errorf("cursor options: %w", &bus.InvalidError{
			Field: "table", Rule: fmt.Sprintf("must be letters, digits and _, perhaps behind a schema and a point, not %q", o.Table),
		})
	}
	return &SQLCursor{db: db, name: o.Name, table: o.Table}, nil
}

// tableName reports whether a name can stand in a statement as it is.
func tableName(s string) bool {
	points, start := 0, true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '.' && !start:
			points++
			start = true
			continue
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && !start:
		default:
			return false
		}
		start = false
	}
	return !start && points <= 1
}

// Create makes the table if it is not there. Whoever has migrations of their own
// leaves it out.
func (s *SQLCursor) Create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+" (name TEXT PRIMARY KEY, epoch TEXT NOT NULL, seq BIGINT NOT NULL)")
	if err != nil {
		return fmt.Errorf("create table %s: %w", s.table, err)
	}
	return nil
}

// Load returns the cursor that was committed last, nil if none was.
func (s *SQLCursor) Load(ctx context.Context) (*bus.Cursor, error) {
	var at bus.Cursor
	var seq int64
	err := s.db.QueryRowContext(ctx, "SELECT epoch, seq FROM "+s.table+" WHERE name = $1", s.name).Scan(&at.Epoch, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil && seq < 0 {
		err = fmt.Errorf("it is %d", seq)
	}
	if err != nil {
		return nil, fmt.Errorf("read cursor %q: %w", s.name, err)
	}
	at.Seq = uint64(seq)
	return &at, nil
}

// SaveIn saves the cursor in a transaction that the caller commits with its own
// work. It returns [ErrCursorTaken] if that cursor, or a later one of its epoch, is
// there already. To read something again on purpose, delete the row.
func (s *SQLCursor) SaveIn(ctx context.Context, tx SQLExecer, at bus.Cursor) error {
	return s.put(ctx, tx, at, "<")
}

// Save saves the cursor by itself. Saving it once more is no error.
func (s *SQLCursor) Save(ctx context.Context, at bus.Cursor) error {
	return s.put(ctx, s.db, at, "<=")
}

func (s *SQLCursor) put(ctx context.Context, tx SQLExecer, at bus.Cursor, below string) error {
	if at.Seq > bus.MaxSeq {
		return fmt.Errorf("save cursor: %w", &bus.InvalidError{Field: "seq", Rule: fmt.Sprintf("must be at most %d", uint64(bus.MaxSeq))})
	}
	r, err := tx.ExecContext(ctx, "INSERT INTO "+s.table+" AS saved (name, epoch, seq) VALUES ($1, $2, $3)"+
		" ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq"+
		" WHERE saved.epoch <> excluded.epoch OR saved.seq "+below+" excluded.seq", s.name, at.Epoch, int64(at.Seq))
	if err != nil {
		return fmt.Errorf("save cursor %q: %w", s.name, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return fmt.Errorf("save cursor %q: %w", s.name, err)
	}
	if n == 0 {
		return fmt.Errorf("save cursor %q at %s: %w", s.name, at, ErrCursorTaken)
	}
	return nil
}
