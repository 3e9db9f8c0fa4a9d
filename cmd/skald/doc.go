// Command skald runs a Skald bus and talks to one.
//
// One file holds one command; commands hold wiring and the form of input and
// output, what they do stands in the packages. main.go turns a returned error
// into the exit status: 0 done, 1 failed, 2 wrong usage, 3 not found. Data goes
// to standard output, everything else to standard error.
//
//   - serve.go, start.go, stack.go, banner.go: the bus itself, and in which order
//     its parts start and stop; serve_flags.go: which flags go together; memory.go:
//     how much memory it may take.
//   - publish.go, input.go, sender.go: sending messages from flags or lines.
//   - events.go, sessions.go, session.go, status.go, rejects.go: reading the
//     table, from a file, over HTTP or over NATS (flags.go); follow.go: going on
//     until it is enough, and saying where to go on from.
//   - tail.go: following EVENTS.
//   - nats_flags.go: reaching a NATS server as the nats tool does; complete.go: ids
//     for the shell.
//   - token.go, tokens.go: making tokens for HTTP, and serve's use of them.
//   - forget.go, resync.go, control.go: what operators tell a session.
//   - demo.go, demo_bus.go, demo_print.go: a fleet's story, on which bus, and how it
//     is told.
//   - bench.go: the figures, as package internal/bench measures them.
//   - print.go: how things look on a terminal.
package main
