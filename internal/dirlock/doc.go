// Package dirlock gives a data directory to one process at a time.
//
// The lock is the operating system's on the open file DIR/skald.lock, so it goes
// with the process however that ends, and a file left behind means nothing. The
// path does not matter: through a symbolic link it is the same file and the same
// lock. The file holds the owner's process id, for people and for the error that
// the second one gets.
//
// The lock file is one of its own on purpose: closing any descriptor of the
// database's file would drop the locks that SQLite holds on it in this process.
//
// lock_unix.go uses flock and lock_windows.go LockFileEx. Elsewhere [Acquire]
// returns errors.ErrUnsupported.
package dirlock
