package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// MaxRejectBytes bounds the payloads that all rejects keep together. Beyond it the
// oldest shrink to hash and size.
const MaxRejectBytes = 256 << 20

// RejectWrite is a reject to leave.
type RejectWrite struct {
	Key     *bus.Key // nil if the subject names no session
	Subject string
	// Once is set if the same entry may have been left before: then none is left if
	// there is one of the same message (sequence and stored time) and reason, be it
	// discarded.
	Once bool
	projection.Reject
}

// Reject is an entry for the operator: a message that was rejected, or the record
// that a resync leaves.
type Reject struct {
	ID      int64    // ascending; never used again
	Key     *bus.Key // nil if the subject names no session
	Subject string
	// Reject holds what became of the message. Payload is nil in lists, and where
	// none is kept.
	projection.Reject
	Kept bool              // the payload is in the store
	Hash [sha256.Size]byte // of the payload; zero if there never was one
}

func (w *commit) leaveRejects(ctx context.Context, t *tx) error {
	for i := range w.Rejects {
		if err := w.leaveReject(ctx, t, &w.Rejects[i]); err != nil {
			return fmt.Errorf("leave reject of message %d: %w", w.Rejects[i].Seq, err)
		}
	}
	if err := w.shrinkRejects(ctx, t); err != nil {
		return fmt.Errorf("shrink rejects: %w", err)
	}
	return nil
}

func (w *commit) leaveReject(ctx context.Context, t *tx, r *RejectWrite) error {
	if r.Once {
		var there bool
		if err := t.row(ctx, sqlKnownReject, int64(r.Seq), r.Time, string(r.Reason)).Scan(&there); err != nil || there {
			return err
		}
	}
	var pk, publisher, count, eventID any // NULL where there is none
	if r.Key != nil {
		row, err := w.anySession(ctx, t, *r.Key)
		if err != nil {
			return err
		}
		if row.forgotten {
			return nil
		}
		pk = row.pk
	}
	if r.Identity.Publisher != "" {
		publisher, count = r.Identity.Publisher, int64(r.Identity.Count)
	}
	if r.Identity.EventID != "" {
		eventID = r.Identity.EventID
	}
	var hash []byte
	if r.Payload != nil {
		sum := sha256.Sum256(r.Payload)
		hash = sum[:]
	}
	_, err := t.exec(ctx, sqlInsertReject, int64(r.Seq), r.Time, pk, r.Subject, string(r.Class), string(r.Reason), r.Detail,
		publisher, count, eventID, r.Payload, r.Size, hash)
	w.head.rejects++
	w.head.rejectBytes += int64(len(r.Payload))
	return err
}

// shrinkRejects drops the oldest payloads until the rest is within the bound.
func (w *commit) shrinkRejects(ctx context.Context, t *tx) error {
	for w.head.rejectBytes > w.store.rejectBytes {
		var id, size int64
		if err := t.row(ctx, sqlOldestPayload).Scan(&id, &size); err != nil {
			return err
		}
		if _, err := t.exec(ctx, sqlShrinkReject, id); err != nil {
			return err
		}
		w.head.rejectBytes -= size
	}
	return nil
}

// discardRejects takes entries from the lists, which an operator has dealt with, and
// deletes their payloads. That acknowledges an irregularity of INGEST, too. Which message
// was rejected, and why, stays known to [Reader.RejectOf]: a discarded message was not
// applied. An entry that this store does not have, or has discarded, is passed.
func (w *commit) discardRejects(ctx context.Context, t *tx) error {
	for _, e := range w.Discards {
		var n, size int64
		if err := t.row(ctx, sqlDiscardSize, int64(e.Seq), e.Time, string(e.Reason)).Scan(&n, &size); err != nil {
			return fmt.Errorf("look for reject of message %d: %w", e.Seq, err)
		}
		if n == 0 {
			continue
		}
		if _, err := t.exec(ctx, sqlDiscardReject, int64(e.Seq), e.Time, string(e.Reason)); err != nil {
			return fmt.Errorf("discard reject of message %d: %w", e.Seq, err)
		}
		w.head.rejects -= n
		w.head.rejectBytes -= size
	}
	return nil
}

