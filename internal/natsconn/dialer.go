package natsconn

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer lets the first attempt to connect end with a context: the client
// library itself knows only a time-out for each address.
type dialer struct {
	timeout time.Duration

	mu      sync.Mutex
	gaveUp  bool
	attempt bool               // the first attempt is going on
	cancel  context.CancelFunc // of the dialing of that attempt
	conn    net.Conn           // what it has dialed
}

// first binds the dialer to ctx until end is called.
func (d *dialer) first(ctx context.Context) (end func()) {
	d.mu.Lock()
	d.attempt = true
	d.mu.Unlock()
	stop := context.AfterFunc(ctx, d.giveUp)
	return func() {
		stop()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.attempt, d.conn = false, nil
	}
}

// giveUp stops dialing, and cuts the connection if the server's greeting or the
// TLS handshake is being waited for.
func (d *dialer) giveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.attempt {
		return
	}
	d.gaveUp = true
	if d.cancel != nil {
		d.cancel()
	}
	if d.conn != nil {
		d.conn.Close() // the reader gets the error
	}
}

// Dial connects to address within the time-out.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	d.mu.Lock()
	if d.gaveUp {
		d.mu.Unlock()
		return nil, context.Canceled
	}
	d.cancel = cancel
	d.mu.Unlock()

	c, err := new(net.Dialer).DialContext(ctx, network, address)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = nil
	if err != nil || !d.attempt {
		return c, err
	}
	if d.gaveUp {
		c.Close()
		return nil, context.Canceled
	}
	d.conn = c
	return c, nil
}
