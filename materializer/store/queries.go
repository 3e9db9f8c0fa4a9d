package store

// Every statement has a fixed text, and a test asserts its plan, with and without
// statistics of the tables. A filter that may be absent is a text of its own: a term
// like "?1 IS NULL OR a = ?1" takes the index from the planner. INDEXED BY turns a
// lost plan into an error. No text ends in a semicolon, which the driver would take
// for a script and compile at each use.

// The texts of pages. Their parameters are the same: ?1 the number after which rows
// are wanted, ?2 how many rows to look at, ?3 how many to return, ?4 the type, ?5
// what the filter compares with, ?6 the workspaces of a scope beside it, a JSON array.
//
// The inner query finds numbers in an index and the outer one fetches their rows.
// For one session, and for all, it is a coroutine that stops with the outer one. For
// several sessions it goes through the index session by session, keeps the ?2 lowest
// numbers, and leaves a session as soon as its next number is not among them: about
// 5 µs a session, whatever the table's size. A session without rows after the
// cursor is not looked at, so a reader at the end costs nothing.
const (
	numbersOfAll       = `SELECT seq AS q FROM events WHERE seq > ?1 ORDER BY seq LIMIT `
	numbersOfSession   = `SELECT seq AS q FROM events INDEXED BY events_session WHERE session_pk = ?5 AND seq > ?1 ORDER BY seq LIMIT `
	numbersOfID        = `SELECT seq AS q FROM events INDEXED BY events_session WHERE session_pk IN (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?5 AND last_seq > ?1) AND seq > ?1 ORDER BY seq LIMIT `
	numbersOfWorkspace = `SELECT seq AS q FROM events INDEXED BY events_session WHERE session_pk IN (SELECT session_pk FROM sessions INDEXED BY sessions_active WHERE workspace_id = ?5 AND last_seq > ?1) AND seq > ?1 ORDER BY seq LIMIT `
	numbersOfScope     = `SELECT seq AS q FROM events INDEXED BY events_session WHERE session_pk IN (SELECT session_pk FROM json_each(?5) j CROSS JOIN sessions INDEXED BY sessions_active WHERE workspace_id = j.value AND last_seq > ?1) AND seq > ?1 ORDER BY seq LIMIT `
	numbersOfIDInScope = `SELECT seq AS q FROM events INDEXED BY events_session WHERE session_pk IN (SELECT session_pk FROM json_each(?6) j CROSS JOIN sessions INDEXED BY sessions_key WHERE session_id = ?5 AND workspace_id = j.value AND last_seq > ?1) AND seq > ?1 ORDER BY seq LIMIT `

	eventColumns = `SELECT e.seq, s.workspace_id, s.session_id, e.type, e.recorded_at_ms, e.origin_time, e.data FROM `
	pageColumns  = eventColumns + `(`
	pageJoin     = `?2) CROSS JOIN events e ON e.seq = q CROSS JOIN sessions s ON s.session_pk = e.session_pk`
	pageShown    = ` WHERE e.session_pk NOT IN (SELECT session_pk FROM removals)`
	pageEnd      = ` ORDER BY q LIMIT ?3`

	sqlPageOfAll            = pageColumns + numbersOfAll + pageJoin + pageShown + pageEnd
	sqlTypedPageOfAll       = pageColumns + numbersOfAll + pageJoin + pageShown + ` AND e.type = ?4` + pageEnd
	sqlPageOfSession        = pageColumns + numbersOfSession + pageJoin + pageEnd
	sqlTypedPageOfSession   = pageColumns + numbersOfSession + pageJoin + ` WHERE e.type = ?4` + pageEnd
	sqlPageOfID             = pageColumns + numbersOfID + pageJoin + pageEnd
	sqlTypedPageOfID        = pageColumns + numbersOfID + pageJoin + ` WHERE e.type = ?4` + pageEnd
	sqlPageOfWorkspace      = pageColumns + numbersOfWorkspace + pageJoin + pageEnd
	sqlTypedPageOfWorkspace = pageColumns + numbersOfWorkspace + pageJoin + ` WHERE e.type = ?4` + pageEnd
	sqlPageOfScope          = pageColumns + numbersOfScope + pageJoin + pageEnd
	sqlTypedPageOfScope     = pageColumns + numbersOfScope + pageJoin + ` WHERE e.type = ?4` + pageEnd
	sqlPageOfIDInScope      = pageColumns + numbersOfIDInScope + pageJoin + pageEnd
	sqlTypedPageOfIDInScope = pageColumns + numbersOfIDInScope + pageJoin + ` WHERE e.type = ?4` + pageEnd

	// A workspace of many sessions: how many have rows, up to ?2; and the page if its rows
	// are among the next ?2 numbers of all. See dense.go.
	sqlActiveOfWorkspace = `SELECT count(*) FROM (SELECT 1 FROM sessions INDEXED BY sessions_active WHERE workspace_id = ?5 AND last_seq > ?1 LIMIT ?2)`
	sqlDenseOfWorkspace  = eventColumns + `events e CROSS JOIN sessions s ON s.session_pk = e.session_pk WHERE e.seq > ?1 AND e.seq <= ?1 + ?2 AND s.workspace_id = ?5 AND s.last_seq > ?1 ORDER BY e.seq LIMIT ?3`

	// The last number that the inner query looks at, no row if there are fewer.
	sqlEndOfAll       = numbersOfAll + `1 OFFSET ?2 - 1`
	sqlEndOfSession   = numbersOfSession + `1 OFFSET ?2 - 1`
	sqlEndOfID        = numbersOfID + `1 OFFSET ?2 - 1`
	sqlEndOfWorkspace = numbersOfWorkspace + `1 OFFSET ?2 - 1`
	sqlEndOfScope     = numbersOfScope + `1 OFFSET ?2 - 1`
	sqlEndOfIDInScope = numbersOfIDInScope + `1 OFFSET ?2 - 1`
)

