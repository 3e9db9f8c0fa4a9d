package materializer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/skaldbus/skald/materializer/registry"
)

// silentAfter is from when on a store that is listed counts as silent: one that runs writes
// its entry every registerIdle.
const silentAfter = 3 * registerIdle

// SilentStore is another store of the bus that is listed and has not been heard of. It is
// stopped, or lost; INGEST is kept for it in either case.
type SilentStore struct {
	ID       string
	Label    string        // for people: the host and the directory
	Position uint64        // INGEST is not trimmed beyond it
	For      time.Duration // since it was heard of, by the server's clock
}

// Silent returns the stores of the bus that have not been heard of, as of the last look,
// which is every five seconds. Safe for concurrent use.
func (m *Materializer) Silent() []SilentStore {
	if s := m.silent.Load(); s != nil {
		return *s
	}
	return nil
}

// noteSilent looks for silent stores among the entries; now is the server's time. Nothing is
// wrong here as long as INGEST has room, so readiness stays; but it is said, with what to
// do: an entry whose store is lost holds the trim for ever.
func (m *Materializer) noteSilent(entries []registry.Entry, own string, now time.Time) {
	var silent []SilentStore
	var note []string
	for _, e := range entries {
		since := now.Sub(e.Seen)
		if e.ID == own || since <= silentAfter {
			continue
		}
		s := SilentStore{ID: e.ID, Label: e.Label, Position: e.Position, For: since}
		silent = append(silent, s)
		note = append(note, s.String())
		if !slices.ContainsFunc(m.Silent(), func(old SilentStore) bool { return old.ID == e.ID }) {
			m.log.Warn("a store of the bus has not been heard of, and INGEST is not trimmed beyond where it is",
				slog.String("store", s.ID), slog.String("label", s.Label), slog.Uint64("ingest_seq", s.Position), slog.Duration("silent", s.For.Round(time.Second)),
				slog.String("if_it_is_lost", "skald replicas rm "+s.ID))
		}
	}
	m.silent.Store(&silent)
	m.health.note(checkReplicas, strings.Join(note, "; "))
}

// String says it with what to do.
func (s SilentStore) String() string {
	return fmt.Sprintf("store %s (%s) has not been heard of for %s, and INGEST is not trimmed beyond %d, where it is: start it, or `skald replicas rm %s` if it will never come back",
		s.ID, s.Label, s.For.Round(time.Second), s.Position, s.ID)
}
