package store

// What a commit writes. The texts that run once a row, a session or a message number
// no parameters: the driver looks up the name of each numbered one at each run.
const (
	sqlInsertEvent = `INSERT INTO events (seq, session_pk, type, recorded_at_ms, origin_seq, origin_time, origin_index, source, trace, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlInsertSession = `INSERT INTO sessions (workspace_id, session_id, present, forgotten, first_seq, last_seq, event_count, last_activity_at_ms, held_pages, view, chain, publishers, erase_seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`
	sqlCountRows     = `UPDATE sessions SET first_seq = iif(event_count = 0, ?, first_seq), last_seq = ?, event_count = event_count + ? WHERE session_pk = ?`
	sqlSaveState     = `UPDATE sessions SET last_activity_at_ms = coalesce(?, last_activity_at_ms), held_pages = ?, view = coalesce(?, view), chain = coalesce(?, chain), publishers = coalesce(?, publishers) WHERE session_pk = ?`
	sqlSaveBoth      = `UPDATE sessions SET first_seq = iif(event_count = 0, ?, first_seq), last_seq = ?, event_count = event_count + ?, last_activity_at_ms = coalesce(?, last_activity_at_ms), held_pages = ?, view = coalesce(?, view), chain = coalesce(?, chain), publishers = coalesce(?, publishers) WHERE session_pk = ?`
	sqlShowSession   = `UPDATE sessions SET present = 1 WHERE session_pk = ?1`

	sqlForgetSession  = `UPDATE sessions SET present = 0, forgotten = 1, first_seq = 0, last_seq = 0, event_count = event_count + ?2, last_activity_at_ms = NULL, held_pages = 0, view = NULL, chain = NULL, publishers = NULL, erase_seq = ?3 WHERE session_pk = ?1`
	sqlForgetHeld     = `DELETE FROM held WHERE session_pk = ?1`
	sqlForgetRejects  = `DELETE FROM rejects WHERE session_pk = ?1`
	sqlSessionRejects = `SELECT count(*), coalesce(sum(length(payload)), 0) FROM rejects INDEXED BY rejects_session WHERE session_pk = ?1 AND discarded = 0`
	sqlCountRemovals  = `UPDATE sessions SET event_count = event_count + ?2 WHERE session_pk = ?1`
	sqlQueueRemoval   = `INSERT OR IGNORE INTO removals SELECT session_pk FROM sessions WHERE session_pk = ?1`
	sqlQueueErasure   = `INSERT OR REPLACE INTO erasures SELECT session_pk, 0 FROM sessions WHERE session_pk = ?1 AND erase_seq > 0`

	sqlRememberID = `INSERT INTO ids (event_id, session_pk, hash, applied_time, ingest_seq) VALUES (?, ?, ?, ?, ?) ON CONFLICT (event_id, session_pk) DO UPDATE SET hash = excluded.hash, applied_time = excluded.applied_time, ingest_seq = excluded.ingest_seq`

	sqlInsertReject  = `INSERT INTO rejects (ingest_seq, ingest_time, session_pk, subject, class, reason, detail, publisher, publisher_seq, event_id, payload, payload_size, payload_hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`
	sqlKnownReject   = `SELECT EXISTS (SELECT 1 FROM rejects INDEXED BY rejects_message WHERE ingest_seq = ?1 AND ingest_time = ?2 AND reason = ?3)`
	sqlOldestPayload = `SELECT reject_id, length(payload) FROM rejects INDEXED BY rejects_kept WHERE payload IS NOT NULL ORDER BY reject_id LIMIT 1`
	sqlShrinkReject  = `UPDATE rejects SET payload = NULL WHERE reject_id = ?1`

	sqlDiscardSize   = `SELECT count(*), coalesce(sum(length(payload)), 0) FROM rejects INDEXED BY rejects_message WHERE ingest_seq = ?1 AND ingest_time = ?2 AND reason = ?3 AND discarded = 0`
	sqlDiscardReject = `UPDATE rejects INDEXED BY rejects_message SET payload = NULL, discarded = 1 WHERE ingest_seq = ?1 AND ingest_time = ?2 AND reason = ?3 AND discarded = 0`

	sqlHold    = `INSERT INTO held (session_pk, first_ordinal, last_digest, last_ordinal, ingest_seq, ingest_time, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (session_pk, first_ordinal, last_digest) DO NOTHING`
	sqlRelease = `DELETE FROM held WHERE session_pk = ?1 AND first_ordinal = ?2 AND last_digest = ?3`

	sqlCutMarks      = `DELETE FROM marks WHERE ingest_seq > ?1`
	sqlAddMark       = `INSERT INTO marks (ingest_seq, ingest_time, hash) VALUES (?1, ?2, ?3)`
	sqlDropMarks     = `DELETE FROM marks WHERE ingest_seq <= (SELECT ingest_seq FROM marks ORDER BY ingest_seq LIMIT 1 OFFSET 1) AND ingest_time < ?1`
	sqlAddStretch    = `INSERT INTO stretches (from_time, last_seq, last_time, back_seq) VALUES (?1, ?2, ?3, ?4)`
	sqlDropStretches = `DELETE FROM stretches WHERE stretch_id <= (SELECT max(stretch_id) FROM stretches) - ?1`
	sqlSaveHead      = `UPDATE position SET epoch = ?1, ingest_id = ?2, ingest_seq = ?3, ingest_time = ?4, ingest_hash = ?5, highest_time = ?6, events_seq = ?7, oldest_seq = ?8, applied = ?9, duplicates = ?10, dropped = ?11, unprojected = ?12, foreigners = ?13, holes = ?14, sessions = ?15, held = ?16, rejects = ?17, reject_bytes = ?18, since_time = ?19 WHERE one = 1`
	sqlNewStoreID    = `UPDATE replica SET store_id = lower(hex(randomblob(8))) WHERE one = 1`
	sqlSetRestored   = `UPDATE replica SET restored = ?1 WHERE one = 1`
)

// What the steps beside it write.
const (
	sqlRemovalSession = `SELECT session_pk FROM events WHERE seq = ?1 AND session_pk IN (SELECT session_pk FROM removals)`
	sqlDeleteEvent    = `DELETE FROM events WHERE seq = ?1`
	sqlEndRemoval     = `DELETE FROM removals WHERE session_pk = (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2) AND NOT EXISTS (SELECT 1 FROM events e INDEXED BY events_session WHERE e.session_pk = removals.session_pk)`

	sqlRemoveAgain = `INSERT OR IGNORE INTO removals SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2 AND forgotten = 1`
	sqlCutErasures = `UPDATE erasures SET cut = 1 WHERE cut = 0 AND session_pk NOT IN (SELECT session_pk FROM removals)`
	sqlEndErasure  = `DELETE FROM erasures WHERE session_pk = (SELECT session_pk FROM sessions INDEXED BY sessions_key WHERE session_id = ?1 AND workspace_id = ?2) AND cut = 1`

	sqlPrunable    = `SELECT seq, session_pk FROM events WHERE seq > ?1 AND seq < ?2 AND session_pk NOT IN (SELECT session_pk FROM removals) ORDER BY seq LIMIT ?3`
	sqlCountPruned = `UPDATE sessions SET event_count = event_count - ?2, first_seq = (SELECT seq FROM events INDEXED BY events_session WHERE session_pk = ?1 ORDER BY seq LIMIT 1) WHERE session_pk = ?1 AND event_count > ?2`
	sqlCountNone   = `UPDATE sessions SET event_count = 0, first_seq = 0, last_seq = 0 WHERE session_pk = ?1`

	sqlSweepIDs = `SELECT i.event_id, i.session_pk, i.applied_time, s.forgotten FROM ids i CROSS JOIN sessions s ON s.session_pk = i.session_pk WHERE (i.event_id, i.session_pk) > (?1, ?2) ORDER BY i.event_id, i.session_pk LIMIT ?3`
	sqlDropID   = `DELETE FROM ids WHERE event_id = ?1 AND session_pk = ?2`

	sqlFreePages  = `SELECT freelist_count FROM pragma_freelist_count`
	sqlGiveBack   = `PRAGMA incremental_vacuum(500)` // 500 pages took 7 ms
	sqlCheckpoint = `PRAGMA wal_checkpoint(TRUNCATE)`
)

// How long the writer's connection waits for locks.
const (
	waitForNobody = `PRAGMA busy_timeout = 0`
	waitAsUsual   = `PRAGMA busy_timeout = 5000` // BusyTimeout
)

// writerTexts are the statements of the writer.
func writerTexts() []string {
	return []string{
		sqlHead, sqlMarks, sqlFindSession,
		sqlInsertEvent, sqlInsertSession, sqlCountRows, sqlSaveState, sqlSaveBoth, sqlShowSession,
		sqlForgetSession, sqlForgetHeld, sqlForgetRejects, sqlSessionRejects, sqlCountRemovals, sqlQueueRemoval, sqlQueueErasure, sqlRemoveAgain, sqlCutErasures, sqlEndErasure,
		sqlRememberID, sqlInsertReject, sqlKnownReject, sqlOldestPayload, sqlShrinkReject, sqlHold, sqlRelease,
		sqlCutMarks, sqlAddMark, sqlDropMarks, sqlAddStretch, sqlDropStretches, sqlSaveHead, sqlNewStoreID, sqlSetRestored,
		sqlRemovalSession, sqlDeleteEvent, sqlEndRemoval, sqlPrunable, sqlCountPruned, sqlCountNone,
		sqlSweepIDs, sqlDropID, sqlDiscardSize, sqlDiscardReject, sqlFreePages, sqlGiveBack, sqlCheckpoint,
	}
}
