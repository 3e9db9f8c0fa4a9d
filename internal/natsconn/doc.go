// Package natsconn connects to a NATS server that someone else runs, and says in
// words what is wrong with it.
//
// [Connect] makes one attempt, so that a wrong address or password is an error
// at once; a connection that was made is then kept for ever, through restarts of
// the server and changes of credentials. [Check] asks whether the server is one
// that Skald can work with.
//
// A server refuses what a client may not do with a message to the connection, not
// to the call, so a publish or a request that lacks a permission looks like a
// time-out. Here each refusal is a log line, and [Explain] puts it into the error
// of the call.
//
// [Options.Context] names a context of the nats tool (context.go); what it asks for
// and Skald does not do is an error, since it would be another connection.
//
// A URL may hold a password or a token. Nothing here prints one: every text has
// gone through [Redact].
package natsconn
