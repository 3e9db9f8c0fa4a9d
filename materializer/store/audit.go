package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// AuditSession is a session as its row says it is, beside what the other tables hold
// of it, all in one snapshot.
type AuditSession struct {
	PK        int64
	Key       bus.Key
	Present   bool
	Forgotten bool
	Removing  bool // it is in the work list of removals

	First, Last, Rows     int64 // as the session's row says
	HeldPages             int64
	HasFirst, HasLast     int64 // as the events say; 0 if there are none
	HasRows, HasHeldPages int64

	State    *projection.State // without held pages; nil if it can not be read
	StateErr error             // why not
}

// maxAuditBytes ends a page of sessions: a state has no bound of its own but a message's
// size and the constants of projection, and takes some times as much memory as stored.
const maxAuditBytes = 4 << 20

// AuditSessions returns the next sessions after the key, with what is there of them,
// at most limit, or fewer when their states reach 4 MiB as stored; none at the end. For
// verify.
func (r *Reader) AuditSessions(ctx context.Context, after int64, limit int) ([]AuditSession, error) {
	return view(ctx, r, "read sessions", func(ctx context.Context, t *tx) ([]AuditSession, error) {
		rows, err := t.QueryContext(ctx, auditSessions, after, limit)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var all []AuditSession
		bytes := 0
		for len(all) < limit && bytes < maxAuditBytes && rows.Next() {
			var a AuditSession
			var st storedState
			if err := rows.Scan(&a.PK, &a.Key.Workspace, &a.Key.Session, &a.Present, &a.Forgotten, &a.First, &a.Last, &a.Rows,
				&a.HeldPages, &st.view, &st.chain, &st.publishers, &a.Removing); err != nil {
				return nil, err
			}
			st.present = a.Present
			if !a.Forgotten {
				a.State, a.StateErr = st.decode()
			}
			all = append(all, a)
			bytes += len(st.view) + len(st.chain) + len(st.publishers)
		}
		// The connection is needed for what follows.
		if err := rows.Close(); err != nil {
			return nil, err
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		for i := range all {
			a := &all[i]
			if err := t.QueryRowContext(ctx, auditCounts, a.PK).Scan(&a.HasRows, &a.HasFirst, &a.HasLast); err != nil {
				return nil, err
			}
			if err := t.QueryRowContext(ctx, auditHeld, a.PK).Scan(&a.HasHeldPages); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// AuditFact is what verify needs of a row to judge its session's order.
type AuditFact struct {
	Seq    uint64
	Origin bus.Origin
	Source bus.Source
}

// AuditFacts returns at most limit rows of the session after the number, ascending.
func (r *Reader) AuditFacts(ctx context.Context, pk int64, after uint64, limit int) ([]AuditFact, error) {
	return view(ctx, r, "read a session's rows", func(ctx context.Context, t *tx) ([]AuditFact, error) {
		rows, err := t.QueryContext(ctx, auditFacts, pk, int64(min(after, bus.MaxSeq)), limit)
		return collect(rows, err, func(row scanner) (f AuditFact, err error) {
			var source string
			err = row.Scan(&f.Seq, &f.Origin.Seq, &f.Origin.Time, &f.Origin.Index, &source)
			f.Source, _ = bus.ParseSource(source) // reading the row has told already
			return f, err
		})
	})
}

// AuditCounts are the store's own counters beside what there is to count.
type AuditCounts struct {
	Sessions, Held, Rejects, RejectBytes int64 // as status says
	HasSessions, HasHeld, HasRejects     int64 // counted
	HasRejectBytes                       int64
	EventsSeq, HighestRow                uint64
	Orphans                              []uint64 // rows of sessions that are not there, the first few
}

// AuditCounts counts what status keeps counters of, in one snapshot. For verify: it
// reads whole tables, though not their payloads.
func (r *Reader) AuditCounts(ctx context.Context) (AuditCounts, error) {
	return view(ctx, r, "count", func(ctx context.Context, t *tx) (c AuditCounts, err error) {
		h, err := readHead(ctx, t)
		if err != nil {
			return c, err
		}
		c = AuditCounts{Sessions: h.sessions, Held: h.held, Rejects: h.rejects, RejectBytes: h.rejectBytes, EventsSeq: h.EventsSeq}
		if err := t.QueryRowContext(ctx, recountedHeads).Scan(&c.HasSessions, &c.HasHeld, &c.HasRejects, &c.HasRejectBytes); err != nil {
			return c, err
		}
		if err := t.QueryRowContext(ctx, auditBeyond).Scan(&c.HighestRow); err != nil {
			return c, err
		}
		rows, err := t.QueryContext(ctx, auditOrphans, 100)
		if err != nil {
			return c, err
		}
		defer rows.Close()
		for rows.Next() {
			var seq uint64
			if err := rows.Scan(&seq); err != nil {
				return c, err
			}
			c.Orphans = append(c.Orphans, seq)
		}
		return c, rows.Err()
	})
}

// Row returns the row of a number, nil if there is none or its session was forgotten.
func (r *Reader) Row(ctx context.Context, seq uint64) (*Row, error) {
	row, err := r.LastRow(ctx, seq)
	if err != nil || row == nil || row.Seq != seq {
		return nil, err
	}
	return row, nil
}

// Integrity asks SQLite whether the file is sound, and returns what it says is not,
// at most 100 lines; none if all is well. full also compares each index with its
// table, which reads the file several times over.
func (r *Reader) Integrity(ctx context.Context, full bool) ([]string, error) {
	text := quickCheck
	if full {
		text = integrityCheck
	}
	said, err := view(ctx, r, "check the file", func(ctx context.Context, t *tx) ([]string, error) {
		rows, err := t.QueryContext(ctx, text)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var said []string
		for rows.Next() {
			var line sql.NullString
			if err := rows.Scan(&line); err != nil {
				return nil, err
			}
			if line.String != "ok" {
				said = append(said, line.String)
			}
		}
		return said, rows.Err()
	})
	if errors.Is(err, ErrCorrupt) {
		return []string{fmt.Sprint(err)}, nil
	}
	return said, err
}
