package materializer

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// connection is what the NATS connection was last. It is told instead of asked: the
// library holds its lock while it connects anew, for seconds where somebody takes the
// connection and says nothing, and neither health nor a scrape may wait for that.
type connection struct {
	status     atomic.Int64 // a nats.Status
	reconnects atomic.Int64
}

func (c *connection) init(nc *nats.Conn) {
	c.status.Store(int64(nc.Status()))
	c.reconnects.Store(int64(nc.Stats().Reconnects))
}

// run hears of changes until ctx ends.
func (c *connection) run(ctx context.Context, nc *nats.Conn) error {
	changes := nc.StatusChanged()
	defer nc.RemoveStatusListener(changes)
	c.init(nc) // what has changed before
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-changes:
			if s == nats.CONNECTED { // who sees that it is back sees how often it was made, too
				c.reconnects.Store(int64(nc.Stats().Reconnects))
			}
			c.status.Store(int64(s))
			if s == nats.CLOSED {
				return nil
			}
		}
	}
}

// Connection returns the state of the connection to NATS and how often it was made
// again. It never blocks. Safe for concurrent use; it is kept up to date while Run runs.
func (m *Materializer) Connection() (status nats.Status, reconnects uint64) {
	return nats.Status(m.connection.status.Load()), uint64(m.connection.reconnects.Load())
}
