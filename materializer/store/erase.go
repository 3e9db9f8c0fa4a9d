package store

import (
	"context"

	"github.com/skaldbus/skald/bus"
)

// Erasure is a forgotten session whose bytes are to be overwritten. The store's own file
// does so with all that leaves it; what is left for others to do is listed here.
type Erasure struct {
	Key bus.Key
	// Until is the sequence in INGEST of the message that asked for it.
	Until uint64
	// Cut is true once neither the file nor its log hold anything of the session.
	Cut bool
}

// Erasures returns all that are pending, in the order of the sessions' first appearance.
func (r *Reader) Erasures(ctx context.Context) ([]Erasure, error) {
	return view(ctx, r, "read erasures", func(ctx context.Context, t *tx) ([]Erasure, error) {
		rows, err := t.query(ctx, sqlErasures)
		return collect(rows, err, func(row scanner) (e Erasure, err error) {
			var until int64
			err = row.Scan(&e.Key.Workspace, &e.Key.Session, &until, &e.Cut)
			e.Until = uint64(until)
			return e, err
		})
	})
}

// CutErased gives the log back to the file system if it may hold bytes of erased sessions
// whose rows are gone, and notes that; what the file held has been overwritten by then. It waits
// for no reader: done is false if one holds the log, and it is to be called again.
func (s *Store) CutErased(ctx context.Context) (done bool, err error) {
	uncut, err := view(ctx, s.reader, "read erasures", func(ctx context.Context, t *tx) (n int64, err error) {
		var all int64
		return n, t.row(ctx, sqlCountErasures).Scan(&all, &n)
	})
	if err != nil || uncut == 0 {
		return err == nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// No transaction comes between the two: the rows that were gone before the log was
	// cut are those that are gone now.
	if cut, err := s.cutLog(ctx); err != nil || !cut {
		return false, err
	}
	err = s.exec(ctx, "note that the log was cut", sqlCutErasures)
	return err == nil, err
}

// EndErasure notes that nothing of the session is left anywhere else. It does nothing if
// the table had rows of it since the log was cut.
func (s *Store) EndErasure(ctx context.Context, key bus.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(ctx, "end erasure", sqlEndErasure, key.Session, key.Workspace)
}
