// Package backup copies a store out of a data directory while it is written, and back
// into an empty one.
//
// A backup is a directory with two files: skald.db, the whole store as of one commit,
// and manifest.json, which says what it is and what its bytes hash to. It holds the table
// with its sessions, rejects and positions. It does not hold the streams: a restored
// store reads on in INGEST from its position and follows EVENTS from its number, as after
// any crash, and where the streams are lost too, `skald repair` makes EVENTS again from
// the table, under a new epoch: a restored store is marked, since readers may have seen
// numbers that it does not hold.
//
// [Take] and [Restore] work beside the final name and rename at the end, so a directory or
// a store that has its name is whole, and durable.
package backup
