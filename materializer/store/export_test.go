package store

import "context"

// Seams for tests in package store_test.

// SetRejectBytes lowers MaxRejectBytes for one store.
func (s *Store) SetRejectBytes(n int64) { s.rejectBytes = n }

// SetExamine lowers how many rows a page looks at for a type.
func (r *Reader) SetExamine(n int) { r.examine = n }

// Pragma runs a pragma on the writer's connection and returns its first result.
func (s *Store) Pragma(text string) (v string, err error) {
	err = s.writer.db.QueryRow("PRAGMA " + text).Scan(&v)
	return v, err
}

// ReaderPragma does so on one of the reader's.
func (r *Reader) ReaderPragma(text string) (v string, err error) {
	err = r.pool.db.QueryRow("PRAGMA " + text).Scan(&v)
	return v, err
}

// OpenFrozen opens a file at rest as a reader does that may not write its directory.
func OpenFrozen(path string) (*Reader, error) {
	r := &Reader{path: path, examine: maxExamined}
	return r, r.openFrozen(context.Background(), nil)
}

// ReadDuring reads the position, with other things going on in the middle.
func (r *Reader) ReadDuring(ctx context.Context, meanwhile func() error) (Position, error) {
	return view(ctx, r, "read", func(ctx context.Context, t *tx) (Position, error) {
		h, err := readHead(ctx, t)
		if err == nil {
			err = meanwhile()
		}
		return h.Position, err
	})
}

// Frozen reports whether the file is read as one that nobody writes.
func (r *Reader) Frozen() bool { return r.frozen != nil }

// RefuseNetwork is what opening asks about a directory's file system.
func RefuseNetwork(dir string, number uint32) error { return refuseNetwork(dir, number) }

// DSN is the name under which the driver is given a path.
func DSN(path, params string) string { return dsn(path, params) }

// Texts are all statements by the name of their constant.
func Texts() map[string]string {
	return map[string]string{
		"sqlPageOfAll": sqlPageOfAll, "sqlTypedPageOfAll": sqlTypedPageOfAll,
		"sqlPageOfSession": sqlPageOfSession, "sqlTypedPageOfSession": sqlTypedPageOfSession,
		"sqlPageOfID": sqlPageOfID, "sqlTypedPageOfID": sqlTypedPageOfID,
		"sqlPageOfWorkspace": sqlPageOfWorkspace, "sqlTypedPageOfWorkspace": sqlTypedPageOfWorkspace,
		"sqlActiveOfWorkspace": sqlActiveOfWorkspace, "sqlDenseOfWorkspace": sqlDenseOfWorkspace,
		"sqlEndOfAll": sqlEndOfAll, "sqlEndOfSession": sqlEndOfSession, "sqlEndOfID": sqlEndOfID, "sqlEndOfWorkspace": sqlEndOfWorkspace,
		"sqlRows": sqlRows, "sqlLastRow": sqlLastRow, "sqlRowsOfSource": sqlRowsOfSource,
		"sqlPageOfScope": sqlPageOfScope, "sqlTypedPageOfScope": sqlTypedPageOfScope, "sqlEndOfScope": sqlEndOfScope,
		"sqlPageOfIDInScope": sqlPageOfIDInScope, "sqlTypedPageOfIDInScope": sqlTypedPageOfIDInScope, "sqlEndOfIDInScope": sqlEndOfIDInScope,
		"sqlSessionsOfScope": sqlSessionsOfScope, "sqlSessionsOfIDInScope": sqlSessionsOfIDInScope, "sqlWorkspacesOfIDInScope": sqlWorkspacesOfIDInScope,
		"sqlSessions": sqlSessions, "sqlSessionsOfWorkspace": sqlSessionsOfWorkspace, "sqlSessionsOfID": sqlSessionsOfID, "sqlSessionOfKey": sqlSessionOfKey,
		"sqlWorkspacesOfID": sqlWorkspacesOfID, "sqlFindSession": sqlFindSession, "sqlLoadState": sqlLoadState, "sqlHeld": sqlHeld,
		"sqlIdentify": sqlIdentify, "sqlHead": sqlHead, "sqlStoreID": sqlStoreID, "sqlNewStoreID": sqlNewStoreID, "sqlRestored": sqlRestored, "sqlSetRestored": sqlSetRestored, "sqlMarks": sqlMarks,
		"sqlPendingRemovals": sqlPendingRemovals, "sqlNextRemovals": sqlNextRemovals, "sqlNextForgotten": sqlNextForgotten, "sqlTombstones": sqlTombstones, "sqlRemoveAgain": sqlRemoveAgain, "sqlErasures": sqlErasures, "sqlCountErasures": sqlCountErasures, "sqlKnownID": sqlKnownID, "sqlKnownIDs": sqlKnownIDs,
		"sqlRejects": sqlRejects, "sqlRejectsOfWorkspace": sqlRejectsOfWorkspace, "sqlRejectsOfID": sqlRejectsOfID, "sqlRejectsOfSession": sqlRejectsOfSession,
		"sqlReject": sqlReject, "sqlRejectOfCount": sqlRejectOfCount, "sqlFinalRejectOf": sqlFinalRejectOf, "sqlKnownReject": sqlKnownReject, "sqlIrregular": sqlIrregular,
		"sqlRejectedMessages": sqlRejectedMessages, "sqlStretches": sqlStretches, "sqlAddStretch": sqlAddStretch, "sqlDropStretches": sqlDropStretches, "sqlRejectOfEvent": sqlRejectOfEvent,
		"sqlInsertEvent": sqlInsertEvent, "sqlInsertSession": sqlInsertSession, "sqlCountRows": sqlCountRows,
		"sqlSaveState": sqlSaveState, "sqlSaveBoth": sqlSaveBoth, "sqlShowSession": sqlShowSession,
		"sqlForgetSession": sqlForgetSession, "sqlForgetHeld": sqlForgetHeld, "sqlForgetRejects": sqlForgetRejects,
		"sqlSessionRejects": sqlSessionRejects, "sqlCountRemovals": sqlCountRemovals, "sqlQueueRemoval": sqlQueueRemoval, "sqlQueueErasure": sqlQueueErasure, "sqlCutErasures": sqlCutErasures, "sqlEndErasure": sqlEndErasure,
		"sqlRememberID": sqlRememberID, "sqlInsertReject": sqlInsertReject, "sqlOldestPayload": sqlOldestPayload, "sqlShrinkReject": sqlShrinkReject,
		"sqlHold": sqlHold, "sqlRelease": sqlRelease, "sqlCutMarks": sqlCutMarks, "sqlAddMark": sqlAddMark, "sqlDropMarks": sqlDropMarks, "sqlSaveHead": sqlSaveHead,
		"sqlRemovalSession": sqlRemovalSession, "sqlDeleteEvent": sqlDeleteEvent, "sqlEndRemoval": sqlEndRemoval,
		"sqlPrunable": sqlPrunable, "sqlCountPruned": sqlCountPruned, "sqlCountNone": sqlCountNone,
		"sqlSweepIDs": sqlSweepIDs, "sqlDropID": sqlDropID, "sqlDiscardSize": sqlDiscardSize, "sqlDiscardReject": sqlDiscardReject,
		"sqlFreePages": sqlFreePages, "sqlGiveBack": sqlGiveBack, "sqlCheckpoint": sqlCheckpoint,
	}
}
