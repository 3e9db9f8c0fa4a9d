package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// SessionWrite is what a commit changes in one session besides its rows.
type SessionWrite struct {
	Key bus.Key

	// Exists is true once a message of the session was applied or held. Until then
	// only its counts are kept, and no reader sees it. It never goes back.
	Exists bool
	// Forget makes the session a tombstone: its state, rejects and held pages go in
	// this transaction and no reader sees its rows any more; the rest of the write
	// is not read. Later writes to it do nothing.
	Forget bool
	// Erase is read with Forget: the sequence in INGEST of the message that asked for
	// the session's bytes to be overwritten, 0 if none did.
	Erase uint64

	LastActivityAt *int64 // ms; nil leaves it
	HeldPages      int    // how many pages are held after this commit

	// The state's parts as projection encodes them; nil leaves what is stored.
	Chain, Publishers, View []byte
}

// sessionChange is what a commit does to one session.
type sessionChange struct {
	key         bus.Key
	row         session // as the change leaves it
	write       *SessionWrite
	rows        int64 // new ones
	first, last uint64
}

// group collects the commit's changes by session, in the order of the rows, so that
// new sessions get ascending keys in the order in which they appeared.
func (w *commit) group() error {
	w.byKey = make(map[bus.Key]*sessionChange, len(w.Sessions))
	w.ofRow = make([]*sessionChange, len(w.Rows))
	for i := range w.Rows {
		c := w.change(w.Rows[i].Key)
		w.ofRow[i] = c
		if c.rows == 0 {
			c.first = w.Rows[i].Seq
		}
		c.last = w.Rows[i].Seq
		c.rows++
	}
	for i := range w.Sessions {
		c := w.change(w.Sessions[i].Key)
		if c.write != nil {
			return fmt.Errorf("%w: session %q of workspace %q is written twice", ErrBadCommit, c.key.Session, c.key.Workspace)
		}
		c.write = &w.Sessions[i]
	}
	return nil
}

func (w *commit) change(key bus.Key) *sessionChange {
	c := w.byKey[key]
	if c == nil {
		c = &sessionChange{key: key}
		w.byKey[key] = c
		w.changes = append(w.changes, c)
	}
	return c
}

func (w *commit) saveSessions(ctx context.Context, t *tx) error {
	for _, c := range w.changes {
		if err := w.saveSession(ctx, t, c); err != nil {
			return fmt.Errorf("save session %q of workspace %q: %w", c.key.Session, c.key.Workspace, err)
		}
	}
	return nil
}

func (w *commit) saveSession(ctx context.Context, t *tx, c *sessionChange) error {
	found, known, err := w.find(ctx, t, c.key)
	if err != nil {
		return err
	}
	c.row = found
	switch {
	case !known:
		err = w.insertSession(ctx, t, c)
	case found.forgotten:
		err = w.addRemovals(ctx, t, c)
	case c.write != nil && c.write.Forget:
		err = w.forget(ctx, t, c)
	default:
		err = w.updateSession(ctx, t, c)
	}
	w.sessions[c.key] = c.row
	return err
}

// find returns the session's row from this commit, the cache or the table.
func (w *commit) find(ctx context.Context, t *tx, key bus.Key) (row session, known bool, err error) {
	if row, known = w.sessions[key]; known {
		return row, true, nil
	}
	if row, known = w.store.cache.get(key); known {
		return row, true, nil
	}
	row, err = findSession(ctx, t, key)
	if errors.Is(err, sql.ErrNoRows) {
		return session{}, false, nil
	}
	return row, err == nil, err
}

// findSession returns sql.ErrNoRows for an unknown session.
func findSession(ctx context.Context, t *tx, key bus.Key) (row session, err error) {
	err = t.row(ctx, sqlFindSession, key.Session, key.Workspace).Scan(&row.pk, &row.present, &row.forgotten)
	return row, err
}

