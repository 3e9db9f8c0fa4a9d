package store

import (
	"context"
	"fmt"
	"math"

	"github.com/skaldbus/skald/bus"
)

// Rows returns at most limit rows after the number, ascending, with all that EVENTS
// carries of them, for comparing the two. It ends early, but not before the first
// row, when their data reach maxBytes. Rows of forgotten sessions are left out.
func (r *Reader) Rows(ctx context.Context, after uint64, limit, maxBytes int) ([]Row, error) {
	return view(ctx, r, "read rows", func(ctx context.Context, t *tx) ([]Row, error) {
		return readRows(ctx, t, maxBytes, sqlRows, int64(min(after, bus.MaxSeq)), max(limit, 0))
	})
}

// LastRow returns the row with the highest number up to the given one that is not of
// a forgotten session, nil if there is none.
func (r *Reader) LastRow(ctx context.Context, upTo uint64) (*Row, error) {
	return view(ctx, r, "read last row", func(ctx context.Context, t *tx) (*Row, error) {
		rows, err := readRows(ctx, t, 1, sqlLastRow, int64(min(upTo, bus.MaxSeq)))
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		return &rows[0], nil
	})
}

// RowsOf returns the first rows, at most limit, of the session's facts that were
// deduplicated by the source. It looks through all rows of the session.
func (r *Reader) RowsOf(ctx context.Context, key bus.Key, source bus.Source, limit int) ([]Row, error) {
	return view(ctx, r, "read rows of a message", func(ctx context.Context, t *tx) ([]Row, error) {
		return readRows(ctx, t, math.MaxInt, sqlRowsOfSource, key.Session, key.Workspace, source.String(), max(limit, 0))
	})
}

func readRows(ctx context.Context, t *tx, maxBytes int, text string, args ...any) ([]Row, error) {
	rows, err := t.query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Row
	bytes := 0
	for bytes < maxBytes && rows.Next() {
		var r Row
		var seq, origin int64
		var source string
		err := rows.Scan(&seq, &r.Key.Workspace, &r.Key.Session, &r.Type, &r.RecordedAt,
			&origin, &r.Origin.Time, &r.Origin.Index, &source, &r.Trace, &r.Data)
		if err != nil {
			return nil, err
		}
		r.Seq, r.Origin.Seq = uint64(seq), uint64(origin)
		var ok bool
		if r.Source, ok = bus.ParseSource(source); !ok {
			return nil, fmt.Errorf("row %d: %w: its source is %q", seq, ErrCorrupt, source)
		}
		all = append(all, r)
		bytes += len(r.Data)
	}
	return all, rows.Err()
}
