package publisher_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/publisher"
)

// BenchmarkSessions compares one open session with ten thousand on one connection, by
// the messages that INGEST acknowledges in a second. Each message is one event's page,
// and each session has one in flight. The bar is half of one session's rate; the
// second sub-benchmark prints whether it is met.
//
// The bus answers positions without a materializer beside it, which would take its
// share of the machine from one of the two.
func BenchmarkSessions(b *testing.B) {
	rates := map[int]float64{}
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			w := newServer(b, natsd.Options{SyncInterval: time.Minute})
			w.create(bus.StreamOptions{IngestBytes: 2 << 30})
			_, err := w.nc.Subscribe("skald.api.*.position.*", func(m *nats.Msg) {
				m.Respond(fmt.Appendf(nil, `{"frontier":{"ordinal":0,"digest":"%064d"},"ingest_position":%d}`, 0, bus.MaxSeq))
			})
			require.NoError(b, err)
			require.NoError(b, w.nc.Flush())
			p := w.publisher(publisher.Options{MaxUnmaterializedBytes: 1})
			sessions := make([]*publisher.Session, n)
			const openers = 1000 // each waits a moment for a hint that does not come
			errs := make(chan error, openers)
			for from := range openers {
				go func() {
					var err error
					for i := from; i < n && err == nil; i += openers {
						sessions[i], err = p.Session(context.Background(), key(fmt.Sprint("s", i)))
					}
					errs <- err
				}()
			}
			for range openers {
				require.NoError(b, <-errs)
			}
			messages := 0
			observation := ended("c")
			for b.Loop() {
				// A round: one message in each session, or as many one after
				// the other in the one.
				const round = 10_000
				receipts := make([]*publisher.Receipt, 0, n)
				for i := range round {
					r, err := sessions[i%n].Observe(context.Background(), observation, publisher.ObserveOptions{})
					require.NoError(b, err)
					if n == 1 {
						_, err = r.Stored(context.Background())
						require.NoError(b, err)
						continue
					}
					receipts = append(receipts, r)
				}
				for _, r := range receipts {
					_, err := r.Stored(context.Background())
					require.NoError(b, err)
				}
				messages += round
			}
			rates[n] = float64(messages) / b.Elapsed().Seconds()
			b.ReportMetric(rates[n], "acks/s")
			if one := rates[1]; n > 1 && one > 0 {
				verdict := "PASS"
				if rates[n] < one/2 {
					verdict = "FAIL"
				}
				b.Logf("%s: %d sessions %.0f acks/s, one session %.0f acks/s, the bar is %.0f", verdict, n, rates[n], one, one/2)
			}
		})
	}
}
