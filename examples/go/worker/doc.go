// Worker says what one session does, a turn of three observations at a time. Neither its
// own death nor the server's loses or doubles any of them: run it again with the same
// arguments, and it goes on where it was.
//
//	go run ./examples/go/worker NATS-URL OUTBOX-DIRECTORY SESSION TURNS
package main
