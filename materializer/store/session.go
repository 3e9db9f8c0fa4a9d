package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// MaxCandidates is how many workspaces an [AmbiguousError] names.
const MaxCandidates = 1000

// LoadState returns the session's state as the last commit left it, with its held
// pages; a zero state for an unknown session, and one with nothing but Forgotten for a
// forgotten one. It is the caller's to change. The error wraps [projection.ErrEncoding]
// if what is stored can not be read.
func (r *Reader) LoadState(ctx context.Context, key bus.Key) (*projection.State, error) {
	return view(ctx, r, "load state", func(ctx context.Context, t *tx) (*projection.State, error) {
		var s storedState
		var pk int64
		err := t.row(ctx, sqlLoadState, key.Session, key.Workspace).Scan(&pk, &s.present, &s.forgotten, &s.heldPages, &s.view, &s.chain, &s.publishers)
		if errors.Is(err, sql.ErrNoRows) {
			return &projection.State{}, nil
		}
		if err != nil {
			return nil, err
		}
		if s.forgotten {
			return &projection.State{Forgotten: true}, nil
		}
		st, err := s.decode()
		if err == nil && s.heldPages > 0 {
			st.Held, err = readHeld(ctx, t, pk)
		}
		return st, err
	})
}

// storedState is a state as its row keeps it.
type storedState struct {
	present, forgotten      bool
	heldPages               int
	view, chain, publishers []byte
}

func (s *storedState) decode() (*projection.State, error) {
	st, err := projection.Decode(s.chain, s.publishers, s.view)
	if err != nil {
		return nil, err
	}
	st.Exists = s.present
	return st, nil
}

// SessionsQuery asks for sessions. Filters are exact, and apply together; an empty one
// matches everything.
type SessionsQuery struct {
	Workspace string
	Session   string
	Within    []string // as in PageQuery
	After     int64    // a page's Next; 0 from the beginning
	Limit     int      // 1 to MaxLimit; above it MaxLimit
	MaxBytes  int      // of the page as AppendJSON writes it; 0 or above it MaxPageBytes
}

// SessionsPage is one answer, in an order that does not change: with a session id
// alone by workspace, else in the order in which sessions first appeared.
type SessionsPage struct {
	Sessions [][]byte // each one compact JSON object
	Next     int64    // where to go on; 0 at the end
}

// AppendJSON appends the page as one compact JSON object,
// {"sessions":[…],"next_after":N}, N being null at the end.
func (p *SessionsPage) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"sessions":[`...)
	for i, s := range p.Sessions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, s...)
	}
	dst = append(dst, `],"next_after":`...)
	if p.Next == 0 {
		return append(dst, "null}"...)
	}
	return append(strconv.AppendInt(dst, p.Next, 10), '}')
}

// Sessions returns the next sessions, as readers see them, in one snapshot. One session
// always fits.
func (r *Reader) Sessions(ctx context.Context, q SessionsQuery) (SessionsPage, error) {
	limit, err := checkLimit(q.Limit)
	if err != nil {
		return SessionsPage{}, err
	}
	if q.MaxBytes <= 0 || q.MaxBytes > MaxPageBytes {
		q.MaxBytes = MaxPageBytes
	}
	// One more than asked for tells the end from a full page.
	text, args := sqlSessions, []any{q.After, limit + 1}
	workspace, scope, ok := within(q.Within, q.Workspace)
	switch {
	case !ok:
		return SessionsPage{}, nil
	case q.Session != "" && workspace != "":
		text, args = sqlSessionOfKey, append(args, q.Session, workspace)
	case q.Session != "" && scope != nil:
		text, args = sqlSessionsOfIDInScope, append(args, q.Session, scope)
	case q.Session != "":
		text, args = sqlSessionsOfID, append(args, q.Session)
	case scope != nil:
		text, args = sqlSessionsOfScope, append(args, scope)
	case workspace != "":
		text, args = sqlSessionsOfWorkspace, append(args, workspace)
	}
	return view(ctx, r, "read sessions", func(ctx context.Context, t *tx) (SessionsPage, error) {
		rows, err := t.query(ctx, text, args...)
		if err != nil {
			return SessionsPage{}, err
		}
		defer rows.Close()
		var p SessionsPage
		var last int64
		left := q.MaxBytes - envelopeBytes
		for rows.Next() {
			pk, rendered, err := renderSession(rows)
			if err != nil {
				return SessionsPage{}, err
			}
			left -= len(rendered) + len(",")
			if len(p.Sessions) == limit || left < 0 && len(p.Sessions) > 0 {
				p.Next = last
				break
			}
			p.Sessions, last = append(p.Sessions, rendered), pk
		}
		return p, rows.Err()
	})
}

// Session returns the session as readers see it, one compact JSON object. workspace
// may be empty if only one has a session of this id. Returns [bus.ErrNotFound] if
// there is none, or it was forgotten, and an *[AmbiguousError] if there are several.
func (r *Reader) Session(ctx context.Context, session, workspace string) ([]byte, error) {
	return r.SessionWithin(ctx, session, workspace, nil)
}

// SessionWithin is Session among the workspaces of bound; elsewhere there is none.
func (r *Reader) SessionWithin(ctx context.Context, session, workspace string, bound []string) ([]byte, error) {
	return view(ctx, r, fmt.Sprintf("read session %q", session), func(ctx context.Context, t *tx) ([]byte, error) {
		in, scope, ok := within(bound, workspace)
		if !ok {
			return nil, bus.ErrNotFound
		}
		if in == "" {
			workspaces, err := workspacesOf(ctx, t, session, scope)
			switch {
			case err != nil:
				return nil, err
			case len(workspaces) == 0:
				return nil, bus.ErrNotFound
			case len(workspaces) > 1:
				return nil, &AmbiguousError{Session: session, Workspaces: workspaces}
			}
			in = workspaces[0]
		}
		_, rendered, err := renderSession(t.row(ctx, sqlSessionOfKey, 0, 1, session, in))
		if errors.Is(err, sql.ErrNoRows) {
			return nil, bus.ErrNotFound
		}
		return rendered, err
	})
}

// workspacesOf returns the workspaces of the scope that have a session of this id.
func workspacesOf(ctx context.Context, t *tx, session string, scope any) ([]string, error) {
	text := sqlWorkspacesOfID
	if scope != nil {
		text = sqlWorkspacesOfIDInScope
	}
	rows, err := t.query(ctx, text, session, MaxCandidates, scope)
	return collect(rows, err, scanText)
}

// renderSession returns a row of sqlSessions or its like as readers see it.
func renderSession(row scanner) (pk int64, rendered []byte, err error) {
	s := storedState{present: true}
	var key bus.Key
	var e projection.SessionEvents
	var first, last int64
	err = row.Scan(&pk, &key.Workspace, &key.Session, &first, &last, &e.Count, &s.heldPages, &s.view, &s.chain, &s.publishers)
	if err != nil {
		return 0, nil, err
	}
	e.FirstSeq, e.LastSeq = uint64(first), uint64(last)
	st, err := s.decode()
	if err != nil {
		return 0, nil, fmt.Errorf("session %q of workspace %q: %w", key.Session, key.Workspace, err)
	}
	// The view tells how many pages are held, not what is in them.
	st.Held = make([]projection.HeldPage, s.heldPages)
	return pk, st.AppendSession(nil, key, e), nil
}
