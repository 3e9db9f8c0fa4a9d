package store

// What repair and verify run, seldom and with time: these texts may read a table from
// end to end, so they are not among those whose plans are asserted, and are not
// prepared. Only the texts of sessions are asked once a session, by an index.
const (
	rewindEvents   = `DELETE FROM events WHERE seq > ?1`
	recountRows    = `UPDATE sessions SET (first_seq, last_seq, event_count) = (SELECT iif(sessions.forgotten, 0, coalesce(min(e.seq), 0)), iif(sessions.forgotten, 0, coalesce(max(e.seq), 0)), count(*) FROM events e INDEXED BY events_session WHERE e.session_pk = sessions.session_pk)`
	recountPages   = `UPDATE sessions SET held_pages = (SELECT count(*) FROM held h INDEXED BY held_page WHERE h.session_pk = sessions.session_pk)`
	resetRemovals  = `DELETE FROM removals`
	queueRemovals  = `INSERT INTO removals SELECT session_pk FROM sessions WHERE forgotten = 1`
	queueErasures  = `INSERT OR REPLACE INTO erasures SELECT session_pk, 0 FROM sessions WHERE erase_seq > 0`
	recountedHeads = `SELECT (SELECT count(*) FROM sessions WHERE present = 1), (SELECT count(*) FROM held), (SELECT count(*) FROM rejects WHERE discarded = 0), (SELECT coalesce(sum(length(payload)), 0) FROM rejects)`

	auditSessions = `SELECT session_pk, workspace_id, session_id, present, forgotten, first_seq, last_seq, event_count, held_pages, view, chain, publishers, EXISTS (SELECT 1 FROM removals r WHERE r.session_pk = sessions.session_pk) FROM sessions WHERE session_pk > ?1 ORDER BY session_pk LIMIT ?2`
	auditCounts   = `SELECT count(*), coalesce(min(seq), 0), coalesce(max(seq), 0) FROM events INDEXED BY events_session WHERE session_pk = ?1`
	auditHeld     = `SELECT count(*) FROM held INDEXED BY held_page WHERE session_pk = ?1`
	auditFacts    = `SELECT seq, origin_seq, origin_time, origin_index, source FROM events INDEXED BY events_session WHERE session_pk = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3`
	auditOrphans  = `SELECT seq FROM events INDEXED BY events_session WHERE session_pk NOT IN (SELECT session_pk FROM sessions) ORDER BY seq LIMIT ?1`
	auditBeyond   = `SELECT coalesce(max(seq), 0) FROM events`

	// The younger ids only, and of messages that were read: see Reader.AuditIDs.
	auditMissingIDs = `SELECT e.seq, s.workspace_id, s.session_id, e.source FROM events e JOIN sessions s USING (session_pk)
		WHERE e.source >= 'i' AND e.source < 'j' AND e.origin_time > ?1 AND e.origin_time <= (SELECT ingest_time FROM position) AND s.forgotten = 0
		AND NOT EXISTS (SELECT 1 FROM ids i WHERE i.event_id = substr(e.source, 2) AND i.session_pk = e.session_pk) ORDER BY e.seq LIMIT ?2`
	auditUnreadIDs = `SELECT count(*) FROM ids WHERE applied_time > (SELECT highest_time FROM position)`

	// The ids are a table that is its own index: what quick_check leaves out costs little there.
	quickCheck     = `SELECT quick_check FROM pragma_quick_check UNION ALL SELECT integrity_check FROM pragma_integrity_check('ids')`
	integrityCheck = `SELECT integrity_check FROM pragma_integrity_check`
)
