package materializer

import "context"

// SetSeam sets what is called at each row of the crash table, with its name: read,
// projected, sent, appended, before commit, committed, removed from EVENTS. An error is
// taken for a crash. Call it before Run.
func (m *Materializer) SetSeam(seam func(name string) error) { m.seam = seam }

// SetStateBytes lowers the bound on the states that one attempt touches. Call it
// before Run.
func (m *Materializer) SetStateBytes(n int64) { m.stateBytes = n }

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
