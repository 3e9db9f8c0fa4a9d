// Package service is Skald's NATS door: a service of the NATS micro framework
// named "skald", so that the usual tools find it and count its requests.
//
//	skald.api.<workspace>.events               a page of the workspace's events
//	skald.api.<workspace>.sessions             a list of the workspace's sessions
//	skald.api.<workspace>.session.<session>    one session
//	skald.api.<workspace>.position.<session>   where its chain and its publishers' counts stand
//	skald.api.<workspace>.outcome.<session>    what became of a message
//	skald.op.events, skald.op.sessions         the same over all workspaces, for operators
//	skald.op.status                            positions, lags and counters
//
// Workspace and session are tokens (bus.Escape), so that permissions can follow
// them: what a subject names holds, and a request that names another workspace
// is refused. A request's body is the query's members as one JSON object, or
// empty. A reply is the same JSON text that the HTTP door gives; an error has
// the headers Nats-Service-Error and Nats-Service-Error-Code (the HTTP status)
// and the error as JSON in its body.
//
// Every skald process of a bus serves these subjects in one queue group, from
// its own store: a reader with a cursor from another store is waited for, see
// package api. Each reply carries Skald-Latest-Seq, the last number that its store
// had passed when it was asked: whoever has seen a higher one elsewhere knows that
// this answer is older, and asks again.
package service
