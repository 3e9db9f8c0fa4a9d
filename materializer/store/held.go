package store

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// HeldWrite stores one page that waits for a gap to fill, or deletes one. A page that
// is there already, or is not there to delete, changes nothing.
type HeldWrite struct {
	Key     bus.Key
	Page    *projection.HeldPage // to store; nil to delete
	Release *projection.HeldKey  // to delete; not read if Page is set
}

func (w *commit) holdPages(ctx context.Context, t *tx) error {
	for i := range w.Held {
		h := &w.Held[i]
		row, err := w.anySession(ctx, t, h.Key)
		if err != nil {
			return fmt.Errorf("hold page: %w", err)
		}
		if row.forgotten {
			continue
		}
		n, err := holdPage(ctx, t, row.pk, h)
		if err != nil {
			return fmt.Errorf("hold page: %w", err)
		}
		w.head.held += n
	}
	return nil
}

// holdPage returns by how many the pages held became more.
func holdPage(ctx context.Context, t *tx, pk int64, h *HeldWrite) (int64, error) {
	if p := h.Page; p != nil {
		res, err := t.exec(ctx, sqlHold, pk, int64(p.First), p.Last[:], int64(p.LastOrdinal), int64(p.Seq), p.Time, p.Body)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	res, err := t.exec(ctx, sqlRelease, pk, int64(h.Release.First), h.Release.Last[:])
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return -n, err
}

// readHeld returns the session's held pages by first ordinal.
func readHeld(ctx context.Context, t *tx, pk int64) ([]projection.HeldPage, error) {
	rows, err := t.query(ctx, sqlHeld, pk)
	return collect(rows, err, func(row scanner) (p projection.HeldPage, err error) {
		var first, last, seq int64
		var digest []byte
		err = row.Scan(&first, &digest, &last, &seq, &p.Time, &p.Body)
		p.First, p.LastOrdinal, p.Seq = uint64(first), uint64(last), uint64(seq)
		copy(p.Last[:], digest)
		return p, err
	})
}
