package materializer

import (
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// Observer is told what a materializer does, as it does it. Its methods are called in
// the goroutines that work, which wait for them: they must not block, and are safe for
// concurrent use.
type Observer interface {
	// Appended says that EVENTS has acknowledged an append of so many facts, and how
	// long that took from when the last of them was sent.
	Appended(facts int, took time.Duration)
	// Committed says that a transaction with so many messages and rows is durable, and
	// how long it took; tries that the store refused are not in it.
	Committed(messages, rows int, took time.Duration)
	// Message says what became of a message that is committed. The reason is that of a
	// rejected one, else "". It is called for each message, after Committed.
	Message(outcome projection.Outcome, reason bus.Reason)
	// Refused says that the store has refused a transaction, which is tried again.
	Refused()
}

// nobody is the observer where there is none.
type nobody struct{}

func (nobody) Appended(int, time.Duration)            {}
func (nobody) Committed(int, int, time.Duration)      {}
func (nobody) Message(projection.Outcome, bus.Reason) {}
func (nobody) Refused()                               {}

// Lag is how far the store is behind the streams, as the watcher has seen it last.
type Lag struct {
	At          time.Time     // when the server was asked; zero if it has not answered yet
	IngestLast  uint64        // INGEST's last sequence
	IngestBytes uint64        // that INGEST holds
	IngestMax   int64         // bound of IngestBytes; not above 0 if there is none
	EventsLast  uint64        // EVENTS' last sequence
	Messages    uint64        // of INGEST, stored and not committed
	Age         time.Duration // of the oldest of these, by the server's clock; 0 if there is none
}

// Lag returns what was seen last, which is at most a few seconds old while the server
// answers. It does not block. Safe for concurrent use.
func (m *Materializer) Lag() Lag {
	if l := m.lag.Load(); l != nil {
		return *l
	}
	return Lag{}
}

// Position returns how far the store has committed since Run began. It does not block.
// Safe for concurrent use.
func (m *Materializer) Position() (ingest, events uint64) {
	pos, _ := m.committed.get()
	return pos.IngestSeq, pos.EventsSeq
}