// Whole rows.
const (
	rowColumns = `SELECT e.seq, s.workspace_id, s.session_id, e.type, e.recorded_at_ms, e.origin_seq, e.origin_time, e.origin_index, e.source, coalesce(e.trace, ''), e.data FROM events e CROSS JOIN sessions s ON s.session_pk = e.session_pk`

	sqlRows    = rowColumns + ` WHERE e.seq > ?1 AND e.session_pk NOT IN (SELECT session_pk FROM removals) ORDER BY e.seq LIMIT ?2`
	sqlLastRow = rowColumns + ` WHERE e.seq <= ?1 AND e.session_pk NOT IN (SELECT session_pk FROM removals) ORDER BY e.seq DESC LIMIT 1`

	// Those of one message: the session's are looked through.
	sqlRowsOfSource = rowColumns + ` WHERE e.session_pk = (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2 AND forgotten = 0) AND e.source = ?3 ORDER BY e.seq LIMIT ?4`
)

// Sessions as readers see them: ?1 the key after which they are wanted, ?2 how many.
const (
	sessionColumns  = `SELECT session_pk, workspace_id, session_id, first_seq, last_seq, event_count, held_pages, view, chain, publishers FROM sessions `
	sessionsInOrder = `SELECT session_pk, workspace_id, session_id, first_seq, last_seq, event_count, held_pages, view, chain, publishers FROM (SELECT session_pk AS pk FROM `

	sqlSessions            = sessionColumns + `INDEXED BY sessions_shown WHERE present = 1 AND session_pk > ?1 ORDER BY session_pk LIMIT ?2`
	sqlSessionsOfWorkspace = sessionColumns + `INDEXED BY sessions_listed WHERE workspace_id = ?3 AND present = 1 AND session_pk > ?1 ORDER BY session_pk LIMIT ?2`
	sqlSessionsOfID        = sessionColumns + `INDEXED BY sessions_key WHERE session_id = ?3 AND workspace_id > coalesce((SELECT workspace_id FROM sessions WHERE session_pk = ?1), '') AND present = 1 ORDER BY workspace_id LIMIT ?2`
	sqlSessionOfKey        = sessionColumns + `INDEXED BY sessions_key WHERE session_id = ?3 AND workspace_id = ?4 AND present = 1 AND session_pk > ?1 LIMIT ?2`

	// Those of a scope, whose workspaces are a JSON array, none twice.
	sqlSessionsOfScope     = sessionsInOrder + `json_each(?3) j CROSS JOIN sessions INDEXED BY sessions_listed WHERE workspace_id = j.value AND present = 1 AND session_pk > ?1 ORDER BY session_pk LIMIT ?2) CROSS JOIN sessions ON session_pk = pk ORDER BY pk`
	sqlSessionsOfIDInScope = sessionColumns + `INDEXED BY sessions_key WHERE session_id = ?3 AND workspace_id > coalesce((SELECT workspace_id FROM sessions WHERE session_pk = ?1), '') AND workspace_id IN (SELECT value FROM json_each(?4)) AND present = 1 ORDER BY workspace_id LIMIT ?2`

	sqlWorkspacesOfIDInScope = `SELECT workspace_id FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id IN (SELECT value FROM json_each(?3)) AND present = 1 ORDER BY workspace_id LIMIT ?2`

	sqlWorkspacesOfID = `SELECT workspace_id FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND present = 1 ORDER BY workspace_id LIMIT ?2`
	sqlFindSession    = `SELECT session_pk, present, forgotten FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2`
	sqlLoadState      = `SELECT session_pk, present, forgotten, held_pages, view, chain, publishers FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2`
	sqlHeld           = `SELECT first_ordinal, last_digest, last_ordinal, ingest_seq, ingest_time, body FROM held INDEXED BY held_page WHERE session_pk = ?1 ORDER BY first_ordinal, last_digest`
)

