// Package edge is the door through which workers that are not trusted reach INGEST:
//
//	worker's account                    bus' account
//	skald.in.<w>.<s>.<class>  ─import─→ skald.edge.<w>.<s>.<class> → edge → INGEST
//	acknowledgement           ←──────────────────────────────────── edge ←──┘
//
// A NATS account's imports (package auth writes them) decide which workspace and
// which classes a worker reaches, and where an answer may go. What they can not
// decide is what a message's headers say, and JetStream obeys headers: of the server
// that Skald is built for, a wrong Nats-Expected-Last-Msg-Id stops a replicated
// stream on all its replicas for good; others leave batches open, drop a message as a
// duplicate of another tenant's, or make it vanish without an acknowledgement. So the
// edge stores each message anew, with the headers that are Skald's and no other, and
// passes on INGEST's own answer: an acknowledgement means what it means without an
// edge, and its sequence is INGEST's.
//
// An edge keeps nothing. Any number of them share the work as one queue group; one
// that dies leaves publishers without an answer to what it had at hand, and they send
// it again. Two edges may store two messages of one sender in another order than they
// were sent; publishers of Skald wait for each acknowledgement within a session and
// are not affected, other clients should do so too.
//
// One workspace can have [Options.MaxPerWorkspace] messages under way; beyond that it
// is refused with JetStream's "too many requests", so that none takes up all of an
// edge.
package edge
