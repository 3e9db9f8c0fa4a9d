package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

const (
	// MaxLimit is the most entries of any answer.
	MaxLimit = 1000
	// MaxPageBytes bounds an answer, of which one entry always fits.
	MaxPageBytes = 4 << 20
	// maxExamined is how many rows a page looks at for a type, or past rows that are
	// hidden, before it hands out a cursor and lets others have the connection.
	maxExamined = 5000
	// maxSorted is how many it looks at where the rows of several sessions have to be
	// sorted: with 1,000 sessions 1,000 rows took 13 ms and 5,000 took 400 ms.
	maxSorted = 1000
	// envelopeBytes is more than the members of a page around its events take.
	envelopeBytes = 256
)

// PageQuery asks for rows. Filters are exact, and apply together; an empty one
// matches everything, one that names nothing known matches nothing.
type PageQuery struct {
	After     *bus.Cursor // rows after it; nil asks for the newest cursor and no rows
	Limit     int         // 1 to MaxLimit; above it MaxLimit
	Session   string      // of whichever workspace, if Workspace is empty
	Workspace string
	Type      string
	// Within keeps the answer to these workspaces, none of them twice; what lies
	// elsewhere is as if it were not known. Nil is no bound, an empty list matches nothing.
	Within   []string
	MaxBytes int // of the page as AppendJSON writes it; 0 or above it MaxPageBytes

	examine int // the reader's
}

// Page is one answer. An empty page whose NextAfter is Latest is the end.
type Page struct {
	Events    []bus.Event // ascending
	NextAfter uint64      // the last row, or the last number examined if there is none
	Latest    uint64      // the last number that the store has passed
	Oldest    uint64      // the lowest number that was not pruned
	Epoch     string
}

