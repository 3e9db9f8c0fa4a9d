// Command skald runs a Skald bus and talks to one.
//
// One file holds one command; commands hold wiring and the form of input and
// output, what they do stands in the packages. main.go turns a returned error
// into the exit status: 0 done, 1 failed, 2 wrong usage, 3 not found. Data goes
// to standard output, everything else to standard error.
//
//   - serve.go, start.go, stack.go, banner.go: the bus itself, and in which order
//     its parts start and stop; serve_flags.go: which flags go together.
//   - publish.go, input.go, sender.go: sending messages from flags or lines.
//   - events.go, sessions.go, session.go, status.go, rejects.go: reading the
//     table, from a file, over HTTP or over NATS (flags.go).
//   - forget.go, resync.go, control.go: what operators tell a session.
//   - print.go: how things look on a terminal.
package main
