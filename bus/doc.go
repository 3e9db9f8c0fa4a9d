// Package bus is Skald's contract: what every other package, and every program
// that speaks to Skald over NATS, has to agree on. It starts no goroutine and
// keeps no state.
//
// # The path of an event
//
// A worker publishes a message of one [Class] to the INGEST stream, on the
// subject of its session ([Subjects.Ingest]). A materializer projects it into
// facts, appends them to the EVENTS stream ([Subjects.Event]) and commits them
// as rows of a table. A fact's number is its sequence in EVENTS, and readers
// use that number as their [Cursor], for the stream and for the table alike.
//
// # What stands where
//
//   - id.go, subject.go: ids of workspaces and sessions, and their escaping into
//     subject tokens. The subject is the authority: no body names its session.
//   - json.go, walk.go: the strict scanner. It accepts or refuses a JSON text
//     once, takes out the white space between tokens, and changes nothing else,
//     so that digits, escapes and strings stay as the worker sent them.
//   - message.go, page.go, relay.go: bodies of INGEST messages, relay events and
//     their digests.
//   - header.go: the headers that identify a message or name a fact's origin.
//   - event.go: the wire form of a fact, the same in EVENTS, pages and the CLI.
//   - stream.go: the two streams' settings and their careful creation.
//   - errors.go: reasons of rejects and the errors that readers meet.
package bus
