package publisher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/publisher"
)

// BenchmarkOutbox compares publishing with an outbox and without, by the messages that
// are materialized in a second. Each session has one caller, who says one message after
// the other: with an outbox each call waits for an fsync, which those share who wait at
// the same time. The last sub-benchmark of each number of sessions prints the share.
func BenchmarkOutbox(b *testing.B) {
	for _, sessions := range []int{1, 100} {
		var baseline float64
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("sessions=%d/outbox=%v", sessions, on), func(b *testing.B) {
				w := newWorld(b)
				o := publisher.Options{}
				if on {
					o.Outbox = b.TempDir()
				}
				p := w.publisher(o)
				open := make([]*publisher.Session, sessions)
				for i := range open {
					open[i] = p.open(key(fmt.Sprint("s", i)))
				}
				messages := 0
				for b.Loop() {
					const round = 2000
					var wg sync.WaitGroup
					last := make([]*publisher.Receipt, sessions)
					errs := make([]error, sessions)
					for i, s := range open {
						wg.Go(func() {
							for range round / sessions {
								if last[i], errs[i] = s.Error(context.Background(), "something went wrong", ""); errs[i] != nil {
									return
								}
							}
							_, errs[i] = last[i].Materialized(context.Background())
						})
					}
					wg.Wait()
					for _, err := range errs {
						require.NoError(b, err)
					}
					messages += round
				}
				rate := float64(messages) / b.Elapsed().Seconds()
				b.ReportMetric(rate, "messages/s")
				if !on {
					baseline = rate
				} else if baseline > 0 {
					b.Logf("%d sessions: %.0f messages/s with an outbox, %.0f without: %.2f of it", sessions, rate, baseline, rate/baseline)
				}
			})
		}
	}
}
