package store

import "database/sql"

// scanner is one row of a result.
type scanner interface{ Scan(dest ...any) error }

// collect takes apart all rows of a query, whose error it passes on, and closes them.
func collect[T any](rows *sql.Rows, err error, scan func(row scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// scanText takes the one column of a row.
func scanText(row scanner) (v string, err error) {
	err = row.Scan(&v)
	return v, err
}
