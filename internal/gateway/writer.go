package gateway

import (
	"net/http"
	"sync"
	"time"
)

const (
	// frameTimeout is how long a client may take for chunkBytes, or for a frame that is
	// shorter. One that takes nothing has left without saying so, or is stuck; it can
	// resume.
	frameTimeout = 30 * time.Second
	// chunkBytes is what is sent at a time, so that a slow client is given time for a
	// large frame and not only for a small one.
	chunkBytes = 32 << 10
	// lastWords is how long a client may take when the stream has to end.
	lastWords = time.Second
)

// streamWriter writes frames with a deadline for each.
type streamWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration

	mu     sync.Mutex
	ending bool // the deadline is set for good
	closed bool // the handler has returned, and w must not be touched
}

func newStreamWriter(w http.ResponseWriter, timeout time.Duration) *streamWriter {
	s := &streamWriter{w: w, rc: http.NewResponseController(w), timeout: timeout}
	// The deadline of reading the request would end the stream.
	_ = s.rc.SetReadDeadline(time.Time{}) // a connection that is gone fails at the first write
	return s
}

// send writes the frames and flushes them. After an error nothing more can be sent.
func (s *streamWriter) send(frames ...[]byte) error {
	var buf []byte
	for _, f := range frames {
		// Small frames share a write, and so a deadline.
		if len(buf) > 0 && len(buf)+len(f) > chunkBytes {
			if err := s.write(buf); err != nil {
				return err
			}
			buf = nil
		}
		if buf == nil {
			buf = f[:len(f):len(f)] // appending makes a copy
			continue
		}
		buf = append(buf, f...)
	}
	if err := s.write(buf); err != nil {
		return err
	}
	s.deadline(s.timeout)
	if err := s.rc.Flush(); err != nil {
		return err
	}
	// A stream that waits for events has no deadline.
	s.deadline(0)
	return nil
}

func (s *streamWriter) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		s.deadline(s.timeout)
		if _, err := s.w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// deadline gives the next write so long, 0 for ever.
func (s *streamWriter) deadline(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = s.rc.SetWriteDeadline(at) // a connection that is gone fails at the write
}

// end gives a write that is under way, and all that follow, a last moment.
func (s *streamWriter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || s.closed {
		return
	}
	s.ending = true
	_ = s.rc.SetWriteDeadline(time.Now().Add(lastWords))
}

// close is called before the handler returns.
func (s *streamWriter) close() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
