// Package consumer is what readers use: the events of a workspace, of one session, of
// some types, or all of them, one at a time and in the order of their numbers.
//
// There are two ways, with one cursor for both:
//
//   - [Follow] gives an iterator over everything behind a cursor: history from the
//     table, over the NATS service, then EVENTS as it grows. It is what most readers
//     want.
//   - [Consumer] reads EVENTS alone, and the server can remember its place under a
//     name ([Options.Durable]), which one process at a time may read.
//
// Connect with nats.MaxReconnects(-1): by default nats.go gives up after 60 tries, about
// two minutes, and a closed connection ends the reading. examples/go/reader is a whole
// program.
//
// # The handler's contract
//
// [Consumer.Run] calls the handler with one event after the other, in ascending
// order of [bus.Event.Seq], which is the only order there is: the times in an event
// are those of other machines' clocks. Gaps in the numbers are normal. They belong
// to events that the filter leaves out, to forgotten sessions, and to messages that
// are skipped: those that only take a number, and foreign ones, which no
// materializer wrote ([Stats] counts both).
//
// Returning nil acknowledges the event. Within one Run no event comes twice, and
// none is left out, whatever happens to connection and server. Returning an error
// ends Run; the event, and all behind it, come to the next one.
//
// Who remembers between two Runs decides what that means:
//
//   - With [Options.Durable] the server does. A Run that ends in order, also with the
//     handler's error, leaves the exact position, if it reaches the server within
//     2 s. While it goes on, the position is written every 200 ms, or less often
//     where that takes long, and within 5 s after the server is back; so what a process
//     handled last before it is killed, or cut off, comes again to the next: at least once.
//   - With [Options.From] the handler does. One that saves the number (and
//     [Consumer.Cursor]'s epoch) in the same transaction as its own work, and gives
//     what it saved, has each event's effect exactly once. From wins over a durable's
//     position in both directions, so both can be used together: then the durable
//     only keeps others away.
//   - With neither, the caller prints what comes: nothing is remembered.
//
// What comes again, and when:
//
//	what happens                       the handler sees
//	connection cut, server restarted   nothing of it; reading goes on behind the last event
//	JetStream consumer deleted         the same; a durable is made again at the position
//	handler returns an error           the event again, in the next Run
//	ctx ends while it is at work       the event again, unless it returns nil
//	process killed                     what was handled since the position was written
//	durable deleted while nobody runs  everything from the beginning (or Newest, or From)
//	session forgotten                  its events no more; those handled stay handled
//
// # One reader a durable
//
// A durable is read by one process at a time. A second one is refused with
// [ErrInUse] within 3 s and told who reads; it is never given a share. When the
// first ends in order the name is free at once. When it is killed, or its machine
// vanishes, its lease lapses after 5 to 7 s, and whoever tries in that time takes
// over. A process that comes back after that ends with ErrInUse. It starts no
// handler call on a lease that may have lapsed; but a call that is under way then
// goes on, beside the new reader's first ones. Who can not have that compares in a
// transaction of its own, as with From.
//
// # Following: from the table to EVENTS and back
//
//	    cursor
//	      │
//	      ▼             within 1,000 of the end
//	 pages of the table ───────────────────────→ EVENTS, behind the cursor
//	      ▲                                          │
//	      └──────────────────────────────────────────┘
//	20,000 behind, or what comes next has left EVENTS
//
// [Follower.Events] hands over at the cursor's number, in both directions: no number
// lies between, since a number in the table is one in EVENTS. Whoever begins at a
// cursor asks the table first, which alone knows that the cursor is older than what
// is kept. Then EVENTS is enough: a table that does not answer, or a replica that has
// not reached the cursor, is asked again or done without as long as EVENTS holds what
// comes next, and waited for only where it does not. A replica that lags never takes a
// reader back: each page is asked for behind the cursor, with the epoch.
//
// A page moves the cursor to the last number that the store has examined, so a
// follower of rare events does not stand still. Of several types, which one request
// can not name together, the pages carry the other events of the workspace as well.
//
// # Where the cursor is kept
//
//   - [FollowOptions.Store] with a [FileCursor] or a [SQLCursor]: saved every 200 ms
//     and at the end. After a kill the last events come again.
//   - [SQLCursor.SaveIn] in the transaction of the work on the event, and
//     [FollowOptions.From] with what [SQLCursor.Load] returns: each event has its
//     effect exactly once. A second process under the same name gets
//     [ErrCursorTaken], and its work is rolled back with the cursor.
//
// # Traces
//
// Where the worker's message had a W3C trace context, the handler's ctx carries it
// ([WithTrace]), so that what a reader does can be seen in, or linked to, the worker's
// trace. Only OpenTelemetry's API is used. It is a header in EVENTS and no part of the
// event: what is read from the table comes without.
//
// # Errors instead of silence
//
// Before it begins, and whenever it begins again, Run compares its place with what
// EVENTS says of itself:
//
//   - [bus.ErrCursorAhead]: EVENTS ends before the cursor. At the start that is an
//     error at once; under way only after 10 s, in which a materializer may put back
//     an end that the server has lost.
//   - [bus.ErrCursorGone]: EVENTS is bounded by age or size, and events behind the
//     cursor have left. The table still has them: page it, and go on from where that
//     ends. Number 0 is never gone; it means all that is held. In an unbounded EVENTS
//     only forgotten sessions leave, which is no loss; in a bounded one the two can not
//     be told apart at its beginning, and both are this error. A slow reader whose next
//     events leave while it runs gets the error before it handles any behind them. One
//     whose events are rare moves its place along while nothing comes, where EVENTS has
//     one copy; with several it may find its place gone after a long rest.
//   - [bus.ErrOtherEpoch]: numbers have changed meaning since the cursor, or the
//     durable's position, was written.
//   - [ErrStreamReplaced]: the same, under way; [bus.ErrStreamMissing]: there is no
//     EVENTS, under way only after 10 s.
//
// # What it leaves on the server
//
// A running reader, Consumer or Follower, has one JetStream consumer in memory, without acknowledgements,
// that goes when Run ends, or 10 to 20 s after its connection is lost. A durable is
// two more: one under its name ([DurableName]), which is never read from and whose
// place is the position, until someone deletes it; and its lease, while Run goes on
// and 5 to 7 s longer. An operator sees in the durable's number of pending messages
// how far its reader lags.
//
// # What stands where
//
//   - iterate.go: Follower and its loop; table.go: pages, and when they are read.
//   - cursor_store.go, cursor_sql.go: cursors in a file and in a database.
//   - options.go: what a Consumer reads, and the names on the server.
//   - consumer.go: Consumer and Run.
//   - follow.go: a Run's place, its beginnings, and the handing over.
//   - view.go: what EVENTS says of itself, and whose a message is.
//   - trace.go: an event's trace context.
//   - source.go: reading ahead from one JetStream consumer; quiet.go: noticing that
//     something was lost when nothing more comes.
//   - position.go, lease.go: a durable's place, and the right to it.
//   - errors.go: the errors that end Run.
package consumer
