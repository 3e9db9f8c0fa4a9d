// Package readers measures live readers: how long a fact takes to those who follow, and
// whether anyone loses or repeats one. It runs a whole bus in the process (NATS server,
// materializer, store, gateway) and reads it over sockets.
//
// [Many] has readers of workspaces and readers of everything follow a steady load.
// [Idle] has readers wait for a workspace in which nothing happens, and counts what is
// read of the table for them.
// [One] compares one reader with a bare NATS subscriber of the same bytes, in the same
// run: what a machine is, both feel.
package readers
