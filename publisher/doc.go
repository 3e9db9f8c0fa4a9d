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
// Connect with nats.MaxReconnects(-1): by default nats.go gives up after 60 tries, about
// two minutes, and closes the connection, which ends the publisher. examples/go/worker is
// a whole program. What an observation says, and what becomes of it, is in
// docs/contract.md; one of an unknown type takes its place in the chain and gives no fact.
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
// sends again from the place that the bus expects. Without an outbox it keeps that within
// [Options.MaxUnmaterializedBytes] and in memory only: what it had to let go of is
// ErrLost, and a worker's own journal has it. Close and Run tell what they could
// not get stored.
//
// # The outbox
//
// With [Options].Outbox everything accepted is on disk before the call returns, for all
// sessions that call at the same time with one fsync, and is released when the bus has
// materialized it: as a hint names it or the service answers, never on INGEST's
// acknowledgement. Sessions open and accept without a connection, also before there was
// a first one (nats.RetryOnFailedConnect). A process that is started again on the
// directory goes on by itself with what is in it, under the same publisher ids, counts
// and digests; [Publisher.Session] hands out what runs already.
//
//	what happens                     | what is left                | what happens next
//	---------------------------------+-----------------------------+----------------------------------------
//	the worker dies before a call    | kept or not                 | the worker says it again: an observation
//	returns                          |                             | if [Session.Position] is not behind it
//	                                 |                             | yet, the rest with an event id, which
//	                                 |                             | keeps it from being doubled
//	… after it                       | kept                        | sent by the next process
//	… before the acknowledgement     | kept, perhaps stored        | the bus is asked where it stands; what it
//	or before the confirmation       |                             | has seen is asked about, the rest is sent
//	                                 |                             | again, the same; the bus drops it by count,
//	                                 |                             | chain or id
//	INGEST loses what it stored, is  | kept, not in INGEST         | after the connection came back all that is
//	set back, recreated              |                             | not confirmed is sent again in its order,
//	                                 |                             | before anything new; without a new
//	                                 |                             | connection when an answer, an acknowledged
//	                                 |                             | number, or after 15 s a try shows it
//	the worker's disk is full        | what was kept before        | ErrNotKept; sending goes on, and makes room
//	NATS is away, INGEST is full     | kept, up to the bounds      | calls block until ctx ends, and say why
//	a second process, same directory | the first one's             | outbox.ErrInUse at once
//	a second process, a copy of it   | both have theirs            | the count or the digest shows it: ErrConflict
//	                                 |                             | or ErrForked; the session stops, its messages
//	                                 |                             | stay, and it does not start again by itself
//	a process comes back after the   | kept; ids the bus may have  | from half the horizon on it is asked about
//	id horizon                       | forgotten                   | first; beyond it the bus can not tell, and
//	                                 |                             | it is sent, with a warning
//	the session was forgotten        | final                       | told ([Options].OnFailed) and released
//
// What is rejected is final, too, and told; what is held or ahead is not. A rejected
// page ends its session, and stays. Messages without a chain that INGEST loses without
// losing the connection, in a cluster, are sent again behind what was applied meanwhile:
// only a chain keeps its order then.
//
// The bounds [Options].MaxPendingBytes and MaxPendingMessages count what is in the
// outbox, which is also in memory. See package outbox for the files.
//
// # Traces
//
// A message carries the span context of the call's ctx, if it has a valid one, as the
// W3C headers traceparent and, up to 512 bytes, tracestate; with an outbox over the
// worker's death. The materializer passes the first on to the facts. A page carries the
// context of its first event that has one, and ends where another trace begins: so
// events in a trace of their own each, if they are many, cost a message each. An event
// without a context goes with the page that it is in. Only OpenTelemetry's API is used:
// a worker without its SDK has no span contexts, and sends no headers.
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
//   - append.go, raw.go: ready-made relay events and messages.
//   - kept.go: a session and the outbox; place.go: a session that opened without the bus.
//   - chain.go, body.go, message.go, trace.go: bytes and headers.
//   - sender.go, attempt.go: a session's loop; one attempt and what its error means.
//   - confirm.go, hint.go, ask.go: what became of what is stored.
package publisher
