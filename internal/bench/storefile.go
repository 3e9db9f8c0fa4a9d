package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// space is a workspace of a store that is made for reading.
type space struct {
	id       string
	sessions int
	share    int // of a thousand rows
}

// buckets is what shares are parts of.
const buckets = 1000

// makeStore makes a store with so many rows, spread over the workspaces by their
// shares and within one evenly over its sessions, and opens it for reading. The rows
// are written by SQLite itself, and the index after them; so its pages lie closer
// together than in a store that has grown.
func makeStore(ctx context.Context, dir string, rows int, spaces []space) (r *store.Reader, path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a store of %d rows: %w", rows, err)
		}
	}()
	if dir, err = os.MkdirTemp(dir, "store-"); err != nil {
		return nil, "", err
	}
	path = filepath.Join(dir, storeFile)
	st, err := store.Open(path, store.Options{})
	if err != nil {
		return nil, path, err
	}
	err = st.Adopt(ctx, store.Bus{Epoch: bus.NewID(), IngestID: bus.NewID()})
	if err := errors.Join(err, st.Close()); err != nil {
		return nil, path, err
	}
	db, err := openFile(dir, storeFile, "")
	if err != nil {
		return nil, path, err
	}
	for _, text := range fillTexts(rows, spaces) {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return nil, path, errors.Join(err, db.Close())
		}
	}
	if err := db.Close(); err != nil {
		return nil, path, err
	}
	r, err = store.OpenReader(path)
	return r, path, err
}

// fillTexts returns the statements that fill a store.
func fillTexts(rows int, spaces []space) []string {
	var sessions, pk strings.Builder
	first, bound := 1, 0
	for i, s := range spaces {
		if i > 0 {
			sessions.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&sessions, `SELECT %d + i, '%s', 'session-' || (%d + i) FROM (WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n)`,
			first, s.id, first, s.sessions-1)
		bound += s.share
		// A prime scatters neighbours over buckets and sessions.
		fmt.Fprintf(&pk, " WHEN i * 7919 %% %d < %d THEN %d + i * 104729 / %d %% %d", buckets, bound, first, buckets, s.sessions)
		first += s.sessions
	}
	data := `{"message":"` + strings.Repeat("x", loadBody-40) + `","command_id":null}`
	return []string{
		`PRAGMA journal_mode=DELETE`, `PRAGMA synchronous=OFF`, `PRAGMA cache_size=-262144`,
		`DROP INDEX events_session`,
		`BEGIN`,
		`INSERT INTO sessions (session_pk, workspace_id, session_id, present, forgotten, first_seq, last_seq, event_count, held_pages)
		 SELECT pk, workspace, id, 1, 0, 0, 0, 0, 0 FROM (SELECT 0 AS pk, '' AS workspace, '' AS id WHERE 0 UNION ALL ` + sessions.String() + `)`,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		 INSERT INTO events (seq, session_pk, type, recorded_at_ms, origin_seq, origin_time, origin_index, source, data)
		 SELECT i, CASE%s END, 'error', %d + i, i, (%d + i) * 1000000, 0, '', '%s' FROM n`, rows, pk.String(), loadEpoch, loadEpoch, data),
		`CREATE INDEX events_session ON events (session_pk)`,
		`UPDATE sessions SET (first_seq, last_seq, event_count) = (SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM events WHERE events.session_pk = sessions.session_pk)`,
		fmt.Sprintf(`UPDATE position SET ingest_seq = %d, events_seq = %d, applied = %d, sessions = (SELECT count(*) FROM sessions)`, rows, rows, rows),
		`COMMIT`,
		`PRAGMA journal_mode=WAL`,
	}
}

// pageOf is a kind of page that is measured.
type pageOf struct {
	name      string
	query     store.PageQuery // without cursor and limit
	want      int             // rows; 0 is any number
	after     func(i int) uint64
	reader    *store.Reader
	durations []time.Duration
}

const (
	pageLimit  = 100
	pageRounds = 300
)

// measure reads the pages in turn, so that what disturbs one disturbs all.
func measure(ctx context.Context, pages []*pageOf) error {
	for i := range pageRounds {
		for _, p := range pages {
			q := p.query
			q.After, q.Limit = &bus.Cursor{Seq: p.after(i)}, pageLimit
			start := time.Now()
			got, err := p.reader.Page(ctx, q)
			if err != nil {
				return fmt.Errorf("read %s: %w", p.name, err)
			}
			p.durations = append(p.durations, time.Since(start))
			if p.want > 0 && len(got.Events) != p.want {
				return fmt.Errorf("read %s: %d rows instead of %d", p.name, len(got.Events), p.want)
			}
		}
	}
	return nil
}

// median returns a page's median time in ms.
func (p *pageOf) median() float64 {
	d := slices.Clone(p.durations)
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e6
}

// spread returns cursors that are spread over the first half of so many rows.
func spread(rows int) func(int) uint64 {
	return func(i int) uint64 { return uint64(i * 7919 % (rows / 2)) }
}

// removeStore closes a reader and removes the store that was made for it.
func removeStore(r *store.Reader, path string) error {
	var err error
	if r != nil {
		err = r.Close()
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(path)))
}
