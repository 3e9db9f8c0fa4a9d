package store

import "github.com/skaldbus/skald/bus"

// cacheGeneration is how many sessions one of the cache's two generations holds:
// with keys of usual length about 10 MB for both.
const cacheGeneration = 32 << 10

// session is what the writer has to know of a session's row.
type session struct {
	pk        int64
	present   bool
	forgotten bool
}

// sessionCache remembers the rows of sessions that were written lately. It holds at
// most two generations: when the young one is full it becomes the old one, and what
// was not used since is gone. The zero value is empty and ready.
type sessionCache struct {
	young, old map[bus.Key]session
}

func (c *sessionCache) get(k bus.Key) (session, bool) {
	if s, ok := c.young[k]; ok {
		return s, true
	}
	s, ok := c.old[k]
	return s, ok
}

func (c *sessionCache) put(k bus.Key, s session) {
	if c.young == nil || len(c.young) >= cacheGeneration {
		c.old, c.young = c.young, make(map[bus.Key]session)
	}
	c.young[k] = s
}
