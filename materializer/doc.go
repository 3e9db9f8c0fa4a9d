// Package materializer turns what workers said into what happened: it reads
// INGEST in order, drops duplicates, projects, appends the facts to EVENTS and
// commits them as rows, with the sessions' state and the INGEST position, in
// one transaction.
//
// # The stages
//
//	INGEST ─→ reader ─→ worker ─→ committer ─→ hints
//	                      │  ↑        │
//	                      ↓  │        ↓
//	                     EVENTS     store ←─ remover
//
// The reader (read.go) takes what is there, up to a bound: small batches when
// idle, big ones under load, and no timer that anyone waits for. The worker
// (worker.go) projects a batch against states in memory (cache.go), follows
// EVENTS where another was first (follow.go), and appends what is missing
// (append.go). The committer (commit.go) puts all that is appended by then into
// one transaction. So reading, appending and committing overlap, by a bounded
// number of messages and bytes. The remover (remove.go) takes forgotten
// sessions out of EVENTS and the table in small steps. The watcher (watch.go)
// asks the server every few seconds whether both streams are still the ones
// that the store belongs to.
//
// # Who decides
//
// EVENTS decides. A fact's number is its sequence in EVENTS, and an append names
// the sequence it expects, so of any number of materializers one wins and the
// others copy what won. An answer that says no, or that never comes, is a
// question, and EVENTS' end is the answer: the worker forgets what it had in
// flight, waits until what is appended is committed, and follows. That is also
// how it starts. Recovery is the normal path.
//
// # Following
//
// With message m at hand the worker looks at the next number in EVENTS:
//
//  1. its origin is m, or lies below m, or is one that INGEST does not hold
//     (nothing there, or another stored time): the row is copied as it is;
//  2. its origin is a later message that INGEST holds: EVENTS has nothing more
//     for m;
//  3. the number is gone, which only a removal does: it is only a number, and
//     is passed once the next present one falls under 1 or there is none.
//
// A message that was lost on its way from the server looks like a number that is
// gone. The consumer's own count tells them apart, and then the attempt starts
// again (tail.go).
//
// When the last sequence is reached, the facts of m that EVENTS does not hold
// are appended: those with an index above that of the last message if that is
// of m, none if the last message is of one later than m in sequence and stored
// time, else all but those seen on the way. The last exception is ours: with
// rows of lost messages behind m's own facts, "all" would give them twice. "None"
// is right only as long as no append overtakes one that was refused, so each waits
// for the answer to the one before, while the next batch is projected. A
// fact of m that EVENTS neither held nor was given leaves a reject entry, which
// goes if its session turns out to be forgotten. The state follows the own
// projection in any case.
//
// Rows of a forgotten session are copied too, and taken out again by the
// removal job, so that one piece of code removes them from EVENTS and table.
//
// # Crash table
//
//	crash or loss                    left behind              what happens next
//	before INGEST acknowledged       publisher unsure         the same bytes come again; dropped as duplicates
//	before the append                nothing                  INGEST is read again from the store's position
//	append sent, answer lost         facts in EVENTS or not   EVENTS is read: followed, or appended
//	between two batches of m         some facts of m          followed; the rest is appended
//	after append, before commit      facts without rows       followed
//	after commit, before the hint    no hint                  hints are hints: the truth is asked for
//	between two removal steps        rows in the work list    the step is taken again; deleting twice is harmless
//	after the removal of EVENTS'     the end's origin in      read from there when the worker asks what
//	last message                     the state bucket         EVENTS ends with
//	store restored from a copy       EVENTS further on        followed, then on
//	EVENTS lost its end              rows beyond it           put back under the same numbers before anything else
//	EVENTS bounded, and the next     no message               Run stops with an error that names the numbers
//	numbers aged out
//	EVENTS or INGEST recreated,      other metadata, or       Run stops with an error that says so and what to do
//	swapped, of another bus          another message
//	INGEST has a hole                a missing sequence       reported with its range; reading goes on behind it
//
// Not in this package yet: coming back from an INGEST that was rolled back or
// trimmed below the position. Both are noticed and stop Run.
package materializer
