package consumer

// Turn sets how far behind a follower pages, and how near it goes over to EVENTS:
// the real numbers would need long histories.
func (f *Follower) Turn(far, near uint64) { f.f.table.far, f.f.table.near = far, near }

// DoubtFor is how long a reader waits for an end of EVENTS that was lost.
const DoubtFor = doubtFor
