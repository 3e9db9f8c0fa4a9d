package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// replica is one of several processes of a bus: a store and a service over it.
type replica struct {
	t    *testing.T
	st   *store.Store
	last uint64
	stop func()
}

// replicas starts n services of one bus whose EVENTS is said to end at last. Their
// stores are empty.
func replicas(t *testing.T, server *natsd.Server, n int, last uint64) []*replica {
	t.Helper()
	var out []*replica
	for range n {
		st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, st.Close()) })
		require.NoError(t, st.Adopt(t.Context(), store.Bus{Epoch: "e1", IngestID: "i1"}))
		own, err := server.InProcess()
		require.NoError(t, err)
		t.Cleanup(own.Close)
		a := api.New(api.Options{Reader: st.Reader(), Ends: func(context.Context) (api.Ends, error) { return api.Ends{EventsLast: last}, nil }})
		s := service.New(service.Options{API: a, Conn: own, Subjects: skaldtest.Subjects(t), Version: "1.2.3"})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		r := &replica{t: t, st: st, stop: func() { cancel(); <-done }}
		t.Cleanup(r.stop)
		out = append(out, r)
	}
	nc, _ := skaldtest.Connect(t, server)
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return instances(nc) == n })
	return out
}

// instances counts the services that answer to the tools, as `nats micro ls` does.
func instances(nc *nats.Conn) int {
	inbox := nc.NewRespInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		return -1
	}
	defer replies.Unsubscribe()
	if err := nc.PublishRequest("$SRV.PING.skald", inbox, nil); err != nil {
		return -1
	}
	ids := map[string]bool{}
	for {
		m, err := replies.NextMsg(300 * time.Millisecond)
		if err != nil {
			return len(ids)
		}
		var p micro.Ping
		if json.Unmarshal(m.Data, &p) == nil {
			ids[p.ID] = true
		}
	}
}

// commit brings the store to the number, an event each.
func (r *replica) commit(to uint64) {
	r.t.Helper()
	var c store.Commit
	for seq := r.last + 1; seq <= to; seq++ {
		c.Rows = append(c.Rows, store.Row{
			Seq: seq, Key: bus.Key{Workspace: "w", Session: "s" + strconv.FormatUint(seq%3, 10)}, Type: bus.TypeError,
			Origin: bus.Origin{Seq: seq, Time: 1e9}, Data: []byte(`{"message":"m","command_id":null}`),
		})
	}
	c.Position = store.Position{IngestSeq: to, EventsSeq: to, HighestTime: 1e9}
	require.NoError(r.t, r.st.Commit(r.t.Context(), &c))
	r.last = to
}

