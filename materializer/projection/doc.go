// Package projection decides what becomes of an INGEST message. It is one pure
// function, [State.Apply], from a session's state and a message to the new state,
// the facts to append to EVENTS, and the entries to leave for an operator. It
// reads no clock, draws nothing at random, does no I/O, logs nothing and knows no
// flag: every materializer that reads the same INGEST derives the same facts,
// today and after any restart. A bound that decides what becomes of a message is
// a constant in limits.go; changing one changes the contract ([bus.Contract]).
//
// # The way of a message
//
//	forgotten session?  ── yes ─→ dropped
//	class, headers, JSON ─ bad ─→ rejected (a well-formed count is used all the same)
//	count or event id known?  ──→ duplicate, or rejected as a conflict
//	class:
//	  session, activity, error ─→ applied            (record.go)
//	  control: forget, resync  ─→ applied            (control.go)
//	  projection: place against the chain's position (page.go)
//	     at or below it   ─→ duplicate, or rejected as a fork
//	     it begins here   ─→ digests right: applied, then held pages that now fit
//	     beyond it        ─→ held, or rejected as ahead (held.go)
//
// Only the chain decides whether a page is applied, whole or not at all. What an
// observation holds can not stop it: one that is unknown or unusable moves the
// chain on and derives nothing.
//
// # What stands where
//
//   - message.go: what goes in and comes out. state.go: what is remembered.
//     limits.go: the constants.
//   - apply.go: the order of decisions. record.go, control.go, page.go: the classes.
//   - counts.go: publishers' counts, their missing ranges and late messages.
//   - chain.go, held.go: the chain's known digests; pages that wait for a gap.
//   - observe.go: from one relay event to facts. command.go, queue.go, turn.go,
//     stop.go, elicit.go, title.go, runtime.go, id.go: its parts.
//   - codec.go, decoder.go, view.go: the state as a store keeps it. render.go: as readers see it.
//
// # JSON
//
// Parts of a message that come out again (strings, ids, objects) are spliced in as
// the bytes that were sent, less white space between tokens, and never decoded and
// encoded: that would rewrite digits and escapes. The state keeps them as JSON
// tokens for the same reason; ids are compared decoded.
package projection
