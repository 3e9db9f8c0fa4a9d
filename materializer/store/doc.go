// Package store keeps the table: one SQLite file that holds the facts as rows, the
// state of every session beside them, and the position in INGEST up to which both
// are true. All of it changes together, in the transaction of [Store.Commit].
//
// # One writer, many readers
//
//	materializer ── Commit ──→ Store ──→ skald.db  ←── Reader ←── pages, sessions, status
//	removal jobs ── steps ───↗           skald.db-wal   ↖── Reader of another process
//
// [Open] makes the one [Store] that writes. That there is only one is the
// caller's duty: the service holds a lock on the data directory. [Store.Reader]
// reads in the same process, [OpenReader] in any other one, beside a running
// service, after a killed one, and where nothing may be written. Readers never
// block the writer, and it never blocks them; each answer is one snapshot.
//
// # What a commit promises
//
// When Commit returns without an error its rows, states and position are on disk
// (write-ahead log, synchronous=FULL). With an error nothing of them is there, the
// store stays usable, and the same commit may be tried again: a full disk
// ([ErrFull]) or another program's lock ([ErrBusy]) is a pause, not a loss. A
// number that a reader was given is never given to another row, and no row ever
// appears at or below a cursor that was handed out: rows enter in the order of
// their numbers, and [Store.Commit] refuses any other.
//
// # What leaves
//
// A forgotten session becomes a tombstone in one transaction: from then on no
// reader sees its rows. The rows themselves go in small steps, [Store.NextRemovals]
// and [Store.Removed], which delete them from EVENTS first; they are their own work
// list, so the job survives restarts. [Store.PruneStep] deletes rows below
// oldest_seq, [Store.SweepIDs] event ids beyond their horizon. All that leaves the file
// is overwritten in it. Of a session that was forgotten with the wish to overwrite it
// the log may hold more, and so may other places: [Store.CutErased] cuts the one,
// [Reader.Erasures] lists it until the others are done.
//
// # What stands where
//
//   - schema.sql and those with a number, migrate.go: the tables, and how an older file becomes a newer one.
//   - open.go, dsn.go, pool.go, collect.go, raw.go, filesystem.go: opening files and running
//     statements. wal.go: the log's size.
//   - write.go: the commit. write_session.go, cache.go: its part of sessions.
//     position.go, ids.go, known.go, held.go, rejects.go: the other parts, written
//     and read. goback.go: an INGEST that was set back or made anew.
//   - removal.go, prune.go, erase.go: what leaves.
//   - replica.go: the store's own id, and whether it was restored. snapshot.go, take.go: the store without its
//     events as a file, and bringing such a file into a store that has the events.
//   - reader.go, frozen.go: snapshots. page.go, rows.go, session.go, status.go: what is read.
//   - queries.go, queries_write.go: the texts of all statements, whose plans a test
//     asserts. queries_snapshot.go: those that run once, over whole tables.
//   - errors.go: what can go wrong, and what it means.
//
// # Permissions
//
// The file is created readable by its owner and group, as far as the umask allows,
// and SQLite gives its log the same. Never open, copy or remove the file or its -wal
// and -shm by other means while a service runs, and use no sqlite3 shell older
// than 3.51.3 on it except read-only: older ones can lose committed pages.
package store
