package materializer

import (
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// maxAppendMessages is the most messages of one atomic batch, unless the options say
	// otherwise: nats-server 2.15 allows 1,000 (streamDefaultMaxAtomicBatchSize).
	maxAppendMessages = 1000
	maxAppendBytes    = 16 << 20
	// headerBytes is what a fact's headers weigh at most, with room to spare.
	headerBytes = 512
	// aheadMessages is how many facts are waited for until they are sent ahead of
	// their batch's commit. Fewer facts than that go out all at once.
	aheadMessages = 200
)

// pending are facts that are to be appended as one atomic batch. Their rows stand
// at the end of the unit's.
type pending struct {
	rows   int
	bytes  int
	append *appending // begun, with the first of them; nil if none is sent yet
}

// makeRoom launches what is pending if facts fit into one batch, but not behind what is pending:
// the facts of one message stay together where they can.
func (a *attempt) makeRoom(facts []projection.Fact) error {
	if a.pending.rows == 0 {
		return nil
	}
	bytes := 0
	for i := range facts {
		bytes += len(facts[i].Data) + headerBytes
	}
	if a.pending.rows+len(facts) <= a.m.o.AppendMessages && a.pending.bytes+bytes <= maxAppendBytes {
		return nil
	}
	return a.launch()
}

// enqueue gives the fact its number, which holds if the append is taken.
func (a *attempt) enqueue(m *message, index int, f *projection.Fact) error {
	p := &a.pending
	size := len(f.Data) + headerBytes
	if p.rows > 0 && (p.rows == a.m.o.AppendMessages || p.bytes+size > maxAppendBytes) {
		if err := a.launch(); err != nil {
			return err
		}
	}
	a.unit.commit.Rows = append(a.unit.commit.Rows, store.Row{
		Seq: a.end.seq + uint64(p.rows) + 1, Key: m.Key, Type: f.Type, RecordedAt: f.RecordedAt,
		Origin: bus.Origin{Seq: m.Seq, Time: m.Time, Index: index},
		Source: f.Source, Trace: m.trace, Data: f.Data,
	})
	p.rows++
	p.bytes += size
	if p.rows%aheadMessages == 0 {
		return a.sendAhead()
	}
	return nil
}

// sendAhead sends what is pending but for the newest fact, which may turn out to be
// the batch's last. The server only puts it aside, while it may still be busy with
// the append before.
func (a *attempt) sendAhead() error {
	p := &a.pending
	if p.append == nil {
		p.append = &appending{out: a.m.out, last: a.end.seq}
	}
	rows := a.unit.commit.Rows
	rows = rows[len(rows)-p.rows:]
	for i := int(p.append.n); i < len(rows)-1; i++ {
		if err := p.append.send(&rows[i]); err != nil {
			return err
		}
	}
	return a.newest.push()
}

// launch sends the rest of what is pending but for the last message, which commits it and
// goes out once the append before is answered: if that were refused, since another program
// has written, and what was written were as long, then this one would be taken, and EVENTS
// would end with facts that come after those which it lacks. One append may wait for that
// while the next is projected; a second one is waited for here. The attempt goes on as if
// the append were taken; land has to hear that it was.
func (a *attempt) launch() error {
	if a.pending.rows == 0 {
		return a.newest.push()
	}
	if err := a.sendAhead(); err != nil {
		return err
	}
	if a.newest != nil {
		if err := a.newest.commit(); err != nil {
			return err
		}
	}
	rows := a.unit.commit.Rows
	last, sent := &rows[len(rows)-1], a.pending.append
	sent.seal(last, a.newest)
	a.newest = sent
	a.appends = append(a.appends, sent)
	a.table = last.Seq
	a.end = end{seq: last.Seq, known: true, origin: last.Origin}
	a.pending = pending{}
	if err := sent.push(); err != nil {
		return err
	}
	return crash(a.m.seam("sent"))
}

// abandon gives up those of the attempt's appends that are not committed.
func (a *attempt) abandon() {
	a.pending.append.abandon()
	for _, sent := range a.appends {
		sent.abandon()
	}
}

// heard reports whether land has nothing to wait for.
func (a *attempt) heard() bool {
	for _, sent := range a.appends {
		if sent.ack == nil || !sent.hear() {
			return false
		}
	}
	return true
}

// land waits for the answers to the attempt's appends. When it returns nil,
// EVENTS holds the facts under the numbers that enqueue gave.
func (a *attempt) land() error {
	for len(a.appends) > 0 {
		sent := a.appends[0]
		if err := sent.wait(); err != nil {
			return err
		}
		a.appends = a.appends[1:]
		if !sent.queued { // else some of it was another's
			a.m.costs.took(sent.n, sent.took, time.Now())
		}
		a.m.stats.appendsWon.Add(1)
		a.m.o.Observer.Appended(int(sent.n), sent.took)
		if err := crash(a.m.seam("appended")); err != nil {
			return err
		}
	}
	return nil
}
