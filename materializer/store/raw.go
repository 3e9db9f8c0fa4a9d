package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// rawStmts are statements prepared on the driver's own connection, for what runs once
// a row or a message. database/sql takes locks, checks and converts at each run, which
// was a fifth of the time of inserting a row.
type rawStmts struct {
	conn   any // the driver's connection they belong to
	byText map[string]driver.Stmt
}

// get returns the statement of the text on conn. The pool's one connection may have
// been replaced by another since the last call.
func (r *rawStmts) get(ctx context.Context, conn any, text string) (driver.StmtExecContext, error) {
	if r.conn != conn {
		if err := r.close(); err != nil {
			return nil, err
		}
		r.conn, r.byText = conn, map[string]driver.Stmt{}
	}
	s, ok := r.byText[text]
	if !ok {
		var err error
		if s, err = conn.(driver.ConnPrepareContext).PrepareContext(ctx, text); err != nil {
			return nil, err
		}
		r.byText[text] = s
	}
	return s.(driver.StmtExecContext), nil
}

// close has to come before the connection is closed, which would stay half open for
// the statements' sake.
func (r *rawStmts) close() error {
	var errs []error
	for _, s := range r.byText {
		errs = append(errs, s.Close())
	}
	*r = rawStmts{}
	return errors.Join(errs...)
}

// execEach runs the text n times, each with the values that set has put into its
// argument: of the driver's own types, int64, float64, string, []byte or nil. set must
// not use the transaction. Only the writer's transactions have it.
func (t *tx) execEach(ctx context.Context, text string, columns, n int, set func(i int, values []driver.NamedValue)) error {
	if n == 0 {
		return nil
	}
	values := make([]driver.NamedValue, columns)
	for i := range values {
		values[i].Ordinal = i + 1
	}
	return t.conn.Raw(func(conn any) error {
		stmt, err := t.pool.raw.get(ctx, conn, text)
		if err != nil {
			return err
		}
		for i := range n {
			set(i, values)
			if _, err := stmt.ExecContext(ctx, values); err != nil {
				return fmt.Errorf("%d of %d: %w", i+1, n, err)
			}
		}
		return nil
	})
}
