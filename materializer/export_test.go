package materializer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/materializer/store"
)

// SetSeam sets what is called at each row of the crash table, with its name: read,
// projected, sent, appended, before commit, committed, removed from EVENTS. An error is
// taken for a crash. Call it before Run.
func (m *Materializer) SetSeam(seam func(name string) error) { m.seam = seam }

// SetStateBytes lowers the bound on the states that one attempt touches. Call it
// before Run.
func (m *Materializer) SetStateBytes(n int64) { m.stateBytes = n }

// SetKeepEvery lowers how often INGEST is looked at and how far apart checkpoints are,
// however long they take. Call it before Run.
func (m *Materializer) SetKeepEvery(d time.Duration) {
	m.keepEvery, m.checkpointEvery, m.checkpointRest = d, d, 0
}

// WaitCommitted blocks until the store has committed INGEST's message seq.
func (m *Materializer) WaitCommitted(ctx context.Context, seq uint64) error {
	for {
		pos, units := m.committed.get()
		if pos.IngestSeq >= seq {
			return nil
		}
		if err := m.committed.wait(ctx, units+1); err != nil {
			return err
		}
	}
}

// Bounds that tests exceed.
const (
	MaxAppendMessages = maxAppendMessages
	MaxBatchMessages  = maxBatchMessages
)

// GiveUpAppend sends the beginning of an append behind EVENTS' number last, and gives
// it up.
func (m *Materializer) GiveUpAppend(last uint64, rows []store.Row) error {
	p := &appending{out: m.out, last: last}
	for i := range rows {
		if err := p.send(&rows[i]); err != nil {
			return err
		}
	}
	p.abandon()
	return nil
}

// EventMessages builds the messages of one append after the number last, in memory that
// is used again, and returns a copy of each. A nil row is a void.
func (m *Materializer) EventMessages(last uint64, id string, rows []*store.Row) []*nats.Msg {
	out := make([]*nats.Msg, len(rows))
	for i, r := range rows {
		m.out.message(r, batchPlace{expect: last, id: id, seq: uint64(i + 1), last: i == len(rows)-1})
		out[i] = m.out.kept()
	}
	return out
}

// SetSeam sets what is called after each step of a repair, with its name: planned,
// deleted, made, appended, purged, sealed, renamed, rewound. An error is taken for a crash.
func (r *Repairer) SetSeam(seam func(name string) error) { r.seam = seam }

// AppendInBatches lets few facts go out together as well, as on a disk where a batch
// costs no more than a message.
func (m *Materializer) AppendInBatches() {
	later := time.Now().Add(time.Hour)
	m.costs = appendCosts{single: cost{mean: time.Hour, at: later}, batch: cost{mean: 1, at: later}}
}

// SetRestoredTo makes the materializer one of a restored store that has to come as far as
// the number.
func (m *Materializer) SetRestoredTo(seq uint64) { m.restoredTo.Store(&seq) }
