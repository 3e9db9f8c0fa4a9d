//go:build unix

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// stored is a message of a stream.
type stored struct {
	seq     uint64
	time    int64 // ns
	subject string
	header  nats.Header
	data    []byte
}

// readStream returns all that a stream holds.
func readStream(t *testing.T, js jetstream.JetStream, name string) []stored {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	c, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	it, err := c.Messages()
	require.NoError(t, err)
	defer it.Stop()
	var all []stored
	for {
		m, err := it.Next(jetstream.NextMaxWait(skaldtest.Timeout))
		require.NoError(t, err, "%s after %d messages", name, len(all))
		meta, err := m.Metadata()
		require.NoError(t, err)
		all = append(all, stored{
			seq: meta.Sequence.Stream, time: meta.Timestamp.UnixNano(), subject: m.Subject(), header: m.Headers(), data: m.Data(),
		})
		if meta.NumPending == 0 {
			return all
		}
	}
}

// row is an event that must be there, with the message that it belongs to.
type row struct {
	fact
	key    bus.Key
	number int // of the message
	origin bus.Origin
}

// history is what INGEST holds of the plans.
type history struct {
	rows   []row // in INGEST's order
	copies map[*message][]uint64
	// How many messages came to each outcome.
	applied, duplicates, held, dropped, rejects int
}

// fault is something that is not as it must be, with the message where it shows.
type fault struct {
	key    bus.Key
	number int
	what   string
}

func faultf(key bus.Key, number int, format string, args ...any) *fault {
	return &fault{key: key, number: number, what: fmt.Sprintf(format, args...)}
}

// fold says what must come of INGEST by what the plans say: the first copy of each
// message counts, in the order of the plan. It also checks the premise: INGEST
// holds what it acknowledged, where it said.
func fold(subjects bus.Subjects, sessions []*session, ingest []stored) (*history, *fault) {
	h := &history{copies: map[*message][]uint64{}}
	type known struct {
		*session
		bodies    map[string]*message
		next      int // the number of the message whose first copy comes next
		forgotten bool
	}
	byKey := map[bus.Key]*known{}
	for _, s := range sessions {
		k := &known{session: s, bodies: map[string]*message{}, next: 1}
		for _, m := range s.plan {
			k.bodies[string(m.class)+" "+string(m.body)] = m
		}
		byKey[s.key] = k
	}
	for _, in := range ingest {
		key, class, _, err := subjects.ParseIngest(in.subject)
		k := byKey[key]
		if err != nil || k == nil {
			return h, faultf(key, 0, "INGEST %d is on %s: %v", in.seq, in.subject, err)
		}
		m := k.bodies[string(class)+" "+string(in.data)]
		if m == nil {
			return h, faultf(key, 0, "INGEST %d holds what nobody sent: %.300s", in.seq, in.data)
		}
		first := len(h.copies[m]) == 0
		h.copies[m] = append(h.copies[m], in.seq)
		switch {
		case first && m.number != k.next:
			return h, faultf(key, m.number, "INGEST %d holds message %d, the next in order is %d", in.seq, m.number, k.next)
		case k.forgotten:
			h.dropped++
		case first && m.held, !first && m.held && k.next == m.number+1:
			h.held++
		case first:
			h.applied++
		default:
			h.duplicates++
		}
		if !first {
			continue
		}
		k.next++
		if m.resync {
			h.rejects++
		}
		for i, f := range m.facts {
			if f.recordedAt == 0 {
				f.recordedAt = in.time / 1e6
			}
			if !k.forgotten {
				h.rows = append(h.rows, row{fact: f, key: key, number: m.number, origin: bus.Origin{Seq: in.seq, Time: in.time, Index: i}})
			}
		}
		k.forgotten = k.forgotten || m.header.Get(bus.HeaderEventID) == forgetID
	}
	for _, s := range sessions {
		for _, m := range s.plan {
			if f := acknowledged(s.key, m, h.copies[m]); f != nil {
				return h, f
			}
		}
	}
	return h, nil
}

// acknowledged checks that a message is where INGEST said.
func acknowledged(key bus.Key, m *message, copies []uint64) *fault {
	if m.tries > 0 && m.ack == 0 {
		return faultf(key, m.number, "message %d was sent and never acknowledged", m.number)
	}
	for _, seq := range copies {
		if seq == m.ack {
			return nil
		}
	}
	if m.ack > 0 {
		return faultf(key, m.number, "message %d was acknowledged as INGEST %d, which does not hold it", m.number, m.ack)
	}
	return nil
}
