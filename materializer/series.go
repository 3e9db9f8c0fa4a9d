package materializer

import "time"

const (
	// maxSeries is the most facts that are appended one by one, and the most of them that
	// may wait for their answers at once.
	maxSeries = 24
	// probeEvery is after how long the way that looked slower is tried once more.
	probeEvery = 5 * time.Second
	// costWeight is the share of the newest duration in a mean.
	costWeight = 1.0 / 8
)

// appendCosts says how a few facts get into EVENTS sooner: one by one or in an atomic batch. A server with one copy on disk stages
// a batch in a store of its own, which takes six syncs where a message needs one;
// replicas take a batch in one round. So what each way has taken decides. The worker
// owns it.
type appendCosts struct {
	single, batch cost
}

// cost is a running mean in which a disk that stalls once does not count for long.
type cost struct {
	mean time.Duration // 0 before there is any
	at   time.Time     // of the newest
}

func (c *cost) add(d time.Duration, now time.Time) {
	if c.mean == 0 {
		c.mean = d
	}
	c.mean += time.Duration(costWeight * float64(min(d, 2*c.mean)-c.mean))
	c.at = now
}

// took notes how long an append of n messages has taken. What large batches take says
// nothing of small ones.
func (c *appendCosts) took(n uint64, d time.Duration, now time.Time) {
	switch {
	case n == 1:
		c.single.add(d, now)
	case n <= maxSeries*2:
		c.batch.add(d, now)
	}
}

// inSeries reports whether n facts are to be appended one by one.
func (c *appendCosts) inSeries(n int, now time.Time) bool {
	switch {
	case n > maxSeries:
		return false
	case c.single.mean == 0 || now.Sub(c.single.at) > probeEvery:
		return true
	case c.batch.mean == 0:
		return n <= maxSeries/3
	case now.Sub(c.batch.at) > probeEvery:
		return false
	}
	// One by one half of them are there after half the time; and who comes during a
	// batch waits for the rest of it, and for the next.
	return time.Duration(n)*c.single.mean <= 2*c.batch.mean
}

// alone reports whether the one fact that is pending is to be appended by itself, of a
// batch of n messages that may give one fact each. The facts of one message stay together.
func (a *attempt) alone(n int) bool {
	return n > 1 && a.pending.rows == 1 && a.m.costs.inSeries(n, time.Now())
}
