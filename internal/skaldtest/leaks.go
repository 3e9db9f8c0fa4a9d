package skaldtest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyLeaks runs a package's tests and ends the process; it fails if a test leaves a
// goroutine: whatever has a Run promises that none outlives it.
//
// Four goroutines of libraries are passed over. None of them is started by a go
// statement of ours, and each comes with others that are not passed over if it is our
// fault, such as a connection that was not closed.
func VerifyLeaks(m *testing.M) {
	goleak.VerifyTestMain(m,
		// nats.go's object store makes a JetStream context for each object and cleans it up
		// when the object is there. If its goroutine has not run by then, it reads its
		// channel after the clean-up has set it to nil, and waits on that for ever.
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		// If its context ends while an object's chunks are being subscribed to, the error is
		// returned without the reader, and so nobody can close the pipe to it.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*obs).Get.func2"),
		// A server that is shut down while it makes a stream leaves that stream's file store
		// open: its flusher, and the clock that all open file stores share.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}
