// Package publisher is what a worker links: it carries what happens in the
// worker's sessions to the bus, in order, without losing anything silently and
// without doubling anything.
//
//	p, err := publisher.New(nc, publisher.Options{})
//	go p.Run(ctx)                                    // sends until ctx ends or Close
//	s, err := p.Session(ctx, bus.Key{Workspace: "w", Session: "s"})
//	r, err := s.Observe(ctx, observation, publisher.ObserveOptions{})
//	seq, err := r.Stored(ctx)                        // INGEST has it
//	outcome, err := r.Materialized(ctx)              // it has become facts
//	err = p.Close(ctx)                               // what is not confirmed is named
//
// # The path of a message
//
//	Observe, Append        Activity, Error, Save
//	      │ event of the chain     │ body with a count
//	      └────────── waiting ─────┘      accepted: bounded, calls block
//	                     │ gathered into pages, one message at a time
//	                  sending             the same bytes until INGEST has them
//	                     │ acknowledged
//	                   stored             kept, within bounds, to send it again
//	                     │ hint, or an answer when none comes
//	                materialized
//
// Within a session the order of the calls is the order in INGEST: a message is
// sent when the one ahead of it is acknowledged. What waits meanwhile is gathered:
// relay events that follow each other make one page, of up to 128 and as many as
// fit the server's payload limit. Sessions do not wait for each other.
//
// # Why nothing is doubled
//
// A message whose answer was lost is sent again with the same bytes. Relay events
// carry their place in the session's chain, other messages a count that goes up by
// one under an id that is new with each opening; the bus drops what it knows by
// them, for ever.
//
// # Why nothing is lost silently
//
// A stored message is kept until the bus has applied it. If INGEST turns out to
// have lost one, the materializer holds or refuses what follows, and the publisher
// sends again from the place that the bus expects. It keeps that within
// [Options.MaxUnmaterializedBytes] and in memory only: what it had to let go of is
// ErrLost, and a worker's own journal has it. Close and Run tell what they could
// not get stored.
//
// # Errors
//
// Sending is tried for ever, with growing pauses, whatever the error. Meanwhile
// [Session.Err] and each call that gives up waiting say what the matter is:
// ErrNotPermitted, ErrNoStream, ErrFull, ErrDisconnected, ErrTimeout, ErrRefused. A
// few errors are final, since the same bytes would meet them again: ErrTooLarge,
// ErrForked, ErrForgotten, ErrLost, [RejectedError], ErrClosed. For a message
// without a chain that concerns it alone; a relay event takes its session along,
// as what follows is chained to it.
//
// # Permissions
//
// A worker of workspace w needs to publish to skald.in.w.> and
// skald.api.w.position.* and .outcome.*, and to subscribe to its inbox and to
// skald.done.w.*. Without the last one everything works, with questions instead
// of hints.
//
// # What stands where
//
//   - publisher.go, options.go: the publisher, its life and its bounds (budget.go).
//   - open.go: how a session is opened where the bus stands with it.
//   - session.go, flush.go, receipt.go: what callers use of a session.
//   - chain.go, body.go, message.go: bytes.
//   - sender.go, attempt.go: a session's loop; one attempt and what its error means.
//   - confirm.go, hint.go, ask.go: what became of what is stored.
package publisher