// The position, the file, and what is pending.
const (
	sqlIdentify        = `SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`
	sqlStoreID         = `SELECT store_id FROM replica WHERE one = 1`
	sqlRestored        = `SELECT restored FROM replica WHERE one = 1`
	sqlHead            = `SELECT epoch, ingest_id, ingest_seq, ingest_time, ingest_hash, highest_time, events_seq, oldest_seq, applied, duplicates, dropped, unprojected, foreigners, holes, sessions, held, rejects, reject_bytes, since_time FROM position WHERE one = 1`
	sqlMarks           = `SELECT ingest_seq, ingest_time, hash FROM marks WHERE ingest_seq < ?1 ORDER BY ingest_seq DESC LIMIT ?2`
	sqlStretches       = `SELECT from_time, last_seq, last_time FROM stretches ORDER BY stretch_id`
	sqlPendingRemovals = `SELECT coalesce(sum(max(s.event_count, 1)), 0) FROM removals r CROSS JOIN sessions s ON s.session_pk = r.session_pk`
	sqlNextRemovals    = `SELECT e.seq, s.workspace_id, s.session_id, s.erase_seq > 0, e.origin_seq, e.origin_time, e.origin_index FROM removals r CROSS JOIN sessions s ON s.session_pk = r.session_pk CROSS JOIN events e INDEXED BY events_session ON e.session_pk = r.session_pk ORDER BY r.session_pk, e.seq LIMIT ?1`
	sqlNextForgotten   = `SELECT s.workspace_id, s.session_id, s.erase_seq > 0 FROM removals r CROSS JOIN sessions s ON s.session_pk = r.session_pk ORDER BY r.session_pk LIMIT 1`
	sqlTombstones      = `SELECT session_pk, workspace_id, session_id FROM sessions INDEXED BY sessions_forgotten WHERE forgotten = 1 AND session_pk > ?1 ORDER BY session_pk LIMIT ?2`
	sqlErasures        = `SELECT s.workspace_id, s.session_id, s.erase_seq, x.cut FROM erasures x CROSS JOIN sessions s ON s.session_pk = x.session_pk ORDER BY x.session_pk`
	sqlCountErasures   = `SELECT count(*), coalesce(sum(x.cut = 0 AND r.session_pk IS NULL), 0) FROM erasures x LEFT JOIN removals r ON r.session_pk = x.session_pk`
	sqlKnownID         = `SELECT hash FROM ids WHERE event_id = ?1 AND session_pk = (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?2 AND workspace_id = ?3 AND forgotten = 0) AND applied_time >= ?4`
	sqlKnownIDs        = `SELECT s.workspace_id, s.session_id, i.event_id, i.hash, i.applied_time FROM json_each(?1) j CROSS JOIN ids i ON i.event_id = j.value CROSS JOIN sessions s ON s.session_pk = i.session_pk WHERE i.applied_time >= ?2 AND s.forgotten = 0`
)

