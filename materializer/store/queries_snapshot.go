package store

import "strings"

// The texts of snapshots and of what brings one into a store. They run once each, over
// whole tables, on connections of their own, so they are not among those that are
// prepared and whose plans are asserted.
//
// A file that is read is attached as src. {table} and {columns} stand for names that
// come from the schema: a column that a later schema adds is carried along.
const (
	snapAttach  = `ATTACH ?1 AS src`
	snapDetach  = `DETACH src`
	snapVacuum  = `VACUUM INTO ?1`
	snapTables  = `SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT IN ('events', 'ids', 'replica', 'removals', 'erasures') AND (name NOT LIKE 'sqlite\_%' ESCAPE '\' OR name = 'sqlite_sequence')`
	snapColumns = `SELECT name FROM pragma_table_info(?1, 'main')`
	snapEmpty   = `DELETE FROM main.{table}`
	snapCopy    = `INSERT INTO main.{table} ({columns}) SELECT {columns} FROM src.{table}`

	// What a removal has still to do is each store's own matter, and so are the rows
	// below oldest_seq that are still there.
	snapTombstones = `UPDATE main.sessions SET event_count = 0 WHERE forgotten = 1`
	snapPruned     = `UPDATE main.sessions SET event_count = event_count - n FROM (SELECT session_pk AS pk, count(*) AS n FROM src.events WHERE seq < (SELECT oldest_seq FROM src.position) GROUP BY session_pk) WHERE session_pk = pk AND forgotten = 0`
	snapStoreID    = `SELECT store_id FROM src.replica`
	snapNewestID   = `SELECT count(*), coalesce(max(applied_time), 0) FROM ids.ids`

	// Event ids carry their session's name, since each store has keys of its own.
	snapAttachIDs = `ATTACH ?1 AS ids`
	snapMakeIDs   = `CREATE TABLE ids.ids (event_id TEXT NOT NULL, workspace_id TEXT NOT NULL, session_id TEXT NOT NULL, hash BLOB NOT NULL, applied_time INTEGER NOT NULL, ingest_seq INTEGER NOT NULL) STRICT`
	snapCopyIDs   = `INSERT INTO ids.ids SELECT i.event_id, s.workspace_id, s.session_id, i.hash, i.applied_time, i.ingest_seq FROM src.ids i JOIN src.sessions s ON s.session_pk = i.session_pk WHERE i.ingest_seq > ?1 AND s.forgotten = 0`
	snapAddIDs    = `INSERT OR REPLACE INTO main.ids (event_id, session_pk, hash, applied_time, ingest_seq) SELECT i.event_id, s.session_pk, i.hash, i.applied_time, i.ingest_seq FROM src.ids i JOIN main.sessions s ON s.session_id = i.session_id AND s.workspace_id = i.workspace_id WHERE s.forgotten = 0 AND i.applied_time >= ?1`
)

// Bringing a snapshot, src, into the store, main.
const (
	takeSessions   = `INSERT INTO main.sessions (workspace_id, session_id, present, forgotten, first_seq, last_seq, event_count, held_pages) SELECT workspace_id, session_id, 0, 0, 0, 0, 0, 0 FROM src.sessions c WHERE NOT EXISTS (SELECT 1 FROM main.sessions s WHERE s.session_id = c.session_id AND s.workspace_id = c.workspace_id) ORDER BY c.session_pk`
	takeMap        = `CREATE TEMP TABLE remap AS SELECT c.session_pk AS theirs, s.session_pk AS ours FROM src.sessions c JOIN main.sessions s ON s.session_id = c.session_id AND s.workspace_id = c.workspace_id`
	takeMapTheirs  = `CREATE UNIQUE INDEX temp.remap_theirs ON remap (theirs)`
	takeMapOurs    = `CREATE UNIQUE INDEX temp.remap_ours ON remap (ours)`
	takeDropMap    = `DROP TABLE IF EXISTS temp.remap`
	takeDropCounts = `DROP TABLE IF EXISTS temp.counted`

	// The rows that a session has, of those that the snapshot counts.
	takeCount      = `CREATE TEMP TABLE counted AS SELECT session_pk AS pk, count(*) AS n FROM main.events WHERE seq >= (SELECT oldest_seq FROM src.position) GROUP BY session_pk`
	takeCountIndex = `CREATE UNIQUE INDEX temp.counted_pk ON counted (pk)`
	takeDiffer     = `SELECT c.workspace_id, c.session_id, c.event_count, coalesce(n, 0) FROM src.sessions c JOIN temp.remap ON theirs = c.session_pk LEFT JOIN temp.counted ON pk = ours WHERE c.forgotten = 0 AND c.event_count <> coalesce(n, 0) UNION ALL SELECT s.workspace_id, s.session_id, 0, n FROM temp.counted JOIN main.sessions s ON s.session_pk = pk WHERE pk NOT IN (SELECT ours FROM temp.remap)`

	// The state, less what tells of the rows in this store.
	takeStates     = `UPDATE main.sessions SET {assign} FROM src.sessions c JOIN temp.remap ON theirs = c.session_pk WHERE main.sessions.session_pk = ours`
	takeRows       = `UPDATE main.sessions SET first_seq = a, last_seq = b, event_count = n FROM (SELECT session_pk AS pk, count(*) AS n, min(seq) AS a, max(seq) AS b FROM main.events GROUP BY session_pk) WHERE session_pk = pk`
	takeTombstones = `UPDATE main.sessions SET first_seq = 0, last_seq = 0 WHERE forgotten = 1`
	takeRemovals   = `INSERT OR IGNORE INTO main.removals SELECT session_pk FROM main.sessions WHERE forgotten = 1`

	takeHeld      = `INSERT INTO main.held ({columns}) SELECT {mapped} FROM src.held t JOIN temp.remap ON theirs = t.session_pk`
	takeForgotten = `DELETE FROM main.rejects WHERE session_pk IN (SELECT session_pk FROM main.sessions WHERE forgotten = 1)`
	takeRejects   = `INSERT INTO main.rejects ({columns}) SELECT {mapped} FROM src.rejects t LEFT JOIN temp.remap ON theirs = t.session_pk WHERE t.ingest_seq > ?1 ORDER BY t.reject_id`
	takeIDs       = `INSERT OR REPLACE INTO main.ids ({columns}) SELECT {mapped} FROM src.ids t JOIN temp.remap ON theirs = t.session_pk`

	takePosition = `UPDATE main.position SET {assign} FROM src.position c`
	takeCounts   = `UPDATE main.position SET oldest_seq = max(oldest_seq, ?1), sessions = (SELECT count(*) FROM main.sessions WHERE present = 1), held = (SELECT count(*) FROM main.held), rejects = (SELECT count(*) FROM main.rejects WHERE discarded = 0), reject_bytes = (SELECT coalesce(sum(length(payload)), 0) FROM main.rejects)`
)

// fill puts the names into a text.
func fill(text, table string, columns []string) string {
	return strings.NewReplacer("{table}", table, "{columns}", strings.Join(columns, ", ")).Replace(text)
}
