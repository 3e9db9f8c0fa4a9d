// Package consumer is what readers use to follow EVENTS: the events of a workspace,
// of one session, of some types, or all of them, one at a time and in the order of
// their numbers.
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
//     where that takes long; so what a process handled last before it is killed, or
//     cut off, comes again to the next: at least once.
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
// A running reader has one JetStream consumer in memory, without acknowledgements,
// that goes when Run ends, or 10 to 20 s after its connection is lost. A durable is
// two more: one under its name ([DurableName]), which is never read from and whose
// place is the position, until someone deletes it; and its lease, while Run goes on
// and 5 to 7 s longer. An operator sees in the durable's number of pending messages
// how far its reader lags.
//
// # What stands where
//
//   - options.go: what to read, and the names on the server.
//   - consumer.go: Consumer and Run.
//   - follow.go: a Run's place, its beginnings, and the handing over.
//   - view.go: what EVENTS says of itself, and whose a message is.
//   - source.go: reading ahead from one JetStream consumer; quiet.go: noticing that
//     something was lost when nothing more comes.
//   - position.go, lease.go: a durable's place, and the right to it.
//   - errors.go: the errors that end Run.
package consumer
