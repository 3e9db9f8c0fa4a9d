package store

import (
	"context"

	"github.com/skaldbus/skald/bus"
)

// AuditID is a row whose event id the store does not know.
type AuditID struct {
	Seq     uint64
	Key     bus.Key
	EventID string
}

// AuditIDs compares event ids with the rows that came from messages with one, in one
// snapshot: it returns the first limit rows, of messages stored after since (ns since
// 1970), whose id is not known, and how many ids were applied later than anything that
// the store has read. For verify: it reads whole tables, though not their payloads.
func (r *Reader) AuditIDs(ctx context.Context, since int64, limit int) (missing []AuditID, unread int64, err error) {
	missing, err = view(ctx, r, "compare event ids", func(ctx context.Context, t *tx) ([]AuditID, error) {
		if err := t.QueryRowContext(ctx, auditUnreadIDs).Scan(&unread); err != nil {
			return nil, err
		}
		rows, err := t.QueryContext(ctx, auditMissingIDs, since, limit)
		return collect(rows, err, func(row scanner) (a AuditID, err error) {
			var source string
			if err = row.Scan(&a.Seq, &a.Key.Workspace, &a.Key.Session, &source); err == nil {
				a.EventID = source[1:] // behind the letter that says what it is
			}
			return a, err
		})
	})
	return missing, unread, err
}
