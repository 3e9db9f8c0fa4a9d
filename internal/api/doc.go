// Package api answers Skald's queries: pages of events, sessions, one session,
// status, a session's position, what became of a message. It is the one place
// where a query is checked and answered. The HTTP gateway, the NATS service and
// the command line's reading of a store file all call it, so that every door
// gives the same bytes for the same query and the same refusal for the same
// mistake.
//
// # A query's way
//
// A door turns what it was sent into [Params] ([ParseQuery] for a URL's query,
// [ParseJSON] for a request body) and calls one method of [API]. Each method
// refuses parameters that it does not know, that occur twice, or whose value
// breaks a rule, with a *[ParameterError] that names the parameter: an option
// that is ignored looks like one that works. What it returns is a complete JSON
// text.
//
// Every error, of whatever layer, becomes a [Failure] by the one table in
// failure.go: HTTP status, code, message and the numbers that help the caller on.
// A client reads it back with [ParseFailure] and decides with errors.Is.
//
// # A cursor beyond the end
//
// A store may be asked for what it has not got yet: another store, or EVENTS
// itself, has already shown a higher number to the same reader. So a cursor
// beyond this store's end is compared with EVENTS' last sequence, asked from the
// server at that moment: beyond it, nobody can have been given the cursor
// (bus.ErrCursorAhead); else the store is behind, and is given two seconds to
// get there before the reader is told to try again (bus.ErrBehind).
package api
