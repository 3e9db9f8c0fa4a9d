package projection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/stretchr/testify/require"
)

// lived returns a session that has seen a bit of everything, and its journal.
func lived(t testing.TB) (*session, *journal) {
	s, j := newSession(t), &journal{}
	for _, o := range []string{queued("p"), started("p"), queued("q"), setConfig("k"), asked("a", "?"), asked("b", "?"), restarted, restarted} {
		j.add(o)
	}
	s.mustApply(bus.ClassProjection, j.page(1, 3))
	s.mustApply(bus.ClassProjection, j.page(4, 6))
	s.hold(j.page(8, 8))
	s.send("p", 2)
	s.send("p", 9)
	s.mustApply(bus.ClassActivity, `{"activity":{}}`)
	s.mustApply(bus.ClassSession, `{"op":"save","last_error":"x"}`)
	return s, j
}

// Any class, headers and body have an outcome, in any state: Apply never panics,
// does the same to the same state (also to one that was stored in between), moves
// the chain only forward, keeps the bounds, and gives facts that are JSON.
func FuzzApply(f *testing.F) {
	_, j := lived(f)
	for _, body := range []string{
		``, `{}`, `no JSON`, `{"message":"m"}`, `{"activity":{"a":1}}`, `{"op":"save","title":null,"last_error":"y"}`, `{"op":"forget"}`,
		resync(bus.ChainPosition{Ordinal: 7, Digest: j.events[6].Digest}), resync(bus.ChainPosition{Ordinal: 1 << 62}), j.page(7, 7), j.page(1, 8), j.pageAfter(8, 8), j.page(2, 2),
	} {
		for _, class := range []string{"session", "activity", "error", "projection", "control", "nonsense"} {
			f.Add(class, []byte(body), "p", uint64(3), "e", false, false, []byte(`{"type":"closed"}`))
		}
	}
	for _, o := range []string{queued("z"), started("q"), ended("p", "refusal"), failed("rejected", "p", "prompt", "m"), completed("s", "steered", `{"queued_command_id":"q"}`),
		completed("s", "queue_changed", `{"removed_command_ids":["q"]}`), asked("a", "!"), answered("a"), opened, harness, settled, info(`,"title":"t"`), `{"type":"agent_initialized","data":{"runtime":{}}}`, `{}`} {
		f.Add("error", []byte(`{}`), "", uint64(0), "", false, true, []byte(o))
	}
	f.Fuzz(func(t *testing.T, class string, body []byte, publisher string, count uint64, eventID string, badHeader, known bool, observation []byte) {
		live, j := lived(t)
		stored, _ := lived(t)
		stored.state = reload(t, stored.state)

		m := projection.Message{Class: bus.Class(class), Seq: 99, Time: ingestTime(99), Body: body, Identity: bus.Identity{Publisher: publisher, Count: count, EventID: eventID}}
		if badHeader {
			m.IdentityErr = errors.New("header: is bad")
		}
		messages := []projection.Message{m, m}
		if o, err := bus.Compact(observation); err == nil && bus.IsObject(o) {
			// A page that fits and is right, whatever its observation holds, so that
			// the fuzzer gets past the digests.
			at := j.fork(6)
			at.add(string(o))
			page := []byte(at.page(7, 7))
			messages = append([]projection.Message{{Class: bus.ClassProjection, Seq: 98, Body: page}}, messages...)
		}
		var id *projection.KnownID
		if known {
			id = &projection.KnownID{}
		}
		for _, m := range messages {
			before := live.state.Chain.Position
			r := live.state.Apply(m, id)
			require.Equal(t, r, stored.state.Apply(m, id))

			if !r.Forget {
				require.GreaterOrEqual(t, live.state.Chain.Position.Ordinal, before.Ordinal)
			}
			require.NotEqual(t, "none", r.Outcome.String())
			require.Equal(t, r.Outcome == projection.Rejected, r.Reason != "")
			if r.Outcome == projection.Rejected {
				require.Len(t, r.Rejects, 1)
				require.NotEmpty(t, r.Detail)
				require.Empty(t, r.Facts)
			}
			for _, fact := range r.Facts {
				compact, err := bus.Compact(fact.Data)
				require.NoError(t, err)
				require.Equal(t, string(fact.Data), string(compact))
				require.True(t, bus.IsObject(compact))
				require.Less(t, len(fact.Data), len(m.Body)+len(observation)+bus.PayloadReserve-4096)
			}
			require.LessOrEqual(t, len(live.state.Publishers.Seen), projection.MaxPublishers)
			require.LessOrEqual(t, len(live.state.Held), projection.MaxHeldPages)

			stored.state = reload(t, stored.state)
			stored.state.Changed = live.state.Changed
			require.Equal(t, encoded(t, live.state), encoded(t, stored.state))
			session, err := bus.Compact(live.state.AppendSession(nil, bus.Key{}, projection.SessionEvents{}))
			require.NoError(t, err)
			require.True(t, bus.IsObject(session))
		}
	})
}

func encoded(t testing.TB, s *projection.State) string {
	chain, publishers, view := encode(t, s)
	return fmt.Sprintf("%x %x %s %v %v", chain, publishers, view, s.Exists, s.Forgotten)
}
