package materializer

import (
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
	checkBound    = "lag"          // the watcher's: the oldest message that waits is not too old
	checkSpace    = "ingest_space" // the watcher's: publishers are not refused
	checkRemovals = "removals"     // the remover's
	checkLoss     = "ingest_loss"  // the watcher's: holes and rollbacks that nobody has acknowledged

	checkReplicas    = "replicas"    // the store is registered
	checkCheckpoints = "checkpoints" // the keeper's
)

// Check is one part of a materializer's health.
type Check struct {
	Name   string // nats, streams, ingest, events, store, progress, lag, ingest_space, removals, ingest_loss, replicas or checkpoints
	OK     bool
	Detail string // what is wrong, in words; if OK, what is worth knowing all the same, mostly ""
}

// health collects what the stages report, each check by one stage. An empty
// detail means well.
type health struct {
	mu     sync.Mutex
	detail map[string]string
	notes  map[string]string    // what is worth knowing of a check that is well
	since  map[string]time.Time // when a stage began to wait for what is outside
}

// slowAfter is how long a stage may wait for the store or the server before its
// check says so, although no error is known yet: SQLite waits 5 s for a lock.
const slowAfter = 3 * time.Second

// init begins with what has not been found out yet: until the streams are known to
// be the right ones nothing is read, and nobody is to be told that all is well.
func (h *health) init() {
	h.detail = map[string]string{checkIngest: "not reading yet"}
	h.notes = map[string]string{}
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

// note says what is worth knowing of a check though it is well; "" is nothing.
func (h *health) note(check, text string) {
	h.mu.Lock()
	h.notes[check] = text
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
	if s, _ := m.Connection(); s != nats.CONNECTED {
		status = "the connection is " + s.String()
	}
	add(checkNATS, status)
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	if !m.running.Load() {
		add(checkIngest, "not running yet")
		return out
	}
	for _, name := range []string{checkStreams, checkIngest, checkEvents, checkStore, checkLag, checkBound, checkSpace, checkRemovals, checkLoss, checkReplicas, checkCheckpoints} {
		detail := m.health.detail[name]
		if began, ok := m.health.since[name]; ok && detail == "" {
			if d := time.Since(began); d > slowAfter {
				detail = "no answer for " + d.Round(time.Second).String()
			}
		}
		add(name, detail)
		if detail == "" {
			out[len(out)-1].Detail = m.health.notes[name]
		}
	}
	return out
}
