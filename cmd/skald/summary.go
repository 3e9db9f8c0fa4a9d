package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/materializer"
)

// summaryEvery is how often the log says how it goes.
const summaryEvery = 5 * time.Minute

// summarize has the log say now and then how it goes, until ctx ends.
func summarize(ctx context.Context, o serveOptions, log *slog.Logger, m *materializer.Materializer, hub *live.Hub, gw *gateway.Gateway) error {
	every := o.summarize
	if every == 0 {
		every = summaryEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		ingest, events := m.Position()
		lag := m.Lag()
		var failing []string
		for _, c := range m.Health() {
			if !c.OK {
				failing = append(failing, c.Name)
			}
		}
		log.InfoContext(ctx, "summary", slog.Uint64("ingest_position", ingest), slog.Uint64("events_position", events),
			slog.Uint64("lag_messages", lag.Messages), slog.Duration("lag", lag.Age), slog.Time("lag_seen", lag.At),
			slog.Int("stream_readers", gw.Streams()), slog.Int64("slow_readers", hub.Stats().Behind+gw.CutOff()),
			slog.String("failing", strings.Join(failing, ",")))
	}
}
