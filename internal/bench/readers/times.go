package readers

import (
	"slices"
	"time"
)

// Times are how long something took.
type Times struct {
	N             int
	P50, P99, Max time.Duration
}

func timesOf(d []time.Duration) Times {
	if len(d) == 0 {
		return Times{}
	}
	slices.Sort(d)
	return Times{N: len(d), P50: d[len(d)/2], P99: d[len(d)*99/100], Max: d[len(d)-1]}
}
