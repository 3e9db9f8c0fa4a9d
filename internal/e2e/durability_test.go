//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// B20: as shipped, the broker syncs before it acknowledges, and says so; killed in the
// middle of bursts again and again, it has every message that it acknowledged.
func TestB20_AcknowledgedIsKept(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	start := func() *server {
		p, err := spawn(command(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "200000000"))
		require.NoError(t, err)
		t.Cleanup(func() { kill(p) })
		s := &server{process: p, data: data}
		skaldtest.Eventually(t, patience, func() bool { return s.ready() || !p.running() })
		require.True(t, p.running(), p.text())
		return s
	}
	const burst = 1000
	acknowledged := map[string]bool{}
	for round := range long(4, 20) {
		s := start()
		require.Contains(t, s.text(), "(embedded, syncs before it acknowledges)")
		nc, err := nats.Connect(s.nats, nats.NoReconnect())
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		acks := map[string]jetstream.PubAckFuture{}
		for i := range burst {
			id := fmt.Sprintf("%d-%d", round, i)
			f, err := js.PublishMsgAsync(&nats.Msg{
				Subject: ingestSubject("w", fmt.Sprint("s", i%5), "error"), Header: withID(id), Data: []byte(failed(id)),
			})
			require.NoError(t, err)
			acks[id] = f
		}
		// Some are acknowledged, most are not yet.
		skaldtest.Eventually(t, patience, func() bool { return burst-js.PublishAsyncPending() > 50 })
		kill(s.process)
		nc.Close()
		before := len(acknowledged)
		for id, f := range acks {
			select {
			case <-f.Ok():
				acknowledged[id] = true
			default:
			}
		}
		require.Greater(t, len(acknowledged)-before, 50)
	}
	s := start()
	times := map[string]int{}
	for _, row := range s.same(t, "w") {
		text := dataOf(row)
		_, text, _ = strings.Cut(text, `"message":"`)
		id, _, _ := strings.Cut(text, `"`)
		times[id]++
	}
	for id := range acknowledged {
		require.Equal(t, 1, times[id], id)
	}
	t.Logf("%d acknowledged, %d stored", len(acknowledged), len(times))
	s.stop(t)
}
