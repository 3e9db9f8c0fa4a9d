package materializer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/skaldbus/skald/materializer/store"
)

// factID is a short hash of what tells one fact from another.
type factID [16]byte

// byOrigin is the fact's id by the INGEST message that it came from.
func byOrigin(r *store.Row) factID {
	return hashFact("o", r, strconv.FormatUint(r.Origin.Seq, 10)+":"+strconv.FormatInt(r.Origin.Time, 10)+":"+strconv.Itoa(r.Origin.Index))
}

// bySource is the fact's id by its chain, count or event id, which stay when the same
// message is stored again; ok is false if it has none of them.
func bySource(r *store.Row) (id factID, ok bool) {
	source := r.Source.String()
	return hashFact("s"+r.Type, r, source), source != ""
}

func hashFact(kind string, r *store.Row, id string) factID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", kind, r.Key.Workspace, r.Key.Session, id))
	return factID(h[:16])
}

// lacking returns the numbers of those of the table's rows from a number on that
// EVENTS, up to its end last, holds under no number: by origin, or else by chain, count
// or event id. Of memory it takes about 100 bytes for each message from there on that
// is not the row of the same number.
func (m *Materializer) lacking(ctx context.Context, from, last, table uint64, progress func(at uint64)) ([]uint64, error) {
	s := m.sideBySide(from-1, last, table)
	defer s.close()
	held := map[factID]bool{}
	sources := map[factID]int{}
	type suspect struct {
		seq            uint64
		origin, source factID
		sourced        bool
	}
	var suspects []suspect
	for {
		seq, row, e, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		if seq == 0 {
			break
		}
		progress(seq)
		if row != nil && e != nil && unlike(row, e) == "" {
			continue
		}
		if e != nil && e.ours {
			held[byOrigin(&e.row)] = true
			if id, ok := bySource(&e.row); ok {
				sources[id]++
			}
		}
		if row != nil {
			s := suspect{seq: seq, origin: byOrigin(row)}
			s.source, s.sourced = bySource(row)
			suspects = append(suspects, s)
		}
	}
	// By origin first: what is left of the sources then are messages stored again.
	var rest []suspect
	for _, s := range suspects {
		if !held[s.origin] {
			rest = append(rest, s)
		} else if s.sourced {
			sources[s.source]--
		}
	}
	var lacks []uint64
	for _, s := range rest {
		if s.sourced && sources[s.source] > 0 {
			sources[s.source]--
			continue
		}
		lacks = append(lacks, s.seq)
	}
	return lacks, nil
}
