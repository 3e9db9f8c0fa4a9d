package publisher

import (
	"context"
	"encoding/json"

	"github.com/skaldbus/skald/bus"
)

// hint is what a materializer tells after a commit, on the session's subject. It
// may be lost, and an applied message may be passed over if a later one of the
// session was applied with it.
type hint struct {
	IngestSeq    uint64     `json:"ingest_seq"`
	Outcome      string     `json:"outcome"`
	Reason       bus.Reason `json:"reason"`
	EventID      string     `json:"event_id"`
	Publisher    string     `json:"publisher"`
	PublisherSeq uint64     `json:"publisher_seq"`
	Frontier     *frontier  `json:"frontier"` // of pages
}

// frontier is a chain position in JSON.
type frontier struct {
	Ordinal uint64 `json:"ordinal"`
	Digest  string `json:"digest"`
}

func (f *frontier) position() (bus.ChainPosition, bool) {
	d, ok := bus.ParseDigest([]byte(f.Digest))
	return bus.ChainPosition{Ordinal: f.Ordinal, Digest: d}, ok
}

// Outcomes, of hints and answers.
const (
	outcomeApplied   = "applied"
	outcomeDuplicate = "duplicate"
	outcomeHeld      = "held"
	outcomeRejected  = "rejected"
	outcomeDropped   = "dropped"
	outcomeMissing   = "missing"
	outcomeUnknown   = "unknown"
)

// listen hands hints to their sessions until ctx ends.
func (p *Publisher) listen(ctx context.Context) {
	for {
		select {
		case m := <-p.hints:
			p.mu.Lock()
			s := p.bySubject[m.Subject]
			p.mu.Unlock()
			var h hint
			// What can not be read is no hint; the truth is asked for.
			if s != nil && json.Unmarshal(m.Data, &h) == nil {
				s.hear(ctx, &h)
			}
		case <-ctx.Done():
			return
		}
	}
}
