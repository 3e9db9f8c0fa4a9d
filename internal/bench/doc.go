// Package bench measures the figures that Skald is held to, each beside its baseline
// from the same run, so that anyone can see on their own machine whether they hold.
//
// A [Figure] starts what it needs in a directory of its own: a server in this
// process, or, where memory or the ways between processes are measured, `skald serve`
// as a child of the same binary. It returns one [Result] for each [Bar]. A baseline
// does the same work with nothing but what Skald stands on: the bare SQLite driver,
// a bare JetStream, the standard library's JSON and hash. What is compared is measured
// on the same machine within the same minute; a loaded machine makes both slower.
//
// The Go benchmarks of packages materializer and publisher call the same functions.
//
// # What latency is made of
//
// Until a message's row is visible three syncs follow each other: of INGEST before the
// message is delivered, of EVENTS before it answers, and of the table's log. Bare
// JetStream delivers behind the first of them, so that about three times its time is the floor. On
// top comes waiting for the message before: at 1,000 a second and half a millisecond a
// sync, INGEST and EVENTS are each busy half of the time, on one disk, whose journal
// takes one commit at a time. The server does not gather syncs of messages that come
// one by one. It does for an atomic batch, but stages it in a store of its own: six syncs in all,
// and directories that come and go. Below some ten facts one by one is sooner, and
// that is how the materializer appends them.
//
// # What stands where
//
//   - bench.go: figures, results, bars. sizes.go: how much is measured.
//   - catchup.go, bare.go: stored messages into EVENTS and table, and bare rows.
//   - pages.go: pages of a journal, and bare JSON and hashes.
//   - latency.go: from publishing to a visible row, and bare JetStream.
//   - memory.go: serve's resident size, and that of a server alone.
//   - pagecost.go, readers.go, storefile.go: pages of large tables.
//   - sessions.go: many sessions on one connection.
//   - world.go: a bus in this process; child.go: one in a child; load.go: messages.
//   - streams.go: live readers over HTTP, which the package readers below this one
//     runs.
package bench
