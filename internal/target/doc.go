// Package target is how the command line reaches a table: the store file of a
// data directory, a gateway over HTTP, or the service over NATS. The three give
// the same JSON texts and the same failures, since behind each stands
// internal/api; a command works with a [Target] and does not know which it has.
//
// [Poll] reads any of them page by page, [Follow] goes on with what comes, and
// [Since] finds the cursor of a moment.
//
// [Options.Resolve] says which one a command means: what is named, in the order
// data directory, URL, server; then NATS_URL; then ./skald-data if a store is
// there; then the local gateway. An address of another protocol is recognized
// (greeting.go).
package target
