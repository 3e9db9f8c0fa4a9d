package store

import "context"

// PruneStep deletes at most limit rows below oldest_seq, lowest first, and returns
// how many it deleted; 0 when there are no more. Readers have not seen them since
// oldest_seq was raised. Rows of forgotten sessions are left to [Store.Removed], which
// deletes them from EVENTS first.
func (s *Store) PruneStep(ctx context.Context, limit int) (deleted int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reached := s.pruned
	err = s.write(ctx, "prune rows", func(ctx context.Context, t *tx) error {
		seqs, sessions, err := s.prunable(ctx, t, max(limit, 0))
		if err != nil || len(seqs) == 0 {
			return err
		}
		for _, seq := range seqs {
			if _, err := t.exec(ctx, sqlDeleteEvent, seq); err != nil {
				return err
			}
		}
		for pk, n := range sessions {
			if err := countPruned(ctx, t, pk, n); err != nil {
				return err
			}
		}
		deleted, reached = len(seqs), uint64(seqs[len(seqs)-1])
		return giveBack(ctx, t)
	})
	if err != nil {
		return 0, err
	}
	s.pruned = reached
	return deleted, nil
}

// prunable returns the next rows to delete, and how many of them each session has.
func (s *Store) prunable(ctx context.Context, t *tx, limit int) (seqs []int64, sessions map[int64]int64, err error) {
	rows, err := t.query(ctx, sqlPrunable, int64(s.pruned), int64(s.head.oldest), limit)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	sessions = map[int64]int64{}
	for rows.Next() {
		var seq, pk int64
		if err := rows.Scan(&seq, &pk); err != nil {
			return nil, nil, err
		}
		seqs = append(seqs, seq)
		sessions[pk]++
	}
	return seqs, sessions, rows.Err()
}

// countPruned takes the rows out of the session's counts. Only if none is left the
// last number changes, which is part of an index.
func countPruned(ctx context.Context, t *tx, pk, n int64) error {
	res, err := t.exec(ctx, sqlCountPruned, pk, n)
	if err != nil {
		return err
	}
	left, err := res.RowsAffected()
	if err == nil && left == 0 {
		_, err = t.exec(ctx, sqlCountNone, pk)
	}
	return err
}
