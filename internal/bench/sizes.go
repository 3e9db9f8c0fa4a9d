package bench

import "time"

// Sizes are how much is measured.
type Sizes struct {
	CatchUp      int           // stored messages
	Observations int           // in stored pages of 128
	LatencyFor   time.Duration // measured, after a warm-up of a fifth of it
	LatencyRate  int           // messages a second
	MemoryEvents int           // of a run
	Rows         int           // of the large table
	ManyRows     int           // of the very large table
	FewRows      int           // of the small one
	Sessions     int           // open on one connection
	Round        int           // messages of a round of all sessions
	Streams      int           // live readers
	StreamsFor   time.Duration // that they follow
}

// Full are the sizes that the figures are stated for.
func Full() Sizes {
	return Sizes{
		CatchUp: 200_000, Observations: 1_000_000, LatencyFor: 20 * time.Second, LatencyRate: 1000, MemoryEvents: 1_000_000,
		Rows: 1_000_000, ManyRows: 5_000_000, FewRows: 10_000, Sessions: 10_000, Round: 10_000, Streams: 1000, StreamsFor: 10 * time.Second,
	}
}

// Quick are sizes with which everything runs once, in about half a minute. The
// ratios tell little then: starting up is a large part of it.
func Quick() Sizes {
	return Sizes{
		CatchUp: 20_000, Observations: 64_000, LatencyFor: 2 * time.Second, LatencyRate: 500, MemoryEvents: 40_000,
		Rows: 100_000, ManyRows: 200_000, FewRows: 10_000, Sessions: 1000, Round: 2000, Streams: 100, StreamsFor: time.Second,
	}
}
