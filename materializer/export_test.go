package materializer

// SetSeam sets what is called at each row of the crash table, with its name: read,
// projected, appended, before commit, committed, removed from EVENTS. An error is
// taken for a crash. Call it before Run.
func (m *Materializer) SetSeam(seam func(name string) error) { m.seam = seam }

// Bounds that tests exceed.
const (
	MaxAppendMessages = maxAppendMessages
	MaxBatchMessages  = maxBatchMessages
)
