package projection

import "slices"

// queued returns where the id that stands for text is queued, -1 if it is not.
func (v *View) queued(text []byte) int {
	return slices.IndexFunc(v.Queue, func(q Queued) bool { return q.CommandID.is(text) })
}

// dequeue takes the id out of the queue and returns its entry, if it was there.
func (t *step) dequeue(text []byte) (Queued, bool) {
	v := &t.View
	at := v.queued(text)
	if at < 0 {
		return Queued{}, false
	}
	q := v.Queue[at]
	v.Queue = slices.Delete(v.Queue, at, at+1)
	t.Changed |= PartView
	return q, true
}

// start notes that the prompt has started.
func (v *View) start(id ID) {
	v.finish([]byte(id.text))
	if len(v.Started) >= MaxStarted {
		v.Started = slices.Delete(v.Started, 0, len(v.Started)-MaxStarted+1)
	}
	v.Started = append(v.Started, id)
}

// finish notes that the prompt has ended; it reports whether it had started.
func (v *View) finish(text []byte) bool {
	i := slices.IndexFunc(v.Started, func(id ID) bool { return id.is(text) })
	if i < 0 {
		return false
	}
	v.Started = slices.Delete(v.Started, i, i+1)
	return true
}
