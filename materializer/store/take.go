package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// ErrRowsMissing: a session has another number of rows than it counts. Taking the
// snapshot would begin in the middle; nothing was written. See [MissingRowsError].
var ErrRowsMissing = errors.New("a session's rows are not those that it counts")

// MissingRowsError is an [ErrRowsMissing] with the sessions.
type MissingRowsError struct {
	Lacking []bus.Key // all that have fewer rows than they count
	named   []string
}

// maxNamed is how many sessions the error's text names.
const maxNamed = 5

func (e *MissingRowsError) Error() string {
	return ErrRowsMissing.Error() + ": " + strings.Join(e.named, "; ")
}

// Is makes it an ErrRowsMissing.
func (e *MissingRowsError) Is(target error) bool { return target == ErrRowsMissing }

// Take puts the state of the snapshot at path, which [AddIDs] has completed, in the
// place of the store's own, in one transaction: sessions, event ids, held pages,
// rejects, marks, counters and INGEST's position. The store must have exactly the rows
// up to the snapshot's number, oldest_seq and forgotten sessions considered: it returns
// [ErrBadCommit] if its number is another one, [bus.ErrOtherBus] if its epoch is, and
// [MissingRowsError] if a session has another number of rows than the snapshot counts;
// then nothing is changed. The excused sessions may lack rows: they
// were forgotten, or rows were pruned, after the snapshot. The store's id and its INGEST id stay. Of a store that has
// read before, rejects up to its position stay, and those after it get new ids.
func (s *Store) Take(ctx context.Context, path string, excused ...bus.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.take(ctx, path, excused); err != nil {
		return wrap("take the state of a snapshot", err)
	}
	return nil
}

func (s *Store) take(ctx context.Context, path string, excused []bus.Key) (err error) {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx)
	c, err := s.writer.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.ExecContext(ctx, snapAttach, dsn(path, "mode=ro")); err != nil {
		return err
	}
	defer func() {
		for _, text := range []string{takeDropMap, takeDropCounts, snapDetach} {
			if _, e := c.ExecContext(ctx, text); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	t, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	if err := s.takeAll(ctx, t, excused); err != nil {
		return err
	}
	h, err := scanHead(t.QueryRowContext(ctx, sqlHead))
	if err != nil {
		return err
	}
	m, err := scanMark(t.QueryRowContext(ctx, sqlMarks, int64(bus.MaxSeq), 1))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := t.Commit(); err != nil {
		return err
	}
	s.head, s.mark, s.cache, s.pruned = h, m, sessionCache{}, 0
	return nil
}

// takeAll does it within the transaction.
func (s *Store) takeAll(ctx context.Context, t *sql.Tx, excused []bus.Key) error {
	theirs, err := scanHead(t.QueryRowContext(ctx, strings.Replace(sqlHead, "FROM position", "FROM src.position", 1)))
	switch {
	case err != nil:
		return err
	case theirs.Epoch != s.head.Epoch:
		return fmt.Errorf("%w: the store's epoch is %s, the snapshot's %s", bus.ErrOtherBus, s.head.Epoch, theirs.Epoch)
	case theirs.EventsSeq != s.head.EventsSeq:
		return fmt.Errorf("%w: the store is at number %d, the snapshot at %d", ErrBadCommit, s.head.EventsSeq, theirs.EventsSeq)
	}
	for _, text := range []string{takeSessions, takeMap, takeMapTheirs, takeMapOurs, takeCount, takeCountIndex} {
		if _, err := t.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if err := compareCounts(ctx, t, excused); err != nil {
		return err
	}
	if err := assign(ctx, t, takeStates, "sessions", "session_pk", "workspace_id", "session_id", "first_seq", "last_seq", "event_count"); err != nil {
		return err
	}
	for _, text := range []string{takeRows, takeTombstones, takeRemovals, queueErasures, fill(snapEmpty, "held", nil), takeForgotten} {
		if _, err := t.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if err := insertMapped(ctx, t, takeHeld, "held", ""); err != nil {
		return err
	}
	// A new store keeps the ids under which an operator knows the entries.
	ownID := "reject_id"
	if s.head.IngestSeq == 0 {
		ownID = ""
	}
	if err := insertMapped(ctx, t, takeRejects, "rejects", ownID, int64(s.head.IngestSeq)); err != nil {
		return err
	}
	if err := insertMapped(ctx, t, takeIDs, "ids", ""); err != nil {
		return err
	}
	if err := takeOthers(ctx, t); err != nil {
		return err
	}
	if err := assign(ctx, t, takePosition, "position", "one", "epoch", "ingest_id", "events_seq", "oldest_seq"); err != nil {
		return err
	}
	_, err = t.ExecContext(ctx, takeCounts, int64(theirs.oldest))
	return err
}

// compareCounts returns a MissingRowsError if a session's rows are not as many as it counts.
func compareCounts(ctx context.Context, t *sql.Tx, excused []bus.Key) error {
	rows, err := t.QueryContext(ctx, takeDiffer)
	if err != nil {
		return err
	}
	defer rows.Close()
	may := make(map[bus.Key]bool, len(excused))
	for _, k := range excused {
		may[k] = true
	}
	var missing MissingRowsError
	for rows.Next() {
		var k bus.Key
		var want, have int64
		if err := rows.Scan(&k.Workspace, &k.Session, &want, &have); err != nil {
			return err
		}
		if have < want {
			if may[k] {
				continue
			}
			missing.Lacking = append(missing.Lacking, k)
		}
		if len(missing.named) < maxNamed {
			missing.named = append(missing.named, fmt.Sprintf("session %q of workspace %q counts %d rows and has %d", k.Session, k.Workspace, want, have))
		}
	}
	if err := rows.Err(); err != nil || len(missing.named) == 0 {
		return err
	}
	return &missing
}

// assign sets main's columns but the named ones from those of src.
func assign(ctx context.Context, t *sql.Tx, text, table string, not ...string) error {
	columns, err := columnsOf(ctx, t, table, not...)
	if err != nil {
		return err
	}
	for i, c := range columns {
		columns[i] = c + " = c." + c
	}
	_, err = t.ExecContext(ctx, strings.Replace(text, "{assign}", strings.Join(columns, ", "), 1))
	return err
}

// insertMapped inserts src's rows with this store's keys of their sessions.
func insertMapped(ctx context.Context, t *sql.Tx, text, table, not string, args ...any) error {
	columns, err := columnsOf(ctx, t, table, not)
	if err != nil {
		return err
	}
	mapped := make([]string, len(columns))
	for i, c := range columns {
		if mapped[i] = "t." + c; c == "session_pk" {
			mapped[i] = "ours"
		}
	}
	text = strings.Replace(text, "{mapped}", strings.Join(mapped, ", "), 1)
	if _, err := t.ExecContext(ctx, fill(text, table, columns), args...); err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	return nil
}

func columnsOf(ctx context.Context, t *sql.Tx, table string, not ...string) ([]string, error) {
	all, err := texts(ctx, t, snapColumns, table)
	if err != nil {
		return nil, err
	}
	var columns []string
	for _, c := range all {
		if !slices.Contains(not, c) {
			columns = append(columns, c)
		}
	}
	return columns, nil
}

// takeOthers replaces the tables that have nothing of a session.
func takeOthers(ctx context.Context, t *sql.Tx) error {
	tables, err := texts(ctx, t, snapTables)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if slices.Contains([]string{"position", "sessions", "held", "rejects", "sqlite_sequence"}, table) {
			continue
		}
		if err := replaceTable(ctx, t, table); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}