func (w *commit) insertSession(ctx context.Context, t *tx, c *sessionChange) error {
	var s SessionWrite
	if c.write != nil {
		s = *c.write
	}
	if s.Forget {
		s = SessionWrite{Forget: true, Erase: s.Erase}
	}
	c.row = session{present: !s.Forget && (s.Exists || c.rows > 0), forgotten: s.Forget}
	first, last := c.first, c.last
	if s.Forget {
		first, last = 0, 0
	}
	res, err := t.exec(ctx, sqlInsertSession, c.key.Workspace, c.key.Session, c.row.present, c.row.forgotten,
		int64(first), int64(last), c.rows, s.LastActivityAt, s.HeldPages, s.View, s.Chain, s.Publishers, int64(s.Erase))
	if err != nil {
		return err
	}
	if c.row.pk, err = res.LastInsertId(); err != nil {
		return err
	}
	if c.row.present {
		w.head.sessions++
	}
	if s.Forget {
		return w.queueRemoval(ctx, t, c)
	}
	return nil
}

// updateSession writes with one of three texts. They differ in which columns they
// name: an index is written again for every column of it that is named, changed
// or not.
func (w *commit) updateSession(ctx context.Context, t *tx, c *sessionChange) error {
	var err error
	s := c.write
	switch {
	case s == nil:
		_, err = t.exec(ctx, sqlCountRows, int64(c.first), int64(c.last), c.rows, c.row.pk)
	case c.rows == 0:
		_, err = t.exec(ctx, sqlSaveState, s.LastActivityAt, s.HeldPages, s.View, s.Chain, s.Publishers, c.row.pk)
	default:
		_, err = t.exec(ctx, sqlSaveBoth, int64(c.first), int64(c.last), c.rows,
			s.LastActivityAt, s.HeldPages, s.View, s.Chain, s.Publishers, c.row.pk)
	}
	if err != nil || c.row.present || c.rows == 0 && !s.Exists {
		return err
	}
	c.row.present = true
	w.head.sessions++
	_, err = t.exec(ctx, sqlShowSession, c.row.pk)
	return err
}

// forget makes the session a tombstone. Its event ids go with [Store.SweepIDs]: by
// their key they are spread over the whole table.
func (w *commit) forget(ctx context.Context, t *tx, c *sessionChange) error {
	var rejects, bytes, held int64
	if err := t.row(ctx, sqlSessionRejects, c.row.pk).Scan(&rejects, &bytes); err != nil {
		return err
	}
	res, err := t.exec(ctx, sqlForgetHeld, c.row.pk)
	if err != nil {
		return err
	}
	if held, err = res.RowsAffected(); err != nil {
		return err
	}
	if _, err := t.exec(ctx, sqlForgetRejects, c.row.pk); err != nil {
		return err
	}
	if _, err := t.exec(ctx, sqlForgetSession, c.row.pk, c.rows, int64(c.write.Erase)); err != nil {
		return err
	}
	if c.row.present {
		w.head.sessions--
	}
	w.head.rejects -= rejects
	w.head.rejectBytes -= bytes
	w.head.held -= held
	c.row.present, c.row.forgotten = false, true
	return w.queueRemoval(ctx, t, c)
}

// addRemovals counts new rows of a tombstone: EVENTS held them when the session was
// already forgotten here, or got them from a store that did not know yet.
func (w *commit) addRemovals(ctx context.Context, t *tx, c *sessionChange) error {
	if c.rows == 0 {
		return nil
	}
	if _, err := t.exec(ctx, sqlCountRemovals, c.row.pk, c.rows); err != nil {
		return err
	}
	return w.queueRemoval(ctx, t, c)
}

// queueRemoval puts the tombstone into removals, and into erasures if its bytes are to be
// overwritten.
func (w *commit) queueRemoval(ctx context.Context, t *tx, c *sessionChange) error {
	if _, err := t.exec(ctx, sqlQueueRemoval, c.row.pk); err != nil {
		return err
	}
	_, err := t.exec(ctx, sqlQueueErasure, c.row.pk)
	return err
}

// anySession returns the session's row, and makes one that readers do not see for an
// unknown session: a reject or an id belongs to it, though it does not exist.
func (w *commit) anySession(ctx context.Context, t *tx, key bus.Key) (session, error) {
	c := &sessionChange{key: key}
	var known bool
	var err error
	if c.row, known, err = w.find(ctx, t, key); err == nil && !known {
		err = w.insertSession(ctx, t, c)
	}
	w.sessions[key] = c.row
	return c.row, err
}
