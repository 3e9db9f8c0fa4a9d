package live

import "testing"

// SetQueue lowers how many events wait for one reader, for readers that follow later.
func (h *Hub) SetQueue(n int) { h.o.queue = n }

// At is the number that the hub has reached.
func (h *Hub) At() uint64 { return h.at() }

// OnHub reports whether the stream is fed by the hub.
func (s *Stream) OnHub(testing.TB) bool { return s.sub != nil && s.at >= s.until }