// Of two stores one lags. They answer as one: whichever is asked, a reader gets
// each event once and in order, is never thrown behind its cursor, and every reply
// says how far its store is.
func TestService_LaggingReplica(t *testing.T) {
	t.Parallel()
	server := skaldtest.Server(t)
	const end = 256 // of the table; EVENTS is said to end later
	both := replicas(t, server, 2, 300)
	both[0].commit(end)
	both[1].commit(250)
	nc, _ := skaldtest.Connect(t, server)
	ask := func(t *testing.T, subject, body string) *nats.Msg {
		m, err := nc.Request(subject, []byte(body), 10*time.Second)
		require.NoError(t, err)
		return m
	}

	// Every endpoint says it, with an answer and with a refusal.
	for _, c := range [][2]string{
		{"skald.api.w.events", `{"after_seq":0,"limit":1}`}, {"skald.api.w.events", `{"after_seq":5000}`}, {"skald.api.w.sessions", ""},
		{"skald.api.w.session.s1", ""}, {"skald.api.w.session.nobody", ""}, {"skald.api.w.position.s1", ""},
		{"skald.api.w.outcome.s1", `{"event_id":"e"}`}, {"skald.op.events", ""}, {"skald.op.sessions", ""}, {"skald.op.status", ""},
	} {
		for seen := map[string]bool{}; len(seen) < 2; {
			m := ask(t, c[0], c[1])
			latest := m.Header.Get(service.HeaderLatest)
			require.Contains(t, []string{"250", "256"}, latest, c[0])
			seen[latest] = true
		}
	}

	// Walks of any limit, from any place, get the same list.
	t.Run("walks", func(t *testing.T) {
		for _, walk := range []struct{ after, limit uint64 }{{0, 7}, {0, 1000}, {249, 4}, {250, 50}, {251, 50}, {255, 1}} {
			t.Run(fmt.Sprint(walk), func(t *testing.T) {
				t.Parallel() // most of their time they wait for the store that lags
				var got []uint64
				after, behind := walk.after, 0
				for after < end {
					m := ask(t, "skald.api.w.events", fmt.Sprintf(`{"after_seq":"e1:%d","limit":%d}`, after, walk.limit))
					if m.Header.Get(micro.ErrorCodeHeader) != "" {
						require.Contains(t, string(m.Data), `"code":"behind"`)
						require.Equal(t, "250", m.Header.Get(service.HeaderLatest))
						behind++
						continue
					}
					var p struct {
						Events []struct{ Seq uint64 }
						Next   uint64 `json:"next_after_seq"`
						Latest uint64 `json:"latest_seq"`
					}
					require.NoError(t, json.Unmarshal(m.Data, &p))
					require.GreaterOrEqual(t, p.Next, after)
					if len(p.Events) == 0 {
						require.Equal(t, p.Latest, p.Next, "the end of the store that was asked")
					}
					for _, ev := range p.Events {
						got = append(got, ev.Seq)
					}
					after = p.Next
				}
				require.Len(t, got, int(end-walk.after))
				for i, seq := range got {
					require.Equal(t, walk.after+uint64(i)+1, seq)
				}
			})
		}
	})

	// The one that lags is waited for when it is about to get there.
	both[0].stop()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return instances(nc) == 1 })
	reply := make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe("answer", reply)
	require.NoError(t, err)
	defer sub.Unsubscribe()
	// It waits for two seconds, in which a busy machine may not commit: then it says that it
	// is behind, and is asked for what the next commit brings.
	var m *nats.Msg
	var after uint64
	for after = 252; after < 300; after += 4 {
		require.NoError(t, nc.PublishRequest("skald.api.w.events", "answer", fmt.Appendf(nil, `{"after_seq":%d,"limit":1}`, after)))
		both[1].commit(after + 2)
		if m = <-reply; m.Header.Get(micro.ErrorCodeHeader) == "" {
			break
		}
		require.Contains(t, string(m.Data), `"code":"behind"`)
	}
	require.Empty(t, m.Header.Get(micro.ErrorCodeHeader), "%s", m.Data)
	require.Contains(t, string(m.Data), fmt.Sprintf(`"seq":%d,`, after+1))
}

// The official protocol finds every replica, its endpoints in one queue group, and
// counts its requests.
func TestService_Discovery(t *testing.T) {
	t.Parallel()
	server := skaldtest.Server(t)
	replicas(t, server, 3, 0)
	nc, _ := skaldtest.Connect(t, server)
	for range 10 {
		_, err := nc.Request("skald.op.status", nil, 10*time.Second)
		require.NoError(t, err)
	}
	// A request is counted when it was handled, which may be after its answer has come.
	skaldtest.EventuallyWith(t, skaldtest.Timeout, func(c *assert.CollectT) {
		inbox := nc.NewRespInbox()
		replies, err := nc.SubscribeSync(inbox)
		require.NoError(c, err)
		defer replies.Unsubscribe()
		require.NoError(c, nc.PublishRequest("$SRV.STATS.skald", inbox, nil))
		requests := 0
		for range 3 {
			m, err := replies.NextMsg(10 * time.Second)
			require.NoError(c, err)
			var s micro.Stats
			require.NoError(c, json.Unmarshal(m.Data, &s))
			require.Equal(c, "skald", s.Name)
			require.Len(c, s.Endpoints, 8)
			for _, e := range s.Endpoints {
				require.Equal(c, s.Endpoints[0].QueueGroup, e.QueueGroup)
				require.NotEmpty(c, e.QueueGroup)
				if e.Name == "op-status" {
					requests += e.NumRequests
				}
			}
		}
		require.Equal(c, 10, requests, "one of the group answers each")
	})
}
