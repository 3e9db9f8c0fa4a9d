// Package natsd runs a NATS server with JetStream inside the process, for
// installations that have no NATS of their own.
//
// It is an ordinary server: other programs connect to its address, and the
// process itself connects without a socket ([Server.InProcess]). What differs
// from the server's own defaults is what Skald's promises need: JetStream syncs
// each message to disk before it acknowledges, payloads may have 8 MiB, a stream
// may have any number of consumers, and there is no monitoring port, no signal
// handler and no log file; log lines go to a slog.Logger.
//
// Without a configuration file the server has no accounts and no TLS, so it
// listens on loopback only. A file may set anything that a NATS server knows; it
// is completed, not overridden, by [Options] (see options.go).
//
// JetStream has no lock of its own: two servers on one directory both
// acknowledge and one of them loses what it acknowledged. The caller holds a
// dirlock on the data directory before it starts a server.
package natsd
