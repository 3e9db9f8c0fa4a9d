package publisher

import (
	"context"
	"fmt"
)

// Outcome is what became of a message that INGEST has stored.
type Outcome struct {
	// IngestSeq is the message's sequence in INGEST, of its last copy if it was
	// sent more than once; 0 if the acknowledgement was lost, and for events
	// that the bus knew before the session was opened.
	IngestSeq uint64
	// Ordinal is the relay event's place in the session's chain, 0 if the
	// message is none.
	Ordinal uint64
	// Duplicate says that the bus knew the message although it was sent once: its
	// event id or its place in the chain was there before.
	Duplicate bool
}

// Receipt stands for one accepted message or relay event. Nobody has to wait for
// it, or keep it. It is safe for concurrent use.
type Receipt struct {
	s       *Session
	eventID string // of a message that has one, else empty

	// Guarded by s.mu.
	ordinal uint64 // of a relay event with a place, else 0
	count   uint64 // of a message that has one, set when it is sent
	seq     uint64 // in INGEST; 0 while it is not stored
	stored  bool
	applied bool
	// duplicate is known only from a hint.
	duplicate bool
	loose     bool          // stored, and the session no longer follows it: ask
	err       error         // it will never be stored, or never be applied
	wake      chan struct{} // closed at the next change; nil if nobody waits
}

// Ordinal returns the relay event's place in the session's chain, 0 if the
// receipt is that of a message without a chain, or while the session's place is not
// known, see [Options].Unplaced.
func (r *Receipt) Ordinal() uint64 {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.ordinal
}

// Stored waits until INGEST has acknowledged the message and returns its sequence
// there, 0 if all that is known is that the bus has applied it. When ctx ends before,
// the error holds its cause and that of the latest attempt, such as ErrFull or ErrNotPermitted; the message is still being sent.
// ErrTooLarge, ErrForked, ErrForgotten, ErrLost and ErrClosed are final.
func (r *Receipt) Stored(ctx context.Context) (ingestSeq uint64, err error) {
	err = r.wait(ctx, func() (bool, error) { return r.stored, r.err })
	if err != nil {
		return 0, fmt.Errorf("wait until stored: %w", err)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.seq, nil
}

// Materialized waits until the message's effect is in a materializer's store: as
// a hint says, or, if none comes, the bus when it is asked. A [RejectedError]
// says that it never will be. Otherwise the errors are those of Stored; ErrClosed
// and ErrLost leave open what becomes of a message that is stored.
func (r *Receipt) Materialized(ctx context.Context) (Outcome, error) {
	err := r.wait(ctx, func() (bool, error) { return r.applied || r.loose, r.err })
	if err == nil {
		err = r.s.track(ctx, r)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("wait until materialized: %w", err)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return Outcome{IngestSeq: r.seq, Ordinal: r.ordinal, Duplicate: r.duplicate}, nil
}

// wait waits until done says so or fails, which is asked with the session locked.
func (r *Receipt) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		r.s.mu.Lock()
		ok, err := done()
		if ok || err != nil {
			r.s.mu.Unlock()
			if ok {
				return nil
			}
			return err
		}
		if r.wake == nil {
			r.wake = make(chan struct{})
		}
		wake := r.wake
		r.s.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return r.s.because(context.Cause(ctx))
		}
	}
}

func (r *Receipt) changedLocked() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}
