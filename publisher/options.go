package publisher

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/bus"
)

const (
	// DefaultAckTimeout is well above what a server that syncs each message
	// needs for maxInFlight of them.
	DefaultAckTimeout = 5 * time.Second
	// DefaultStopTimeout leaves a process that has ten seconds to stop some for
	// the rest of it.
	DefaultStopTimeout = 8 * time.Second
	// DefaultMaxPendingBytes bounds what waits for INGEST.
	DefaultMaxPendingBytes = 64 << 20
	// DefaultMaxPendingMessages bounds what waits for INGEST.
	DefaultMaxPendingMessages = 1 << 16
	// DefaultMaxUnmaterializedBytes bounds what is kept for sending again.
	DefaultMaxUnmaterializedBytes = 64 << 20
)

const (
	// maxInFlight is how many sessions send at the same time. More would only
	// wait in the server's queue, with their time-outs running.
	maxInFlight = 512
	// maxAsking is how many questions are put at the same time: the service
	// answers 64, for all workers.
	maxAsking = 16
	// maxKept is how many stored messages a session keeps for sending again.
	maxKept = 4096
	// maxEarly is how many hints a session keeps that came before the
	// acknowledgement of their message. One is in flight at a time.
	maxEarly = 8
	// overhead is about what an accepted message costs besides its bytes.
	overhead = 512
	// headerReserve is more than the headers of a message take: 228 bytes with an event
	// id and a traceparent, and 526 for a tracestate.
	headerReserve = 768
	// hintBuffer is how many hints may wait. Beyond it they are lost, and the
	// truth is asked for.
	hintBuffer = 1 << 14
	// denialPoll is how often a message without an answer looks whether the
	// server has refused it: NATS tells that to the connection, not to the call.
	denialPoll = 50 * time.Millisecond
	// hintPatience is how long after its acknowledgement a message waits for a
	// hint before its outcome is asked for. A materializer that keeps up is
	// done within milliseconds.
	hintPatience = time.Second
	// maxAskWait is the longest pause between questions about a session.
	maxAskWait = 15 * time.Second
	// askTimeout bounds one question: the service itself gives up after 10 s.
	askTimeout = 3 * time.Second
	// probeAfter is how long a message of the outbox that is stored and not
	// materialized waits before it is sent once more: should INGEST have been set
	// back, the new acknowledgement tells.
	probeAfter = 15 * time.Second
	// tendEvery is how often the outbox is tidied up.
	tendEvery = time.Second
	// noteEvery is how often a trouble of one kind is logged at most.
	noteEvery = 10 * time.Second
)

// Options are a publisher's settings. The zero value is usable.
type Options struct {
	// AckTimeout is how long an attempt waits for INGEST's acknowledgement.
	// Defaults to DefaultAckTimeout.
	AckTimeout time.Duration

	// IDHorizon is how long the bus remembers event ids. What an outbox has kept
	// for half as long, and may have sent before, is asked about before it is
	// sent again. Defaults to bus.DefaultIDHorizon.
	IDHorizon time.Duration

	// Logger takes what a human should know. Nil discards.
	Logger *slog.Logger

	// MaxPendingBytes and MaxPendingMessages bound what is accepted and not yet
	// stored, over all sessions, in bytes (each message counts some 512 more
	// than its body) and in messages and relay events. At the bound, calls
	// block. A single larger message is accepted when nothing else waits.
	// They default to DefaultMaxPendingBytes and DefaultMaxPendingMessages.
	//
	// With an outbox they bound what is accepted and not yet materialized, on disk
	// and in memory.
	MaxPendingBytes    int64
	MaxPendingMessages int

	// MaxUnmaterializedBytes bounds what is kept of stored messages until they
	// are materialized, so that they can be sent again should INGEST lose them.
	// Beyond it nothing blocks: a session lets go of its oldest. If INGEST has
	// lost one of those, a relay event ends its session with ErrLost; of a
	// message without a chain those learn who wait for its receipt.
	// Defaults to DefaultMaxUnmaterializedBytes.
	MaxUnmaterializedBytes int64

	// OnFailed, if given, is told of each message that is final without being
	// materialized: rejected, dropped with its forgotten session, or too large for
	// INGEST. It is called by the session's own goroutine, one call at a time for
	// a session, which sends nothing meanwhile; it may use the session, but not
	// wait for it.
	OnFailed func(Failure)

	// Outbox is a directory in which everything accepted is kept until the bus has
	// materialized it, see the package's documentation. Only one publisher can use
	// it at a time. Empty: memory only.
	Outbox string

	// Prefix is the bus's subject prefix. Defaults to bus.DefaultPrefix.
	Prefix string

	// StopTimeout is how long Run still sends what it has after its context has
	// ended. Defaults to DefaultStopTimeout.
	StopTimeout time.Duration

	// Unplaced makes [Publisher.Session] return without asking the bus where the
	// session's chain stands; that is asked when the first observation is to be
	// sent. An outbox implies it.
	Unplaced bool
}

// Failure is a message that will never be materialized.
type Failure struct {
	Key bus.Key
	// Ordinal is the relay event's place in the chain, EventID the message's id;
	// zero if it has none.
	Ordinal uint64
	EventID string
	// Err is ErrForgotten, ErrTooLarge or a [RejectedError].
	Err error
}

func (o Options) withDefaults() Options {
	if o.AckTimeout == 0 {
		o.AckTimeout = DefaultAckTimeout
	}
	if o.IDHorizon == 0 {
		o.IDHorizon = bus.DefaultIDHorizon
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxPendingBytes == 0 {
		o.MaxPendingBytes = DefaultMaxPendingBytes
	}
	if o.MaxPendingMessages == 0 {
		o.MaxPendingMessages = DefaultMaxPendingMessages
	}
	if o.MaxUnmaterializedBytes == 0 {
		o.MaxUnmaterializedBytes = DefaultMaxUnmaterializedBytes
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	return o
}

func (o Options) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"AckTimeout", int64(o.AckTimeout)},
		{"IDHorizon", int64(o.IDHorizon)},
		{"MaxPendingBytes", o.MaxPendingBytes},
		{"MaxPendingMessages", int64(o.MaxPendingMessages)},
		{"MaxUnmaterializedBytes", o.MaxUnmaterializedBytes},
		{"StopTimeout", int64(o.StopTimeout)},
	} {
		if f.value < 0 {
			return fmt.Errorf("publisher options: %s is %d, must not be negative", f.name, f.value)
		}
	}
	return nil
}