// RejectsQuery asks for rejects by ascending id. Filters are exact, and apply
// together; an empty one matches everything, rejects without a session included.
type RejectsQuery struct {
	Workspace string
	Session   string
	After     int64 // the last id that is known; 0 from the beginning
	Limit     int   // 1 to MaxLimit; above it MaxLimit
}

// Rejects returns the next entries without their payloads.
func (r *Reader) Rejects(ctx context.Context, q RejectsQuery) ([]Reject, error) {
	limit, err := checkLimit(q.Limit)
	if err != nil {
		return nil, err
	}
	text, args := sqlRejects, []any{q.After, limit}
	switch {
	case q.Session != "" && q.Workspace != "":
		text, args = sqlRejectsOfSession, append(args, q.Session, q.Workspace)
	case q.Session != "":
		text, args = sqlRejectsOfID, append(args, q.Session)
	case q.Workspace != "":
		text, args = sqlRejectsOfWorkspace, append(args, q.Workspace)
	}
	return view(ctx, r, "read rejects", func(ctx context.Context, t *tx) ([]Reject, error) {
		rows, err := t.query(ctx, text, args...)
		return collect(rows, err, func(row scanner) (r Reject, err error) {
			e, err := scanReject(row)
			if err != nil {
				return r, err
			}
			return *e, nil
		})
	})
}

// Reject returns the entry with its payload, [bus.ErrNotFound] if there is none, or it is
// discarded.
func (r *Reader) Reject(ctx context.Context, id int64) (*Reject, error) {
	return view(ctx, r, fmt.Sprintf("read reject %d", id), func(ctx context.Context, t *tx) (*Reject, error) {
		return oneReject(t.row(ctx, sqlReject, id))
	})
}

// RejectOf returns the session's newest entry of the publisher's count, or of the event
// id if the identity has no publisher, with its payload if that is kept; discarded
// entries included. Returns [bus.ErrNotFound] if there is none.
func (r *Reader) RejectOf(ctx context.Context, key bus.Key, identity bus.Identity) (*Reject, error) {
	return view(ctx, r, "look up reject", func(ctx context.Context, t *tx) (*Reject, error) {
		if identity.Publisher != "" {
			return oneReject(t.row(ctx, sqlRejectOfCount, key.Session, key.Workspace, identity.Publisher, int64(identity.Count)))
		}
		return oneReject(t.row(ctx, sqlRejectOfEvent, key.Session, key.Workspace, identity.EventID))
	})
}

// FinalRejectOf is RejectOf for the entry of the message that used the count: conflicts,
// which are of later copies, and what was ahead, an earlier try, are passed over.
func (r *Reader) FinalRejectOf(ctx context.Context, key bus.Key, publisher string, count uint64) (*Reject, error) {
	return view(ctx, r, "look up reject", func(ctx context.Context, t *tx) (*Reject, error) {
		return oneReject(t.row(ctx, sqlFinalRejectOf, key.Session, key.Workspace, publisher, int64(count)))
	})
}

func oneReject(row scanner) (*Reject, error) {
	e, err := scanReject(row)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bus.ErrNotFound
	}
	return e, err
}

func scanReject(row scanner) (*Reject, error) {
	var e Reject
	var seq int64
	var workspace, session, publisher, eventID sql.NullString
	var count sql.NullInt64
	var hash []byte
	err := row.Scan(&e.ID, &seq, &e.Time, &workspace, &session, &e.Subject, &e.Class, &e.Reason, &e.Detail,
		&publisher, &count, &eventID, &e.Kept, &e.Size, &hash, &e.Payload)
	if err != nil {
		return nil, err
	}
	e.Seq = uint64(seq)
	if session.Valid {
		e.Key = &bus.Key{Workspace: workspace.String, Session: session.String}
	}
	e.Identity = bus.Identity{Publisher: publisher.String, Count: uint64(count.Int64), EventID: eventID.String}
	copy(e.Hash[:], hash)
	return &e, nil
}
