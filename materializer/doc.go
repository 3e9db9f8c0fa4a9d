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
// (append.go, batch.go, eventmsg.go): a few facts one by one where that is sooner
// than a batch (series.go). The committer (commit.go) puts all that is appended by
// then (handover.go) into one transaction. So reading, appending and committing overlap, by a
// bounded number of messages and bytes. The remover (remove.go) takes forgotten
// sessions out of EVENTS and the table in small steps. The watcher (watch.go)
// asks the server every few seconds whether both streams are still the ones
// that the store belongs to. Beside them the store is kept on the list of the bus's
// stores (register.go), and the keeper writes checkpoints and trims INGEST (keep.go,
// trim.go).
//
// Together they run for one round. Before it, resume (goback.go) checks the streams
// and says where to go on. A round ends early when INGEST turns out not to be what was
// read; what was read by then is committed first, since workers have said it.
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
// are appended: those with an index above that of the last fact if that is
// of m, none if the last fact is of one later than m in sequence and stored
// time, else all but those seen on the way. The last exception is ours: with
// rows of lost messages behind m's own facts, "all" would give them twice. "None"
// is right only as long as no append overtakes one that was refused. So the last
// message of each, without which EVENTS takes nothing of it, waits for the answer to
// the one before; the others are sent meanwhile, as they are projected. Where the server
// keeps one copy of EVENTS, single messages need not wait: each names the one that it has
// to come behind ([Options].ChainAppends). A fact of m
// that EVENTS neither held nor was given leaves a reject entry, which goes if its
// session turns out to be forgotten. Where it may have been held, since numbers are gone
// there, the entry keeps no payload that could be sent again, and what was pruned leaves
// none (gone.go). The state follows the own projection in any case.
//
// Rows of a forgotten session are copied too, and taken out again by the
// removal job, so that one piece of code removes them from EVENTS and table.
//
// # Several stores
//
// Any number of materializers run at once on stores of their own, started and killed at
// any time. Each lists itself in the registry with its INGEST position and its highest
// committed number, every second while it moves, and when it ends. Two things hang on
// that. Nobody appends while EVENTS ends below the number of another store (gate.go): that
// store has rows beyond the end, and puts them back when it runs; otherwise the next
// number would get a second meaning. And INGEST is not trimmed beyond a listed position.
// Who will never come back is taken off the list with `skald replicas rm`; until then the
// others say so, as soon as it has not been heard of (silent.go). A number that
// was committed in the last second before everything was set back may not be listed:
// when EVENTS has lost its end the others are given time to say how far they are.
//
// # Trimming INGEST, and coming back
//
// INGEST is cut below the least of: both of the two newest checkpoints' positions, the
// position of every listed store, and the keep window; near its bound in bytes the
// window does not count. Both checkpoints are read back first. The message at the cut
// stays, so that the stream is known again by it. What goes is in the table and in EVENTS, and its
// effect in two checkpoints.
//
// A checkpoint is the store without its events, from one snapshot (package checkpoint). One
// is written before a trim, and one after each irregularity of INGEST, when the states
// hold what no stream can give again.
//
// A store can not read on if INGEST begins above the message after its position: it is
// new, was restored, or was taken off the list. It takes the newest checkpoint that is
// whole, of this INGEST, and neither behind the table nor beyond EVENTS (comeback.go). It
// lists itself with the checkpoint's position, copies EVENTS' rows up to its number, checked
// as when following, and takes its state in one transaction. Every session must have as
// many rows as it counts then; otherwise Run stops and names sessions and numbers. Until
// it is done nothing is appended, and [Materializer.Ready] tells readers to wait. After
// a crash it is done again from the rows that are there.
//
// Where there never was a checkpoint the rows whose messages are gone are taken over from
// EVENTS, and chains, counts and ids move to what their headers say (takeover.go): each
// session so moved gets an entry. Checkpoints that are there and can not be used stop Run
// instead, since somebody may be able to bring them back.
//
// # Crash table
//
//	crash or loss                    left behind              what happens next
//	before INGEST acknowledged       publisher unsure         the same bytes come again; dropped as duplicates
//	INGEST lost what it              an outbox that has not   it sends that again by itself
//	acknowledged                     released it
//	before the append                nothing                  INGEST is read again from the store's position
//	append sent, answer lost         facts in EVENTS or not   EVENTS is read: followed, or appended
//	between two batches of m         some facts of m          followed; the rest is appended
//	after append, before commit      facts without rows       followed
//	after commit, before the hint    no hint                  hints are hints: the truth is asked for
//	between two removal steps        rows in the work list    the step is taken again; deleting twice is harmless
//	EVENTS set back to before a      forgotten messages       removed again: at the start of a round, and after each
//	forget                                                    interruption of reading, tombstones are looked up in EVENTS
//	between two steps of             some bytes of a          the wish is in the tombstone, and what is done shows in
//	overwriting                      forgotten session        each place
//	after the removal of EVENTS'     its origin in the        read from there when the worker asks what
//	last fact                        state bucket             EVENTS ends with, also below foreign messages
//	store restored from a copy       EVENTS further on        followed, then on
//	store restored, and EVENTS has   numbers seen beyond it   no start; a repair puts the rows back under the same
//	lost what came after                                      numbers, and a new epoch
//	store lost, new, or left behind  EVENTS, checkpoint,      rows copied up to the checkpoint, its state taken,
//	                                 INGEST from there        INGEST read from there
//	in the middle of a checkpoint    parts without manifest   they do not count, and are removed after an hour
//	checkpoint written, not trimmed  nothing                  trimmed next time
//	while rows are copied            rows without states      copied on, then the state is taken
//	a checkpoint is damaged          another checksum         the older one is taken, whose INGEST is still there
//	EVENTS lost its end, or was      rows beyond it           put back under the same numbers before anything else;
//	made anew under its epoch                                 a store that is behind waits for the one ahead
//	EVENTS bounded, and the next     no message               Run stops with an error that names the numbers
//	numbers aged out
//	EVENTS deleted                   no stream                no start; a repair rebuilds it under the same numbers
//	EVENTS made anew, of another     other metadata           Run stops; a repair tells the cases apart, by INGEST
//	bus, or without its metadata                              and by the messages that both hold, or refuses
//	EVENTS set back, and overtaken   another message under    Run stops; a repair gives what EVENTS lacks new
//	by another store                 the table's last number  numbers, the table takes EVENTS' rows; a new epoch
//	EVENTS holds what no             a foreign message        passed and reported
//	materializer wrote
//	repair killed                    its plan, some of it     no start until it was run again, which ends it
//	                                 done
//	INGEST recreated                 another id               reported; taken on, and read from its beginning
//	INGEST rolled back, maybe        another message at the   reported; read again behind the last message that
//	overtaken since                  position, or none        it still holds
//	between leaving the old place    the old position         noticed again at the next start
//	in INGEST and the commit of it
//	INGEST has a hole                a missing sequence       reported with its range; reading goes on behind it
//	INGEST trimmed above the         no next message          a checkpoint is taken; without any the rows are taken
//	position                                                  over; reported, and read on, if nobody has read what is
//	                                                          gone
//
// Each row has a test that is named after it, in which a process is killed at that very
// point, or a file or stream set back: crash_test.go lists them, and compares its list with
// this table.
//
// # An INGEST that is not what it was
//
// INGEST is only input: no number depends on it, so its loss is never a reason to stop,
// except where another store knows more. The store remembers the last message of its
// newest commit, and one commit a minute (the marks). Those must be there, with the same
// stored time and bytes: before a round, each time that the reader makes a consumer, and
// every two seconds, or ten under much load (compared.go). The watcher compares the newest
// message and also the one that its last look has seen, so that a stream that was set back
// and has grown beyond the position is noticed (ingest.go).
//
// If one differs, the store commits a move to the last mark that INGEST still holds, or
// to its beginning, and reads again from there. Chains, counts and ids drop what is
// known. A message with none of them, or that was rejected, or with an event id that is
// known no more, is dropped if it lies in a stretch that was read before: up to the sequence that was left, stored not after the
// message there, and not before the first new one of that stretch, so that several
// rollbacks in a row stay apart (again.go). Rows and states stay.
//
// EVENTS keeps the rows whose messages INGEST has lost. Their origins name sequences
// that are issued again; the stored time tells them apart. A row of a sequence below the
// position that was stored after everything that was read shows a rollback that another
// store was faster to notice: it is followed after going back, not before.
//
// Each such event leaves an entry among the rejects, and the check ingest_loss stays
// until an operator has discarded it.
//
// A store that copies rows whose messages INGEST has lost, before it could read them,
// moves their sessions' chains, counts and ids to what the rows' headers say (lost.go),
// before it projects anything that comes behind them: so those messages add nothing when
// they are sent again. What they did beside giving facts is lost to this store.
//
// # Traces
//
// A fact carries the traceparent of its message: in EVENTS as a header, in the table as
// a column. So it is the same in every store, is compared like the rest, and comes back
// with a repair. (A held page's facts have that of the message that filled the gap, as
// they have its origin.) With [Options].Tracer a commit in which messages are of sampled
// traces is a span of its own, from when the first of them was taken until all are durable,
// with a link to each context (trace.go). The worker's sampling so decides what is told,
// and a commit without such messages costs nothing. Several stores on one bus give a span
// each.
//
// # Repair and audit
//
// A Repairer does what a materializer must not do by itself. It diagnoses (diagnosis.go) by
// walking table and EVENTS side by side (sidebyside.go), looks which of the table's facts
// EVENTS holds under any number (held_facts.go), writes down what it is about to do
// (repair_plan.go), and does it in steps each of which may be begun again (repair.go).
// Where readers may have seen numbers of which nothing is left, the epoch becomes a new one
// with it (renew.go), as after the restore of a backup whose EVENTS is gone: such a store
// is marked until it has come as far as EVENTS (restored.go). It never copies rows: it
// takes the table back to the number before the first that differs, and the next start
// follows EVENTS from there. An [Audit] reads only: file and counters (audit.go), sessions
// (audit_sessions.go), numbers and position (audit_events.go), and INGEST projected again
// (audit_ingest.go, audit_facts.go, audit_states.go).
package materializer