// AppendJSON appends the page in its wire form, one compact JSON object.
func (p *Page) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"events":[`...)
	for i := range p.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = p.Events[i].AppendJSON(dst)
	}
	dst = append(dst, `],"next_after_seq":`...)
	dst = strconv.AppendUint(dst, p.NextAfter, 10)
	dst = append(dst, `,"latest_seq":`...)
	dst = strconv.AppendUint(dst, p.Latest, 10)
	dst = append(dst, `,"oldest_seq":`...)
	dst = strconv.AppendUint(dst, p.Oldest, 10)
	dst = append(dst, `,"epoch":`...)
	dst = bus.AppendQuoted(dst, p.Epoch)
	return append(dst, '}')
}

// checkLimit refuses what is no limit and cuts what is too large. To SQLite a
// negative limit is none at all.
func checkLimit(limit int) (int, error) {
	if limit < 1 {
		return 0, &bus.InvalidError{Field: "limit", Rule: fmt.Sprintf("must be from 1 to %d", MaxLimit)}
	}
	return min(limit, MaxLimit), nil
}

// Page returns the rows after the query's cursor, in one snapshot. The error is an
// *[bus.InvalidError] for a limit below 1 and a *[CursorError] for a cursor that can
// not be followed.
func (r *Reader) Page(ctx context.Context, q PageQuery) (Page, error) {
	limit, err := checkLimit(q.Limit)
	if err != nil {
		return Page{}, err
	}
	q.Limit, q.examine = limit, r.examine
	if q.MaxBytes <= 0 || q.MaxBytes > MaxPageBytes {
		q.MaxBytes = MaxPageBytes
	}
	return view(ctx, r, "read page", func(ctx context.Context, t *tx) (Page, error) {
		return readPage(ctx, t, &q)
	})
}

func readPage(ctx context.Context, t *tx, q *PageQuery) (Page, error) {
	h, err := readHead(ctx, t)
	if err != nil {
		return Page{}, err
	}
	p := Page{NextAfter: h.EventsSeq, Latest: h.EventsSeq, Oldest: h.oldest, Epoch: h.Epoch}
	if q.After == nil {
		return p, nil
	}
	if err := h.follows(*q.After); err != nil {
		return Page{}, err
	}
	// Pruned rows are gone from here on, though the steps that delete them take time.
	after := max(q.After.Seq, h.oldest-1)
	if after >= h.EventsSeq {
		return p, nil
	}
	f, err := q.filter(ctx, t)
	if err != nil || f.nothing {
		return p, err
	}
	// Without a type every row examined is shown, except where hidden ones may lie
	// between.
	examine := q.Limit
	if q.Type != "" || f.hidden {
		examine = q.examine
	}
	if f.several {
		examine = min(examine, maxSorted)
	}
	args := []any{int64(after), examine, q.Limit, q.Type, f.value, f.scope}
	full := false
	if f.rows == sqlPageOfWorkspace {
		if p.Events, full, err = readDense(ctx, t, q, args); err != nil {
			return Page{}, err
		}
	}
	if !full {
		if p.Events, _, err = readEvents(ctx, t, q, f.rows, args); err != nil {
			return Page{}, err
		}
	}
	switch {
	case len(p.Events) > 0:
		p.NextAfter = p.Events[len(p.Events)-1].Seq
	case q.Type != "" || f.hidden:
		err = lastExamined(ctx, t, f.end, args, &p.NextAfter)
	}
	return p, err
}

// Head is where the table's numbers begin and end.
type Head struct {
	Latest uint64 // the last number that the store has passed
	Oldest uint64 // the lowest number that was not pruned
	Epoch  string
}

// Follows returns the table's head if rows after the cursor can be read, or c is nil;
// else the error is a *[CursorError].
func (r *Reader) Follows(ctx context.Context, c *bus.Cursor) (Head, error) {
	return view(ctx, r, "read head", func(ctx context.Context, t *tx) (Head, error) {
		h, err := readHead(ctx, t)
		if err == nil && c != nil {
			err = h.follows(*c)
		}
		return Head{Latest: h.EventsSeq, Oldest: h.oldest, Epoch: h.Epoch}, err
	})
}

// follows returns a CursorError if the cursor can not be followed.
func (h *head) follows(c bus.Cursor) error {
	var reason error
	switch {
	case c.Epoch != "" && c.Epoch != h.Epoch:
		reason = bus.ErrOtherEpoch
	case c.Seq > h.EventsSeq:
		reason = ErrBeyond
	case c.Seq > 0 && c.Seq < h.oldest-1:
		reason = bus.ErrCursorGone
	default:
		return nil
	}
	return &CursorError{Err: reason, Cursor: c, Epoch: h.Epoch, Latest: h.EventsSeq, Oldest: h.oldest}
}

// filter is which texts answer a query.
type filter struct {
	rows, end string // the rows; the last number that the first looks at
	value     any    // what the texts compare with
	scope     any    // the workspaces beside it, for texts that take them
	hidden    bool   // rows that no reader sees may lie between
	several   bool   // rows of several sessions are sorted
	nothing   bool   // nothing can match
}

func (q *PageQuery) filter(ctx context.Context, t *tx) (f filter, err error) {
	workspace, scope, ok := within(q.Within, q.Workspace)
	switch {
	case !ok:
		return filter{nothing: true}, nil
	case q.Session != "" && workspace != "":
		row, err := findSession(ctx, t, bus.Key{Workspace: workspace, Session: q.Session})
		if errors.Is(err, sql.ErrNoRows) || err == nil && row.forgotten {
			return filter{nothing: true}, nil
		}
		if err != nil {
			return f, err
		}
		f = filter{rows: sqlPageOfSession, end: sqlEndOfSession, value: row.pk}
		if q.Type != "" {
			f.rows = sqlTypedPageOfSession
		}
	case q.Session != "" && scope != nil:
		f = filter{rows: sqlPageOfIDInScope, end: sqlEndOfIDInScope, value: q.Session, scope: scope, several: true}
		if q.Type != "" {
			f.rows = sqlTypedPageOfIDInScope
		}
	case q.Session != "":
		f = filter{rows: sqlPageOfID, end: sqlEndOfID, value: q.Session, several: true}
		if q.Type != "" {
			f.rows = sqlTypedPageOfID
		}
	case scope != nil:
		f = filter{rows: sqlPageOfScope, end: sqlEndOfScope, value: scope, several: true}
		if q.Type != "" {
			f.rows = sqlTypedPageOfScope
		}
	case workspace != "":
		f = filter{rows: sqlPageOfWorkspace, end: sqlEndOfWorkspace, value: workspace, several: true}
		if q.Type != "" {
			f.rows = sqlTypedPageOfWorkspace
		}
	default:
		f = filter{rows: sqlPageOfAll, end: sqlEndOfAll, hidden: true}
		if q.Type != "" {
			f.rows = sqlTypedPageOfAll
		}
	}
	return f, nil
}

// readEvents returns the rows until the page is full, in bytes, of which one row always
// fits, or in rows.
func readEvents(ctx context.Context, t *tx, q *PageQuery, text string, args []any) (events []bus.Event, full bool, err error) {
	rows, err := t.query(ctx, text, args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	var wire []byte // of one event, to know its size
	left := q.MaxBytes - envelopeBytes
	for rows.Next() {
		var e bus.Event
		var seq, stored int64
		if err := rows.Scan(&seq, &e.Workspace, &e.Session, &e.Type, &e.RecordedAt, &stored, &e.Data); err != nil {
			return nil, false, err
		}
		e.Seq, e.StoredAt = uint64(seq), stored/1e6
		wire = e.AppendJSON(wire[:0])
		left -= len(wire) + len(",")
		if left < 0 && len(events) > 0 {
			return events, true, nil
		}
		events = append(events, e)
	}
	return events, len(events) == q.Limit, rows.Err()
}

// lastExamined sets last to the number at which a page without rows stopped looking,
// and leaves it if the page looked up to the end.
func lastExamined(ctx context.Context, t *tx, text string, args []any, last *uint64) error {
	var seq int64
	err := t.row(ctx, text, args...).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	*last = uint64(seq)
	return err
}