// Rejects: in lists ?1 the id after which they are wanted, ?2 how many.
const (
	rejectColumns  = `SELECT r.reject_id, r.ingest_seq, r.ingest_time, s.workspace_id, s.session_id, r.subject, r.class, r.reason, r.detail, r.publisher, r.publisher_seq, r.event_id, r.payload IS NOT NULL, r.payload_size, r.payload_hash, `
	rejectsOf      = rejectColumns + `NULL FROM rejects r INDEXED BY rejects_session CROSS JOIN sessions s ON s.session_pk = r.session_pk WHERE r.reject_id > ?1 AND r.discarded = 0 AND r.session_pk IN `
	rejectsEnd     = ` ORDER BY r.reject_id LIMIT ?2`
	newestRejectOf = ` CROSS JOIN sessions s ON s.session_pk = r.session_pk WHERE r.session_pk = (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2) AND `
	newestReject   = ` ORDER BY r.reject_id DESC LIMIT 1`

	sqlRejects            = rejectColumns + `NULL FROM rejects r INDEXED BY rejects_open LEFT JOIN sessions s ON s.session_pk = r.session_pk WHERE r.reject_id > ?1 AND r.discarded = 0` + rejectsEnd
	sqlRejectsOfWorkspace = rejectsOf + `(SELECT session_pk FROM sessions INDEXED BY sessions_active WHERE workspace_id = ?3)` + rejectsEnd
	sqlRejectsOfID        = rejectsOf + `(SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?3)` + rejectsEnd
	sqlRejectsOfSession   = rejectsOf + `(SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?3 AND workspace_id = ?4)` + rejectsEnd

	sqlReject        = rejectColumns + `r.payload FROM rejects r LEFT JOIN sessions s ON s.session_pk = r.session_pk WHERE r.reject_id = ?1 AND r.discarded = 0`
	sqlRejectOfCount = rejectColumns + `r.payload FROM rejects r INDEXED BY rejects_count` + newestRejectOf + `r.publisher IS NOT NULL AND r.publisher = ?3 AND r.publisher_seq = ?4` + newestReject
	sqlFinalRejectOf = rejectColumns + `r.payload FROM rejects r INDEXED BY rejects_count` + newestRejectOf + `r.publisher IS NOT NULL AND r.publisher = ?3 AND r.publisher_seq = ?4 AND r.reason NOT IN ('conflict', 'ahead')` + newestReject
	sqlRejectOfEvent = rejectColumns + `r.payload FROM rejects r INDEXED BY rejects_event` + newestRejectOf + `r.event_id IS NOT NULL AND r.event_id = ?3` + newestReject

	sqlRejectedMessages = `SELECT ingest_seq, ingest_time FROM rejects INDEXED BY rejects_message WHERE ingest_seq BETWEEN ?1 AND ?2 AND class <> ''`

	// Its list of reasons is that of the index.
	sqlIrregular = `SELECT count(*), coalesce(max(reject_id), 0), coalesce(detail, '') FROM rejects INDEXED BY rejects_irregular WHERE discarded = 0 AND reason IN ('ingest_hole', 'ingest_trimmed', 'ingest_rolled_back', 'ingest_recreated')`
)

// readerTexts are the statements of readers.
func readerTexts() []string {
	return []string{
		sqlPageOfAll, sqlTypedPageOfAll, sqlPageOfSession, sqlTypedPageOfSession,
		sqlPageOfID, sqlTypedPageOfID, sqlPageOfWorkspace, sqlTypedPageOfWorkspace, sqlActiveOfWorkspace, sqlDenseOfWorkspace,
		sqlPageOfScope, sqlTypedPageOfScope, sqlPageOfIDInScope, sqlTypedPageOfIDInScope, sqlEndOfScope, sqlEndOfIDInScope,
		sqlSessionsOfScope, sqlSessionsOfIDInScope, sqlWorkspacesOfIDInScope,
		sqlEndOfAll, sqlEndOfSession, sqlEndOfID, sqlEndOfWorkspace, sqlRows, sqlLastRow, sqlRowsOfSource,
		sqlSessions, sqlSessionsOfWorkspace, sqlSessionsOfID, sqlSessionOfKey, sqlWorkspacesOfID,
		sqlFindSession, sqlLoadState, sqlHeld, sqlHead, sqlStoreID, sqlRestored, sqlMarks, sqlPendingRemovals, sqlNextRemovals, sqlNextForgotten, sqlTombstones, sqlErasures, sqlCountErasures, sqlKnownID, sqlKnownIDs,
		sqlRejects, sqlRejectsOfWorkspace, sqlRejectsOfID, sqlRejectsOfSession,
		sqlReject, sqlRejectOfCount, sqlFinalRejectOf, sqlRejectOfEvent, sqlRejectedMessages, sqlStretches, sqlIrregular,
	}
}
