// Package torture is the machine that tries to break Skald: a fleet of real
// processes, a schedule of faults drawn from a seed, and a checker that compares
// what every publisher was told with the table, EVENTS, and what every reader saw.
//
//	go test ./internal/torture                              20 seconds, a fresh seed
//	SKALD_TORTURE_FOR=60s go test ./internal/torture        two fleets, all faults
//	SKALD_TORTURE_FOR=2h go test -timeout 0 ./internal/torture
//	SKALD_TEST_SEED=7 go test ./internal/torture            the schedule of that seed again
//	SKALD_TEST_LONG=1 go test -timeout 0 -run LateStores ./internal/torture
//
// # The fleet
//
// By the seed either one serve with its embedded server, or a nats-server and
// several serve beside it, each with a store of its own; workers, which are
// processes of the test binary; readers of every kind, in the test's own process.
// Between any two of them stands a proxy that can cut or hold a connection.
//
// A worker (worker_test.go) knows what it has to say from its seed alone: message n
// of a session is the same bytes whenever it is made (message_test.go). It sends one
// message after the other, again and again until Skald says what became of it, and
// writes a line for what it was told. So it can be killed at any time and needs
// nothing but the position service to go on.
//
// # Stores that come late
//
// Another fleet (late_test.go) has three serve beside a nats-server, and INGEST is trimmed
// at once. Halfway a backup is taken, and when INGEST begins behind it and the end is near,
// two serve join the others: one starts from that backup, one from nothing. Neither can
// read on from where it is. At the end the event tables in all five files are compared
// (dump_test.go), with each other and with EVENTS, byte by byte.
//
// # Faults
//
// A fault (faults_test.go) wounds the fleet and returns what heals it. Up to three
// wounds are open at a time. Most faults come by chance. Those without which a safeguard
// may not be put to the test come once in each fleet in any case, in its first seconds:
//
//   - all stores are killed while facts that they have appended are in no table,
//   - INGEST loses messages that outboxes have sent and no store has read,
//   - messages that INGEST holds are sent once more, and some without an identity,
//   - messages that no store wrote stand between those of the stores in EVENTS.
//
// Those that set files back (set_back_test.go) are alone, since a copy of the store and
// one of JetStream's directory that are both old are a loss of data, which nobody promises
// to survive. All stores catch up before and after one, with the workers frozen. Those that
// take JetStream's files away or set them back need more time than the short run has, and
// belong to the long one.
//
// # What is checked
//
// While it runs (ledger_test.go): a number keeps its bytes for whoever reads it, a fact
// has one number, and no reader gets a number at or below its cursor. Beside the readers
// (watch_test.go) somebody reads EVENTS as it is, where each message of ours must say the
// number that it stands under and be what its session says next, and asks each store for
// its position, which must not lie below what it has decided, nor go back with its files
// in place. At the end
// (check_test.go): the table has exactly one row for each message that was told to be
// applied, in its session's order, and none for a message that was never sent; EVENTS is
// the table; every store's table is the same; every reader has the table's list behind the
// cursor it began with. A failure prints the seed, the schedule and the first wrong fact.
//
// # Does it find anything
//
// A machine that never fails proves nothing, so it is tried against planted bugs: in a
// scratch copy of the repository (git worktree add --detach) one safeguard at a time is
// taken out, and the tests run with SKALD_TORTURE_FOR=60s and seeds that give fleets of one
// store and of several, with a server inside and outside. It has to fail within a minute
// each time, with a message that names what went wrong, not with one that it has waited in
// vain:
//
//   - the duplicate check: judge in materializer/projection/counts.go returns countNew where
//     it would return countRepeated. Two numbers are the same fact, or a session says
//     something again in EVENTS.
//   - the expected sequence: message in materializer/eventmsg.go never sets that header.
//     EVENTS holds a message under another number than it says.
//   - following: follow in materializer/follow.go returns at once, as at EVENTS' end, and
//     missing there calls all facts missing. A session says something again in EVENTS, or
//     two numbers are the same fact.
//   - the position's commit: sqlSaveHead in materializer/store/queries_write.go leaves
//     ingest_seq as it is. A store has decided more messages than its position says.
//   - the outbox's release rule: storedLocked in publisher/sender.go settles a message, with
//     settleLocked, when INGEST has acknowledged it. A session leaves out in EVENTS what
//     INGEST has lost.
package torture
