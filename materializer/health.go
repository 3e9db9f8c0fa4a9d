package materializer

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Names of the checks, in the order Health lists them.
const (
	checkNATS     = "nats"         // the connection
	checkStreams  = "streams"      // the watcher's: both answer and are the right ones
	checkIngest   = "ingest"       // the reader's
	checkEvents   = "events"       // the worker's
	checkStore    = "store"        // the committer's
	checkLag      = "progress"     // the watcher's: what waits gets on
	checkSpace    = "ingest_space" // the watcher's: publishers are not refused
	checkRemovals = "removals"     // the remover's
	checkHoles    = "ingest_holes" // the reader's
)

// Check is one part of a materializer's health.
type Check struct {
	Name   string // nats, streams, ingest, events, store, progress, ingest_space, removals or ingest_holes
	OK     bool
	Detail string // what is wrong, in words; "" if OK
}

// health collects what the stages report, each check by one stage. An empty
// detail means well.
type health struct {
	mu     sync.Mutex
	detail map[string]string
	since  map[string]time.Time // when a stage began to wait for what is outside
	holes  int
}

// slowAfter is how long a stage may wait for the store or the server before its
// check says so, although no error is known yet: SQLite waits 5 s for a lock.
const slowAfter = 3 * time.Second

// init begins with what has not been found out yet: until the streams are known to
// be the right ones nothing is read, and nobody is to be told that all is well.
func (h *health) init() {
	h.detail = map[string]string{checkIngest: "not reading yet"}
	h.since = map[string]time.Time{}
}

// waiting notes that a stage waits; what it reports next ends that.
func (h *health) waiting(check string) {
	h.mu.Lock()
	if h.since[check].IsZero() {
		h.since[check] = time.Now()
	}
	h.mu.Unlock()
}

func (h *health) set(check, detail string) {
	h.mu.Lock()
	h.detail[check] = detail
	delete(h.since, check)
	h.mu.Unlock()
}

// lost notes a hole in INGEST. It stays until the process ends: somebody has to
// know that acknowledged messages are gone.
func (h *health) lost(from, to uint64) {
	h.mu.Lock()
	h.holes++
	h.detail[checkHoles] = fmt.Sprintf("%d holes, the newest from %d to %d: INGEST lost messages that it had acknowledged", h.holes, from, to)
	h.mu.Unlock()
}

// Health returns one entry a check. It never blocks and is truthful within 5 s.
// Safe for concurrent use, also before and after Run.
func (m *Materializer) Health() []Check {
	var out []Check
	add := func(name, detail string) {
		out = append(out, Check{Name: name, OK: detail == "", Detail: detail})
	}
	status := ""
	if s := m.o.Conn.Status(); s != nats.CONNECTED {
		status = "the connection is " + s.String()
	}
	add(checkNATS, status)
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	if !m.running.Load() {
		add(checkIngest, "not running yet")
		return out
	}
	for _, name := range []string{checkStreams, checkIngest, checkEvents, checkStore, checkLag, checkSpace, checkRemovals, checkHoles} {
		detail := m.health.detail[name]
		if began, ok := m.health.since[name]; ok && detail == "" {
			if d := time.Since(began); d > slowAfter {
				detail = "no answer for " + d.Round(time.Second).String()
			}
		}
		add(name, detail)
	}
	return out
}
