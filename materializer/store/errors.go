package store

import (
	"errors"
	"fmt"

	lib "modernc.org/sqlite/lib"

	"github.com/skaldbus/skald/bus"
)

// Errors of opening a store. They stay until somebody acts.
var (
	// ErrNoStore: there is no file of that name, or one that no store was made in yet.
	ErrNoStore = errors.New("no store here")
	// ErrNotDatabase: the file is no SQLite database, or another program's.
	ErrNotDatabase = errors.New("not a store of this program")
	// ErrNewer: the file was written by a newer version of this program.
	ErrNewer = errors.New("store is newer than this program")
	// ErrReadOnly: the file or its directory can not be written by this user.
	ErrReadOnly = errors.New("store can not be written")
	// ErrNetworkFile: the file lies on a network file system, where SQLite's log
	// does not work.
	ErrNetworkFile = errors.New("store lies on a network file system")
)

// Errors of reading and writing.
var (
	// ErrCorrupt: a page of the file is damaged. The store must not be written any
	// more; it has to be restored, or built again from the streams.
	ErrCorrupt = errors.New("store is damaged")
	// ErrFull: the disk is full. Nothing was written; the same call succeeds once
	// there is space, without opening the store again.
	ErrFull = errors.New("disk is full")
	// ErrBusy: another program holds the file's lock for longer than [BusyTimeout].
	// Nothing was written; try again.
	ErrBusy = errors.New("store is locked by another program")
	// ErrBadCommit: a commit contradicts itself or the table: numbers that do not go
	// up, a session written twice. A mistake of the caller; nothing was written.
	ErrBadCommit = errors.New("commit contradicts itself or the table")
	// ErrBeyond: the cursor lies beyond this store's last number. Whether it is
	// ahead of everything, or only of this store, EVENTS decides.
	ErrBeyond = errors.New("cursor lies beyond this store's end")
)

// CursorError says why a cursor can not be followed, and where this store stands.
// It is [ErrBeyond], [bus.ErrCursorGone] or [bus.ErrOtherEpoch] to errors.Is.
type CursorError struct {
	Err    error
	Cursor bus.Cursor
	Epoch  string // this store's
	Latest uint64 // the last number that this store has passed
	Oldest uint64 // the lowest number that was not pruned
}

// Error names the cursor and the numbers around it.
func (e *CursorError) Error() string {
	return fmt.Sprintf("%v: cursor %s, epoch %s, oldest %d, latest %d", e.Err, e.Cursor, e.Epoch, e.Oldest, e.Latest)
}

// Unwrap returns the reason.
func (e *CursorError) Unwrap() error { return e.Err }

// AmbiguousError says that a session id stands for a session in each of several
// workspaces. It is [bus.ErrAmbiguous] to errors.Is.
type AmbiguousError struct {
	Session    string
	Workspaces []string // in the order of their bytes, at most [MaxCandidates]
}

// Error names the session and how many workspaces have it.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("session %q: %v: %q", e.Session, bus.ErrAmbiguous, e.Workspaces)
}

// Unwrap returns [bus.ErrAmbiguous].
func (e *AmbiguousError) Unwrap() error { return bus.ErrAmbiguous }

// code returns SQLite's extended result code of err, which the driver's errors have,
// 0 if it has none.
func code(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// wrap names what was done, and adds the error of this package that a result code
// of SQLite stands for.
func wrap(doing string, err error) error {
	var kind error
	switch code(err) & 0xFF {
	case lib.SQLITE_NOTADB:
		kind = ErrNotDatabase
	case lib.SQLITE_CORRUPT:
		kind = ErrCorrupt
	case lib.SQLITE_FULL:
		kind = ErrFull
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		kind = ErrBusy
	case lib.SQLITE_READONLY:
		kind = ErrReadOnly
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
	if errors.Is(err, kind) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, kind, err)
}
