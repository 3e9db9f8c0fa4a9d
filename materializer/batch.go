package materializer

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// appendTimeout is how long an append may take before its outcome is a question.
const appendTimeout = 5 * time.Second

// Codes with which JetStream refuses an expected sequence: of a single message
// and of a batch, and of a replicated stream with other writes under way.
const (
	codeWrongLastSequence   = 10071
	codeWrongLastSequenceIn = 10164
	codeWrongLastMsgID      = 10070 // in a chain, the message before was refused
)

// errLostRace marks an append that EVENTS refused since it has moved on.
var errLostRace = errors.New("another materializer was first")

// appending is an append to EVENTS: one message, or an atomic batch of several.
// Its messages are sent one by one, and EVENTS takes none of them until commit has
// sent the last one. We do this ourselves, on nats.go's asynchronous publish, since
// the library for atomic batches waits for each answer, and the next batch can be
// projected meanwhile. One goroutine owns it.
type appending struct {
	out    *eventWriter
	last   uint64     // where EVENTS has to end for the append to be taken
	n      uint64     // messages sent
	id     string     // the batch's; "" until it has one
	before *appending // has to be taken first; nil if it was
	name   string     // of a single message in a chain; "" until it is sent
	end    *store.Row // of the last message, once it is sealed
	ack    jetstream.PubAckFuture
	at     time.Time // of the commit

	queued   bool // sent while the one before was not answered
	answered bool
	err      error         // what wait has returned
	took     time.Duration // from the commit to the answer
}

// send sends the message of r, not the append's last one: the server puts it aside.
// A nil row only takes a number.
func (p *appending) send(r *store.Row) error {
	if p.id == "" {
		p.id = bus.NewID()
	}
	p.n++
	msg := p.out.message(r, batchPlace{expect: p.last, id: p.id, seq: p.n})
	if err := p.out.m.o.Conn.PublishMsg(msg); err != nil {
		return fmt.Errorf("append to EVENTS after %d: %w", p.last, err)
	}
	return nil
}

// seal says which row is the append's last, and which append comes before it. A nil row
// only takes a number.
func (p *appending) seal(r *store.Row, before *appending) {
	if r != nil {
		kept := *r // the unit's rows move when they become more
		r = &kept
	}
	p.end, p.before = r, before
}

// commit sends the last message of a sealed append, once the one before is taken. If
// EVENTS still ends where it has to, it takes all of them; wait hears what it did.
func (p *appending) commit() error {
	if p.ack != nil || p.answered {
		return p.err
	}
	place := batchPlace{expect: p.last, id: p.id, seq: p.n + 1, last: true}
	if p.before != nil {
		if p.chains() {
			place.after, p.queued = p.before.name, true
		} else if err := p.before.wait(); err != nil {
			return err
		}
		p.before = nil
	}
	if p.n == 0 && p.out.m.o.ChainAppends {
		p.name = p.out.name()
		place.name = p.name
	}
	p.n++
	p.out.message(p.end, place)
	p.out.m.atHand.Store(p.last + p.n) // before a bounded EVENTS can drop some of it
	// No retries: they would come out of order. A lost answer is a question.
	ack, err := p.out.m.o.JS.PublishMsgAsync(p.out.kept(), jetstream.WithRetryAttempts(0))
	if err != nil {
		p.answered, p.err = true, fmt.Errorf("append to EVENTS after %d: %w", p.last, err)
		return p.err
	}
	p.ack, p.at = ack, time.Now()
	return nil
}

// push commits a sealed append if that needs no waiting. The one before is committed.
func (p *appending) push() error {
	if p == nil || p.before != nil && !p.chains() && !p.before.hear() {
		return nil
	}
	return p.commit()
}

// chains reports whether a sealed append may be sent although the one before is not
// answered: both are single messages, and it says that it comes behind that one and no other.
func (p *appending) chains() bool { return p.n == 0 && p.before.flows() && !p.before.answered }

// flows reports whether single messages may follow it at once.
func (p *appending) flows() bool { return p != nil && p.name != "" && p.err == nil }

// appendAll appends the rows behind EVENTS' number last, all or none, and waits for the
// answer. A nil row only takes a number. The errors are those of wait.
func (w *eventWriter) appendAll(last uint64, rows []*store.Row) error {
	p := &appending{out: w, last: last}
	for _, r := range rows[:len(rows)-1] {
		if err := p.send(r); err != nil {
			return err
		}
	}
	p.seal(rows[len(rows)-1], nil)
	return p.wait()
}

// abandon gives up an append that was begun and is not to be committed. The server
// would keep its messages for ten seconds else, and keeps those of fifty batches at
// most. A gap in the batch makes it drop them; that it may not hear of it is no harm.
func (p *appending) abandon() {
	if p == nil || p.n == 0 || p.ack != nil {
		return
	}
	_ = p.out.m.o.Conn.PublishMsg(p.out.message(nil, batchPlace{id: p.id, seq: p.n + 2}))
}

// wait commits a sealed append, if that is still to be done, and returns nil if EVENTS
// took it, errLostRace if EVENTS had moved on. Any other error is a question: the messages
// may be in EVENTS, or come to be. A stop does not cut the waiting short; an answer is
// worth it. Further calls return the same.
func (p *appending) wait() error {
	if err := p.commit(); err != nil {
		return err
	}
	p.answerOr(nil)
	return p.err
}

// answerOr waits for the answer to a committed append, as long as no message comes from
// more, which it returns then.
func (p *appending) answerOr(more <-chan *message) *message {
	if p.hear() {
		return nil
	}
	timer := time.NewTimer(time.Until(p.at.Add(appendTimeout)))
	defer timer.Stop()
	select {
	case ack := <-p.ack.Ok():
		p.answer(ack, nil)
	case err := <-p.ack.Err():
		p.answer(nil, err)
	case <-timer.C:
		p.answer(nil, fmt.Errorf("no answer within %s", appendTimeout))
	case m := <-more:
		return m
	}
	return nil
}

// hear reports whether the answer to a committed append is there.
func (p *appending) hear() bool {
	if !p.answered {
		select {
		case ack := <-p.ack.Ok():
			p.answer(ack, nil)
		case err := <-p.ack.Err():
			p.answer(nil, err)
		default:
		}
	}
	return p.answered
}

// answer takes the acknowledgement, or the error that there is instead.
func (p *appending) answer(ack *jetstream.PubAck, err error) {
	p.answered, p.took = true, time.Since(p.at)
	if err == nil {
		if want := p.last + p.n; ack.Sequence != want {
			p.err = fmt.Errorf("append to EVENTS after %d: acknowledged with %d instead of %d", p.last, ack.Sequence, want)
		}
		return
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeWrongLastSequence, codeWrongLastSequenceIn, codeWrongLastMsgID:
			err = errLostRace
		}
	}
	p.err = fmt.Errorf("append to EVENTS after %d: %w", p.last, err)
}
